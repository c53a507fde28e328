"""A client of an iroh relay, to learn whether one can be used before anything depends on it.

An endpoint of the network library does not say why it finds no relay, and two of them on one machine find the direct
way at once. So this speaks the relay's protocol itself (iroh-relay's, versions 1 and 2): a WebSocket at /relay on which
the server sends a challenge, the client answers with its key and a signature, the server confirms or denies with a
reason; then each binary message is one frame, whose first byte is its kind.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import ssl
import time
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from ppsmoke.iroh_fix import iroh
from ppsmoke.relays.derived_key import derive_key
from ppsmoke.wording import one_line

_SIGNED = "iroh-relay handshake v1 challenge signature"
_CHALLENGE, _AUTHENTICATION, _CONFIRMS, _DENIES = 0, 1, 2, 3
_SEND_BATCH, _CAME, _CAME_BATCH, _PING, _PONG = 5, 6, 7, 9, 10
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_BINARY, _CLOSE, _WS_PING, _WS_PONG = 2, 8, 9, 10
_REASON_CHARS = 200
_SEGMENT_BYTES = 1200
_SEGMENTS = 8
_MAX_MESSAGE = 1 << 20
_MAX_HEAD = 1 << 14


class NoRelay(Exception):
    """What was found in place of a relay that lets us in, as a clause behind its address."""


class RelayClient:
    """One connection with a fresh key. Nothing here has a deadline of its own: the caller has one for all."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self.key = key

    @classmethod
    async def connect(cls, url: str, token: str) -> Self:
        """Raises NoRelay, and OSError (ssl.SSLError is one) when nothing can be reached there."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        context = ssl.create_default_context() if secure else None
        port = parts.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context, limit=_MAX_MESSAGE)
        secret = iroh.SecretKey.generate()
        client = cls(reader, writer, bytes(secret.public().to_bytes()))
        try:
            await client._upgrade(parts.netloc, token)
            await client._prove(secret, token)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            client.close()
            raise NoRelay("is no relay: it broke off the connection") from None
        except BaseException:
            client.close()
            raise
        return client

    async def round_trip(self) -> float:
        """Seconds from here to the relay and back. Raises ConnectionError, EOFError."""
        nonce = secrets.token_bytes(8)
        began = time.monotonic()
        self._write(bytes([_PING]) + nonce)
        while await self._frame() != bytes([_PONG]) + nonce:
            pass
        return time.monotonic() - began

    async def send(self, to: bytes, size: int) -> None:
        """About `size` bytes for the client `to`, in batches as a busy endpoint sends them. Raises ConnectionError."""
        head = bytes([_SEND_BATCH]) + to + b"\0" + _SEGMENT_BYTES.to_bytes(2, "big")
        batch = os.urandom(_SEGMENT_BYTES * _SEGMENTS)
        for _ in range(-(-size // len(batch))):
            self._write(head + batch)
            await self._writer.drain()

    async def received(self) -> int:
        """How many bytes the next datagrams for us have. Raises ConnectionError, EOFError."""
        while True:
            frame = await self._frame()
            if frame[:1] == bytes([_CAME]):
                return max(0, len(frame) - _KEY_BYTES - 2)
            if frame[:1] == bytes([_CAME_BATCH]):
                return max(0, len(frame) - _KEY_BYTES - 4)

    def close(self) -> None:
        """Let go of the connection; nobody waits for its end."""
        with suppress(OSError):
            self._writer.transport.abort()

    # ---- the handshakes

    async def _upgrade(self, host: str, token: str) -> None:
        lines = [
            "GET /relay HTTP/1.1",
            f"Host: {host}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Protocol: iroh-relay-v2, iroh-relay-v1",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if len(head) > _MAX_HEAD:
            raise NoRelay("is no relay: its answer is none of HTTP")
        status_line, *fields = head.split("\r\n")
        words = status_line.split()
        status = words[1] if len(words) > 1 and words[0].startswith("HTTP/") else ""
        if status == "101":
            return
        if status in ("401", "403"):
            raise NoRelay("refuses the token" if token else "wants a token")
        if not status:
            raise NoRelay("is no relay: its answer is none of HTTP")
        if any("text/html" in field.lower() for field in fields if field.lower().startswith("content-type")):
            raise NoRelay(f"is no relay: it answered with a web page (status {status})")
        raise NoRelay(f"is no relay: it answered with status {status}")

    async def _prove(self, secret: object, token: str) -> None:
        challenge = await self._frame()
        if challenge[:1] != bytes([_CHALLENGE]) or len(challenge) != 17:
            raise NoRelay("is no relay: it speaks another protocol")
        signature = bytes(secret.sign(derive_key(_SIGNED, challenge[1:])).to_bytes())  # type: ignore[attr-defined]
        self._write(bytes([_AUTHENTICATION]) + self.key + bytes([_SIGNATURE_BYTES]) + signature)
        answer = await self._frame()
        if answer[:1] == bytes([_DENIES]):
            reason = one_line(answer[2:].decode(errors="replace"), _REASON_CHARS)
            raise NoRelay(f"{'refuses the token' if token else 'does not let us in'}: {reason}")
        if answer[:1] != bytes([_CONFIRMS]):
            raise NoRelay("is no relay: it speaks another protocol")

    # ---- messages

    async def _frame(self) -> bytes:
        """The next binary message. Raises ConnectionError, IncompleteReadError (an EOFError)."""
        while True:
            first, second = await self._reader.readexactly(2)
            length = second & 0x7F
            if length >= 126:
                length = int.from_bytes(await self._reader.readexactly(2 if length == 126 else 8), "big")
            if length > _MAX_MESSAGE:
                raise ConnectionError(f"a message of {length} bytes")
            body = await self._reader.readexactly(length)
            match first & 0x0F:
                case 2:
                    return body
                case 8:
                    raise ConnectionError("it closed the connection")
                case 9:
                    self._write(body, _WS_PONG)

    def _write(self, body: bytes, opcode: int = _BINARY) -> None:
        """One masked message (RFC 6455, 5.2); a mask of zeros is one too, and this secures nothing."""
        size = len(body)
        length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
        self._writer.write(bytes([0x80 | opcode]) + length + bytes(4) + body)
