"""Frames over one QUIC stream pair, for tasks of an event loop and for plain threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.iroh_fix import IROH_ERRORS
from ppsmoke.transport.blocking import BlockingCalls
from ppsmoke.transport.framing import PIECE_BYTES, READ_BYTES, FrameCutter, FrameError, frame_pieces


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
            if not self._feed(data):
                return None

    async def write_frame(self, head: bytes, payload: bytes = b"") -> None:
        """Write one frame of `head` + `payload`; waits while the peer does not read."""
        try:
            for piece in frame_pieces(head, payload):
                await self._send.write_all(piece)
        except IROH_ERRORS as error:
            raise await self.explain(error) from None

    def read_frame_in(self, calls: BlockingCalls) -> bytes | None:
        """`read_frame` for a thread. Raises FrameError, CallsCancelled, and the library's own errors."""
        while True:
            frame = self.cutter.take()
            if frame is not None:
                return frame
            if not self._feed(calls.run(self._read_more())):
                return None

    def write_frame_in(self, calls: BlockingCalls, head: bytes, payload: bytes = b"") -> None:
        """`write_frame` for a thread. Raises CallsCancelled, and the library's own errors."""
        for piece in frame_pieces(head, payload):
            calls.run(self._send.write_all(piece))
        # The library's thread was just woken to send it: let it, before whatever else is to be done here.
        os.sched_yield()

    def _read_more(self) -> Coroutine[Any, Any, bytes]:
        missing = self.cutter.missing
        call: Coroutine[Any, Any, bytes] = (
            self._recv.read_exact(min(missing, PIECE_BYTES)) if missing > READ_BYTES else self._recv.read(READ_BYTES)
        )
        return call

    def _feed(self, data: bytes) -> bool:
        """False when the stream ended in order."""
        if data:
            self.cutter.feed(data)
        elif self.cutter.pending:
            raise FrameError("the stream ended in the middle of a frame")
        return bool(data)

    async def finish(self) -> None:
        """Say that nothing more will be written."""
        try:
            await self._send.finish()
        except IROH_ERRORS as error:
            raise await self.explain(error) from None

    async def wait_delivered(self, deadline_s: float) -> bool:
        """After `finish`: True once the peer's side has acknowledged every byte, False when it did not in time."""
        with suppress(TimeoutError, *IROH_ERRORS):
            return await asyncio.wait_for(self._send.stopped(), deadline_s) is None
        return False

    async def stop_reading(self, code: int = 1) -> None:
        """Tell the peer to write no more. Never raises. A read in progress must have ended before."""
        with suppress(TimeoutError, *IROH_ERRORS):
            await asyncio.wait_for(self._recv.stop(code), 1.0)

    async def abort(self, code: int = 1) -> None:
        """Reset both directions. Never raises. Reads and writes in progress must have been cancelled before."""
        with suppress(TimeoutError, *IROH_ERRORS):
            await asyncio.wait_for(self._send.reset(code), 1.0)
        await self.stop_reading(code)
