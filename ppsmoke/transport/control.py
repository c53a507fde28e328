"""The frames of a link's control stream after the handshake: messages, goodbye. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ppsmoke.transport.framing import FrameError


@dataclass(frozen=True, slots=True)
class Message:
    channel: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bye:
    reason: str


def encode(record: Message | Bye) -> bytes:
    match record:
        case Message(channel, body):
            wire: dict[str, Any] = {"channel": channel, "body": body}
        case Bye(reason):
            wire = {"bye": reason}
    return json.dumps(wire, separators=(",", ":")).encode()


def decode(frame: bytes) -> Message | Bye:
    """Raises FrameError for anything that `encode` does not make."""
    try:
        wire = json.loads(frame)
    except (ValueError, RecursionError):
        raise FrameError("a control frame is not JSON") from None
    match wire:
        case {"channel": str(channel), "body": dict(body)}:
            return Message(channel, body)
        case {"bye": str(reason)}:
            return Bye(reason[:500])
    raise FrameError("a control frame of an unknown kind")
