"""The user's vast.ai key: where it is found, and a wrapper that never shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ppsmoke.errors import VastKeyMissing
from ppsmoke.named_file import read_named

HIDDEN = "[key]"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ApiKey:
    """`str()` and `repr()` do not show it; `source` says where it came from."""

    secret: str = field(repr=False)
    source: str

    def authorization(self) -> dict[str, str]:
        """The header that carries the key: for vast.ai alone."""
        return {"Authorization": f"Bearer {self.secret}"}

    def hide_in(self, text: str) -> str:
        """`text` with the key blacked out."""
        return text.replace(self.secret, HIDDEN)


def find_api_key(given: str | None, environ: Mapping[str, str], home: Path) -> ApiKey:
    """`given` (--api-key), else `VAST_API_KEY`, else the file where the vast.ai command line keeps it.

    Raises VastKeyMissing, which names the source but never what was found there.
    """
    if given is not None:
        return _checked(given, "--api-key")
    if environ.get("VAST_API_KEY", "").strip():
        return _checked(environ["VAST_API_KEY"], "VAST_API_KEY")
    for path in key_files(environ, home):
        try:
            text = read_named(path, most=_MOST_BYTES).decode().strip()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise VastKeyMissing(f"the key file {path} cannot be read: {reason}") from None
        if text:
            return _checked(text, str(path))
    raise VastKeyMissing("there is no vast.ai key")


def key_files(environ: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Where the vast.ai command line keeps its key, newest place first."""
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    config = given if given.is_absolute() else home / ".config"
    return (config / "vastai" / "vast_api_key", home / ".vast_api_key")


def _checked(text: str, source: str) -> ApiKey:
    key = text.strip()
    if not key:
        raise VastKeyMissing(f"the key in {source} is empty")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise VastKeyMissing(f"what {source} holds cannot be a vast.ai key: it has blanks or other odd characters")
    return ApiKey(key, source)
