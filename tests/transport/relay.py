"""A small iroh relay for tests: what two endpoints need to find each other, and nothing that keeps strangers out.

The protocol is iroh's "iroh-relay-v2" (and v1) over WebSocket: the server sends a challenge, the client answers with
its key and a signature, which are taken on trust here, and after the confirmation every binary message is one frame.
Its first byte is the kind: datagrams go to the client that the 32 bytes behind it name, and arrive with the sender's.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_GREETING = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_CHALLENGE, _CONFIRMED = 0, 2
_TO_RELAY, _FROM_RELAY = (4, 5), {4: 6, 5: 7}
_ARE_YOU_THERE, _I_AM = 9, 10
_KEY_BYTES = 32


class Relay:
    """`sent`: datagram frames that were passed on. `came`: the keys of all clients so far. `token`: what clients must
    have; none: they need nothing."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.url = ""
        self.sent = 0
        self.came: set[bytes] = set()
        self._clients: dict[bytes, asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a WebSocket of a client, or a plain request such as GET /ping."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            is_client = "sec-websocket-key" in headers
            if is_client and self.token and headers.get("authorization") != f"Bearer {self.token}":
                writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
            elif is_client:
                await self._serve_client(reader, writer, headers)
            else:
                status = "204 No Content" if "/generate_204" in head[0] else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the relay ends
        finally:
            with suppress(ConnectionError):
                writer.close()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]
    ) -> None:
        accept = hashlib.sha1((headers["sec-websocket-key"] + _GREETING).encode()).digest()
        protocol = headers.get("sec-websocket-protocol", "").split(",")[0].strip()
        answer = [
            *("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"),
            f"Sec-WebSocket-Accept: {base64.b64encode(accept).decode()}",
            *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
        ]
        writer.write(("\r\n".join(answer) + "\r\n\r\n").encode())
        _write(writer, bytes([_CHALLENGE]) + os.urandom(16))
        _, said = await _read(reader)
        key = said[1 : 1 + _KEY_BYTES]
        self._clients[key] = writer
        self.came.add(key)
        _write(writer, bytes([_CONFIRMED]))
        try:
            while True:
                kind, body = await _read(reader)
                if kind == _CLOSE:
                    return
                if kind == _PING:
                    _write(writer, body, _PONG)
                elif kind == _BINARY:
                    self._pass_on(key, body, writer)
                await writer.drain()
        finally:
            if self._clients.get(key) is writer:
                del self._clients[key]

    def _pass_on(self, key: bytes, frame: bytes, writer: asyncio.StreamWriter) -> None:
        kind, rest = frame[0], frame[1:]
        if kind in _TO_RELAY:
            to = self._clients.get(rest[:_KEY_BYTES])
            if to is not None:
                self.sent += 1
                _write(to, bytes([_FROM_RELAY[kind]]) + key + rest[_KEY_BYTES:])
        elif kind == _ARE_YOU_THERE:
            _write(writer, bytes([_I_AM]) + rest)


@contextmanager
def relay(token: str = "") -> Iterator[Relay]:
    """A relay in a thread of its own; its `url` is what endpoints are told."""
    made = Relay(token)
    loop = asyncio.new_event_loop()
    ready, over = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
            made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ready.set()
            await over.wait()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="relay", daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """(opcode, body) of one message; endpoints send each as one frame."""
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length >= 126:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    mask = await reader.readexactly(4) if second & 0x80 else bytes(4)
    body = await reader.readexactly(length)
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    return first & 0x0F, (int.from_bytes(body, "big") ^ key).to_bytes(length, "big")


def _write(writer: asyncio.StreamWriter, body: bytes, opcode: int = _BINARY) -> None:
    length = bytes([len(body)]) if len(body) < 126 else bytes([126]) + len(body).to_bytes(2, "big")
    with suppress(ConnectionError):
        writer.write(bytes([0x80 | opcode]) + length + body)


async def _serve_for_ever(address: str, port: int, token: str) -> None:
    made, over = Relay(token), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    server = await asyncio.start_server(made.serve, address, port)
    await over.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve_for_ever(sys.argv[1], int(sys.argv[2]), "".join(sys.argv[3:])))
