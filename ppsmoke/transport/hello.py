"""The handshake on a new connection's control stream. Pure: records, their checks, the proof.

The dialler sends `Hello`, the acceptor answers `Welcome` or `Refused`. The dialler's connect() succeeds before the
acceptor has judged it, so a link counts as up only after `Welcome`.

Who is at the other end is already proven by the QUIC handshake (node ids are public keys); `proof` shows that the
dialler holds the run's join token, bound to this run and this pair.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass
from typing import Any

PROTOCOL_VERSION = 2
MAX_HELLO_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Hello:
    """`ticket`: the dialler's own full address. `life`: random per process; `stamp`: grows with every hello and welcome
    of that life, so that a late hello is told from a new one."""

    run_id: str
    protocol: int
    tool_version: str
    proof: str
    ticket: str
    life: str
    stamp: int


@dataclass(frozen=True, slots=True)
class Welcome:
    ticket: str
    life: str
    stamp: int


@dataclass(frozen=True, slots=True)
class Refused:
    """`code` is stable; `reason` is a clause that completes "... refused the link: "."""

    code: str
    reason: str


SIMULTANEOUS = "simultaneous"
STALE = "stale"
BUSY = "busy"
MOMENTARY = frozenset({SIMULTANEOUS, STALE, BUSY})
"""Refusals that say "not this attempt"; every other one is final."""


class HelloMalformed(Exception):
    """The bytes are not the handshake record expected."""


def make_proof(join_token: bytes, run_id: str, dialler_id: str, acceptor_id: str) -> str:
    """HMAC-SHA256 over run and pair, keyed by the join token; hex."""
    message = f"{run_id}|{dialler_id}|{acceptor_id}".encode()
    return hmac.new(join_token, message, hashlib.sha256).hexdigest()


def judge_hello(
    hello: Hello,
    *,
    run_id: str,
    join_token: bytes,
    tool_version: str,
    own_id: str,
    dialler_id: str,
) -> Refused | None:
    """None when the hello is in order, else why not. Versions first: another version may prove otherwise."""
    if hello.protocol != PROTOCOL_VERSION:
        return Refused("wrong_protocol", f"it speaks protocol {PROTOCOL_VERSION}, not {hello.protocol}")
    if hello.tool_version != tool_version:
        return Refused("wrong_version", f"it runs version {tool_version}, not {hello.tool_version[:40]}")
    if hello.run_id != run_id:
        return Refused("wrong_run", "it belongs to another run")
    proof = make_proof(join_token, run_id, dialler_id, own_id)
    if not (hello.proof.isascii() and hmac.compare_digest(proof, hello.proof)):
        return Refused("bad_token", "the join token is wrong")
    return None


def encode(record: Hello | Welcome | Refused) -> bytes:
    return json.dumps({"is": type(record).__name__, **asdict(record)}).encode()


def decode_hello(frame: bytes) -> Hello:
    """Raises HelloMalformed for anything but a Hello."""
    record = _decode(frame)
    if not isinstance(record, Hello):
        raise HelloMalformed(f"a hello was expected, not a {type(record).__name__.lower()}")
    return record


def decode_answer(frame: bytes) -> Welcome | Refused:
    """Raises HelloMalformed for anything but a Welcome or a Refused."""
    record = _decode(frame)
    if isinstance(record, Hello):
        raise HelloMalformed("an answer was expected, not a hello")
    return record


_FIELDS: dict[type[Any], dict[str, type]] = {
    Hello: {
        "run_id": str, "protocol": int, "tool_version": str, "proof": str, "ticket": str, "life": str, "stamp": int,
    },
    Welcome: {"ticket": str, "life": str, "stamp": int},
    Refused: {"code": str, "reason": str},
}  # fmt: skip
_KINDS = {kind.__name__: kind for kind in _FIELDS}


def _decode(frame: bytes) -> Hello | Welcome | Refused:
    try:
        body = json.loads(frame)
    except (ValueError, RecursionError):
        raise HelloMalformed("not a handshake record") from None
    if not isinstance(body, dict):
        raise HelloMalformed("not a handshake record")
    kind = _KINDS.get(str(body.pop("is", None)))
    if kind is None:
        raise HelloMalformed("not a handshake record")
    fields = _FIELDS[kind]
    for name, wanted in fields.items():
        if type(body.get(name)) is not wanted:
            raise HelloMalformed(f"{kind.__name__.lower()} without a proper `{name}`")
    record: Hello | Welcome | Refused = kind(**{name: body[name] for name in fields})
    return record
