"""Frames over one QUIC stream pair, for tasks of an event loop and for plain threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.transport.blocking import BlockingReceiver, BlockingSender
from ppsmoke.transport.framing import PIECE_BYTES, PREFIX_BYTES, READ_BYTES, FrameCutter, feed, frame_pieces
from ppsmoke.waiting import wait_for


class FrameStream:
    """One bidirectional stream carrying frames both ways.

    One task or thread reads and one writes; neither may be cancelled in the middle and then go on, because a cancelled
    read or write may have moved half a frame: after that only `abort` is allowed.
    `explain` turns a library error into the error to raise (it knows the peer and why its link ended).
    """

    def __init__(self, bi: Any, *, max_frame: int, explain: Callable[[BaseException], Awaitable[PpError]]) -> None:
        self._send = bi.send()
        self._recv = bi.recv()
        self.explain = explain
        self.cutter = FrameCutter(max_frame)

    async def read_frame(self) -> bytes | None:
        """The next frame, None at the stream's orderly end.

        Raises FrameError for a length over the limit or an end inside a frame, and what `explain` gives for the rest.
        """
        while True:
            frame = self.cutter.take()
            if frame is not None:
                return frame
            try:
                data = await self._read_more()
            except IROH_ERRORS as error:
                raise await self.explain(error) from None
            if not feed(self.cutter, data):
                return None

    async def write_frame(self, head: bytes, payload: bytes = b"") -> None:
        """Write one frame of `head` + `payload`; waits while the peer does not read."""
        try:
            for piece in frame_pieces(head, payload):
                await self._send.write_all(piece)
        except IROH_ERRORS as error:
            raise await self.explain(error) from None

    def _read_more(self) -> Coroutine[Any, Any, bytes]:
        missing = self.cutter.missing
        call: Coroutine[Any, Any, bytes] = (
            self._recv.read_exact(min(missing, PIECE_BYTES)) if missing > READ_BYTES else self._recv.read(READ_BYTES)
        )
        return call

    def thread_reader(self) -> FrameReader:
        """From now on a thread reads, and no task any more."""
        return FrameReader(BlockingReceiver(self._recv), self.cutter)

    def thread_writer(self) -> FrameWriter:
        """From now on a thread writes, and no task while it does."""
        return FrameWriter(BlockingSender(self._send))

    async def set_priority(self, priority: int) -> None:
        """Streams of one connection with a higher one (0 by default) go first. Never raises."""
        with suppress(*IROH_ERRORS):
            await self._send.set_priority(priority)

    async def finish(self) -> None:
        """Say that nothing more will be written."""
        try:
            await self._send.finish()
        except IROH_ERRORS as error:
            raise await self.explain(error) from None

    async def wait_delivered(self, deadline_s: float) -> bool:
        """After `finish`: True once the peer's side has acknowledged every byte, False when it did not in time."""
        with suppress(TimeoutError, *IROH_ERRORS):
            return await wait_for(self._send.stopped(), deadline_s) is None
        return False

    async def stop_reading(self, code: int = 1) -> None:
        """Tell the peer to write no more. Never raises. A read in progress must have ended before."""
        with suppress(TimeoutError, *IROH_ERRORS):
            await wait_for(self._recv.stop(code), 1.0)

    async def abort(self, code: int = 1) -> None:
        """Reset both directions. Never raises. Reads and writes in progress must have been cancelled before."""
        with suppress(TimeoutError, *IROH_ERRORS):
            await wait_for(self._send.reset(code), 1.0)
        await self.stop_reading(code)


class FrameReader:
    """Frames for the one thread that reads a stream; `cancel` may come from any other."""

    def __init__(self, receiver: BlockingReceiver, cutter: FrameCutter) -> None:
        self._receiver = receiver
        self._cutter = cutter
        self.cancel = receiver.cancel

    def read(self) -> bytes | None:
        """The next frame, None at the stream's orderly end. Raises FrameError, CallsCancelled, the library's errors."""
        while True:
            frame = self._cutter.take()
            if frame is not None:
                return frame
            if not self._cutter.pending:
                data = self._receiver.read(READ_BYTES)
                # Mostly what has come is one frame and nothing else.
                size = len(data) - PREFIX_BYTES
                if 0 <= size <= self._cutter.max_frame and size == int.from_bytes(data[:PREFIX_BYTES], "big"):
                    return data[PREFIX_BYTES:]
                if not feed(self._cutter, data):
                    return None
                continue
            missing = self._cutter.missing
            if missing > READ_BYTES:
                data = self._receiver.read_exact(min(missing, PIECE_BYTES))
            else:
                data = self._receiver.read(READ_BYTES)
            if not feed(self._cutter, data):
                return None


class FrameWriter:
    """Frames from the one thread that writes a stream; `cancel` may come from any other."""

    def __init__(self, sender: BlockingSender) -> None:
        self._sender = sender
        self.cancel = sender.cancel

    def prepare(self, size: int) -> None:
        """Make ready for a frame of `size` bytes, if it is one that is quick to send."""
        if size + PREFIX_BYTES <= PIECE_BYTES:
            self._sender.prepare(size + PREFIX_BYTES)

    def write(self, head: bytes, payload: bytes) -> None:
        """One frame; waits while the peer does not read. Raises CallsCancelled, and the library's errors."""
        size = len(head) + len(payload)
        if size + PREFIX_BYTES <= PIECE_BYTES:
            self._sender.write(size.to_bytes(PREFIX_BYTES, "big"), head, payload)
            return
        for piece in frame_pieces(head, payload):
            self._sender.write(piece)
