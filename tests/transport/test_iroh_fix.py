from __future__ import annotations

import asyncio
import os
import types

from ppsmoke import iroh_fix
from ppsmoke.transport.framing import FrameCutter
from tests.transport.kit import PATIENCE_S, eventually, peer, run_clean


def test_backtraces_are_off() -> None:
    assert os.environ["RUST_BACKTRACE"] == "0"


def test_a_write_of_4_mib_arrives_intact() -> None:
    async def work() -> None:
        async with peer("a") as a, peer("b") as b:
            a.knows(b)
            streams = []
            b.mesh.on_stream = lambda _, stream: streams.append(stream)
            stream = await a.mesh.open_stream(b.id, max_frame=1024)
            data = os.urandom(4 << 20)
            writing = asyncio.create_task(stream._send.write_all(len(data).to_bytes(4, "big") + data))
            await eventually(lambda: bool(streams))
            streams[0].cutter = FrameCutter(len(data))
            assert await asyncio.wait_for(streams[0].read_frame(), PATIENCE_S) == data
            await writing
            await stream.finish()
            assert await asyncio.wait_for(streams[0].read_frame(), PATIENCE_S) is None

    run_clean(work())


def test_bytes_like_arguments_are_still_taken() -> None:
    key = bytes(range(32))
    wanted = str(iroh_fix.iroh.SecretKey.from_bytes(key).public())
    for value in (bytearray(key), memoryview(key)):
        assert str(iroh_fix.iroh.SecretKey.from_bytes(value).public()) == wanted


def test_the_fix_is_in_place_and_is_not_applied_twice() -> None:
    assert iroh_fix._glue._UniffiRustBufferBuilder.write is iroh_fix._write_by_memmove
    assert iroh_fix.apply() is False


def test_a_writer_that_no_longer_loops_is_left_alone() -> None:
    class Fixed:
        def write(self, value: bytes) -> None:
            self.buffer = bytes(value)

    def lower(value: bytes) -> bytes:
        return value

    converter = types.SimpleNamespace(lower=lower)
    glue = types.SimpleNamespace(_UniffiRustBufferBuilder=Fixed, _UniffiFfiConverterBytes=converter)
    before = Fixed.write
    assert iroh_fix.apply(glue) is False
    assert Fixed.write is before
    assert converter.lower is lower
    assert iroh_fix.apply(types.SimpleNamespace()) is False


def test_a_writer_that_loops_is_replaced() -> None:
    class Looping:
        def write(self, value: bytes) -> None:
            for i, byte in enumerate(value):
                self.data[i] = byte  # type: ignore[attr-defined]

    assert iroh_fix.apply(types.SimpleNamespace(_UniffiRustBufferBuilder=Looping)) is True
    assert Looping.write is iroh_fix._write_by_memmove
