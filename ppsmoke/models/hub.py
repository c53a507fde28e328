"""Where the hub is, and who the user is there, by the usual variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from ppsmoke.named_file import read_named

_DEFAULT_ENDPOINT = "https://huggingface.co"
_MOST_TOKEN_BYTES = 1 << 16
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub's address and the user's token, which is sent to this address only."""

    endpoint: str
    token: str | None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Hub:
        """`HF_ENDPOINT` is a mirror; `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN` or the hub's own token file the token."""
        endpoint = (env.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")
        token = env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or _token_from_file(env)
        return cls(endpoint, token.strip() if token else None)

    def url(self, repo: str, revision: str, file: str) -> str:
        return f"{self.endpoint}/{repo}/resolve/{revision}/{quote(file)}"

    def authorization(self, url: str) -> dict[str, str]:
        """The headers that carry the token, empty unless `url` is at the hub itself and not readable on the way."""
        if self.token is None or origin(url) != origin(self.endpoint) or not is_private(url):
            return {}
        return {"Authorization": f"Bearer {self.token}"}


def origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def is_private(url: str) -> bool:
    """Whether nobody on the way can read or change what `url` gives: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _token_from_file(env: Mapping[str, str]) -> str | None:
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    hub_home = Path(env["HF_HOME"]) if env.get("HF_HOME") else home / ".cache" / "huggingface"
    try:
        return read_named(hub_home / "token", most=_MOST_TOKEN_BYTES).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
