"""A peer that speaks iroh but need not speak our protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ppsmoke.transport import hello
from ppsmoke.transport.endpoint import Endpoint, parse_ticket
from ppsmoke.transport.framing import frame_pieces
from ppsmoke.transport.hello import Hello
from tests.transport.kit import RUN_ID, TOKEN, VERSION, Peer, key_of


class RawPeer:
    def __init__(self, endpoint: Endpoint, connection: Any) -> None:
        self.endpoint = endpoint
        self.connection = connection

    async def say(self, *data: bytes) -> Any:
        """Open a stream, write raw bytes, return the stream pair."""
        bi = await self.connection.open_bi()
        for piece in data:
            await bi.send().write_all(piece)
        return bi

    def hello(self, peer: Peer) -> Hello:
        """A hello that is in order."""
        return Hello(
            run_id=RUN_ID,
            protocol=hello.PROTOCOL_VERSION,
            tool_version=VERSION,
            proof=hello.make_proof(TOKEN, RUN_ID, self.endpoint.node_id, peer.id),
            ticket=self.endpoint.ticket(),
            life="raw",
            stamp=1,
        )

    async def greet(self, peer: Peer) -> Any:
        """A proper hello; returns the control stream after the welcome."""
        bi = await self.say(frame(hello.encode(self.hello(peer))))
        size = int.from_bytes(await bi.recv().read_exact(4), "big")
        assert isinstance(hello.decode_answer(await bi.recv().read_exact(size)), hello.Welcome)
        return bi


def frame(data: bytes) -> bytes:
    return b"".join(frame_pieces(data))


@asynccontextmanager
async def raw_peer(target: Peer, name: str = "stranger") -> AsyncIterator[RawPeer]:
    endpoint = await Endpoint.bind(key_of(name), loopback_only=True)
    try:
        _, address = parse_ticket(target.mesh.endpoint.ticket())
        yield RawPeer(endpoint, await endpoint.connect(address))
    finally:
        await endpoint.close()
