"""Blacks secrets out of what a run writes down: those it knows, and what looks like one where it is named as one. Pure.

A node loads this before it can be reached, so it needs little.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "[secret]"
SHORTEST = 6
"""A shorter value is no secret: blacking it out would make every text unreadable."""

_NAME = r"(?:[A-Z][A-Z0-9_]*_)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
_SMALL_NAME = (
    r"(?:api|access|auth|relay|join|secret|node|private|instance)[-_ ]?(?:key|token|secret)"
    r"|password|passwd|client[-_]secret"
)
_VALUE = rf"[^\s\"'\\,;&]{{{SHORTEST},}}"
_PATTERNS = (
    # PP_NODE_KEY=..., "PP_JOIN_TOKEN": "...", VAST_API_KEY: ...
    re.compile(rf"(\b{_NAME}\\?[\"']?\s*[=:]\s*\\?[\"']?){_VALUE}"),
    re.compile(rf"((?<![a-z])(?i:{_SMALL_NAME})\\?[\"']?\s*[=:]\s*\\?[\"']?){_VALUE}"),
    re.compile(rf"(--(?:[a-z]+-)*(?:key|token|secret|password)(?:\s+|=)[\"']?)(?!-){_VALUE}"),
    re.compile(rf"([?&](?i:key|token|access_token|auth|sig|signature|api_key)=){_VALUE}"),
    re.compile(rf"((?i:authorization)[\"']?\s*[=:]\s*[\"']?[A-Za-z]+\s+){_VALUE}"),
    re.compile(r"((?i:\bbearer)\s+)[A-Za-z0-9+/=._~-]{12,}"),
    re.compile(r"(://)[^/\s:@]+:[^/\s@]+(?=@)"),
)
_HINT = re.compile(r"(?i)key|token|secret|passw|credential|auth|sig|bearer|://")  # without it no pattern can match
_SECRET_VARIABLE = re.compile(rf"{_NAME}|.*(?:PASSWORD|SECRET|CREDENTIAL).*", re.IGNORECASE)


class Redactor:
    """Knows the secrets of one run, in every spelling in which a program may write them. A secret that is learnt later
    is blacked out from then on."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._spellings: set[str] = set()
        self.keep(*secrets)

    def keep(self, *secrets: str | bytes) -> None:
        """Never write these. Bytes are a key: its hexadecimal and base64 forms are secret."""
        found = {spelling for secret in secrets for spelling in _spellings(secret) if len(spelling) >= SHORTEST}
        self._spellings = self._spellings | found  # another thread may be reading the old set

    def clean(self, text: str) -> str:
        """Without anything secret. An id of a node, which is public, stays."""
        if any(spelling in text for spelling in self._spellings):
            # The longest first: one may be within another.
            found = sorted((s for s in self._spellings if s in text), key=len, reverse=True)
            text = re.sub("|".join(map(re.escape, found)), HIDDEN, text)
        if _HINT.search(text) is None:
            return text
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
        return text

    def clean_json(self, value: Any) -> Any:
        """The same for the texts in a JSON value; of an object, what a secret's name stands before is hidden whole.

        A field that is called `key` and no more is one by which something is found, as a plan's model is.
        """
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, Mapping):
            return {self.clean(str(name)): self._clean_item(str(name), item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean_json(item) for item in value]
        return value

    def _clean_item(self, name: str, value: Any) -> Any:
        named = isinstance(value, str) and value and name != "key" and is_secret_name(name)
        return HIDDEN if named else self.clean_json(value)


def is_secret_name(name: str) -> bool:
    """Whether what a variable of this name holds is a secret."""
    return _SECRET_VARIABLE.fullmatch(name) is not None


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """The values of the variables whose names say that they are secret."""
    return [value for name, value in environment.items() if value and is_secret_name(name)]


def without_secret_arguments(arguments: Iterable[str]) -> list[str]:
    """A command line whose options that give a secret have their values blacked out."""
    shown: list[str] = []
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        named = name.startswith("--") and name.rpartition("-")[2] in ("key", "token", "secret", "password")
        if hide:
            shown.append(HIDDEN)
        else:
            shown.append(f"{name}={HIDDEN}" if named and equals else argument)
        hide = named and not equals
    return shown


def _spellings(secret: str | bytes) -> set[str]:
    """Of a key: in hexadecimal and base64; of a text: itself, and as it stands in a URL, in JSON and in a repr."""
    if isinstance(secret, bytes):
        encoded = binascii.b2a_base64(secret, newline=False).decode()
        return {secret.hex(), secret.hex().upper(), encoded, encoded.rstrip("="), _url_safe(encoded)}
    in_json = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found = {secret, *in_json, repr(secret)[1:-1], _percent(secret)}
    if re.fullmatch(r"(?:[0-9a-fA-F]{2}){16,}", secret):
        found |= _spellings(bytes.fromhex(secret))
    else:
        encoded = binascii.b2a_base64(secret.encode(errors="surrogateescape"), newline=False).decode()
        found |= {encoded, encoded.rstrip("="), _url_safe(encoded)}
    return found


def _url_safe(encoded: str) -> str:
    return encoded.rstrip("=").replace("+", "-").replace("/", "_")


def _percent(text: str) -> str:
    kept = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    data = text.encode(errors="surrogateescape")
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in data)
