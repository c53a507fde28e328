"""The stream, or the streams side by side, of one edge over one connection.

A QUIC stream carries at most its window of 1.25 MB in a round trip. Where the round trip is long an edge has several,
its lanes: record number n of this connection goes on lane n mod their count, an object over STRIPE_BYTES as several
records. The consumer reads them in the same turn, so that the order restores itself and nothing but the transport's
windows has to hold what came early. On a single lane an object is one record, however big.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ppsmoke.edges import records
from ppsmoke.objects import is_object_head, object_bytes
from ppsmoke.transport.stream import FrameReader, FrameStream, FrameWriter

LANES = 4
LONG_ROUND_TRIP_S = 0.02
"""Below it a lane carries 60 MB/s and more: what this machinery could gain, it would cost."""
MOST_LANES = 8
STRIPE_BYTES = 128 << 10
_LOWER_PRIORITY = -1


def lanes_for(round_trip_s: float) -> int:
    """How many an edge of activations is worth."""
    return LANES if round_trip_s >= LONG_ROUND_TRIP_S else 1


def stripes(head: bytes, payload: bytes, size: int = STRIPE_BYTES) -> list[tuple[bytes, bytes]]:
    """One object as the records to send in turn, each as its two parts: whole when it has `size` bytes at most."""
    if len(head) + len(payload) <= size:
        return [(head, payload)]
    first = size - len(head)
    return [(head, payload[:first])] + [
        (b"", payload[start : start + size]) for start in range(first, len(payload), size)
    ]


class Joiner:
    """Makes objects of the records that `stripes` made, given in order. `most`: bytes an object may have at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._missing = 0

    def add(self, record: bytes) -> bytes | None:
        """The whole record that this one completes; None when more are missing. What is no object passes as it is."""
        if not self._missing:
            size = object_bytes(record) if is_object_head(record) else len(record)
            if size <= len(record) or size > self._most:
                return record  # whole; or wrong, which its reader finds
            self._pieces, self._missing = [record], size - len(record)
            return None
        self._pieces.append(record)
        self._missing -= len(record)
        if self._missing > 0 and record:
            return None
        self._missing = 0
        return b"".join(self._pieces)


class OutLanes:
    """The producer's side. One task or thread writes at a time."""

    def __init__(self, streams: Sequence[FrameStream]) -> None:
        self.streams = list(streams)
        self._next = 0
        self._writers: list[FrameWriter] = []
        self.prepare: Callable[[int], None] = self._prepare
        """Make ready for an object of so many bytes, if it is one that is quick to send."""
        self.write_in_thread: Callable[[bytes, bytes], None] = self._write_in_thread
        """As FrameWriter.write."""

    @property
    def first(self) -> FrameStream:
        """The one that answers come on."""
        return self.streams[0]

    async def write(self, head: bytes, payload: bytes = b"") -> None:
        """One object or record; waits while the peer does not read."""
        for piece in self._pieces(head, payload):
            await self.streams[self._turn()].write_frame(*piece)

    def hand_to_thread(self) -> None:
        """From now on a thread writes, by `prepare` and `write_in_thread`."""
        self._writers = [stream.thread_writer() for stream in self.streams]
        if len(self._writers) == 1:  # nothing of this is on a hop's way then
            self.prepare, self.write_in_thread = self._writers[0].prepare, self._writers[0].write

    def _prepare(self, size: int) -> None:
        if size <= STRIPE_BYTES:
            self._writers[self._next % len(self.streams)].prepare(size)

    def _write_in_thread(self, head: bytes, payload: bytes) -> None:
        for piece in stripes(head, payload):
            self._writers[self._turn()].write(*piece)

    def cancel(self) -> None:
        """Wake the thread that writes, for good."""
        for writer in self._writers:
            writer.cancel()

    async def yield_to_small_ones(self) -> None:
        """Let every other stream of the connection go before these."""
        for stream in self.streams:
            await stream.set_priority(_LOWER_PRIORITY)

    async def finish(self) -> None:
        for stream in self.streams:
            await stream.finish()

    async def abort(self) -> None:
        for stream in self.streams:
            await stream.abort()

    def _pieces(self, head: bytes, payload: bytes) -> list[tuple[bytes, bytes]]:
        return [(head, payload)] if len(self.streams) == 1 else stripes(head, payload)

    def _turn(self) -> int:
        self._next += 1
        return (self._next - 1) % len(self.streams)


class InLanes:
    """The consumer's side. One task or thread reads at a time. `most`: bytes an object may have, with its header."""

    def __init__(self, streams: Sequence[FrameStream], most: int) -> None:
        self.streams = list(streams)
        self._next = 0
        self._joiner = Joiner(most)
        self._readers: list[FrameReader] = []
        self.read_in_thread: Callable[[], bytes | None] = self._read_in_thread
        """As FrameReader.read."""
        for stream in self.streams:
            stream.cutter.max_frame = max(most, records.MAX_RECORD_BYTES)

    @property
    def first(self) -> FrameStream:
        """The one to answer on."""
        return self.streams[0]

    async def read(self) -> bytes | None:
        """The next object or record, None at the stream's orderly end. Raises as FrameStream.read_frame."""
        while True:
            frame = await self.streams[self._turn()].read_frame()
            if frame is None or len(self.streams) == 1:
                return frame
            if (whole := self._joiner.add(frame)) is not None:
                return whole

    def hand_to_thread(self) -> None:
        """From now on a thread reads, by `read_in_thread`, and acknowledges, by `acknowledge_in_thread`."""
        self._readers = [stream.thread_reader() for stream in self.streams]
        if len(self._readers) == 1:
            self.read_in_thread = self._readers[0].read
        self._answers = self.first.thread_writer()

    def _read_in_thread(self) -> bytes | None:
        while True:
            frame = self._readers[self._turn()].read()
            if frame is None:
                return None
            if (whole := self._joiner.add(frame)) is not None:
                return whole

    def answer_in_thread(self, record: bytes) -> None:
        """As FrameWriter.write."""
        self._answers.write(record, b"")

    def cancel(self) -> None:
        """Wake the thread that reads, for good."""
        for reader in self._readers:
            reader.cancel()

    async def stop_reading(self) -> None:
        for stream in self.streams:
            await stream.stop_reading()

    def _turn(self) -> int:
        self._next += 1
        return (self._next - 1) % len(self.streams)
