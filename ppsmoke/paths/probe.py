"""A way between two members, measured over the connection that its edge uses, on a short-lived stream of its own.

The prober sends a few small records that come back, then as many bytes as one part of a prompt has, which the answerer
counts and confirms. Records are JSON; what is counted is nothing but bytes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ppsmoke.errors import PeerLost
from ppsmoke.paths.watch import PathKind
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.mesh import Mesh
from ppsmoke.transport.path import path_of
from ppsmoke.transport.stream import FrameStream

MAX_PROBE_BYTES = 8 << 20
MEASURE_S = 15.0
"""What a measurement may take, linking included."""
_PIECE_BYTES = 1 << 16
_ECHOES = 3
_MARK = b'{"probe":'
_ECHO = b'{"probe":"echo"}'
_ANSWER_S = 15.0
_SETTLE_S = 2.0
_SETTLE_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Measured:
    """`round_trip_s`: the best of some; `bytes_per_s`: of `probe_bytes` from here to there as they would travel in a
    run, None where none were sent."""

    path: PathKind
    round_trip_s: float
    bytes_per_s: float | None
    probe_bytes: int


def is_probe(frame: bytes) -> bool:
    """Whether a stream that begins with this frame is one to answer here."""
    return frame.startswith(_MARK)


async def measure(
    mesh: Mesh, peer: str, probe_bytes: int, deadline_s: float, *, clock: Callable[[], float] = time.monotonic
) -> Measured:
    """The way from here to `peer`, linking first; a relayed one gets a moment to become direct.

    `probe_bytes`: 0 sends no bulk. Raises what `Mesh.link` does, DeadlineExceeded, and PeerLost for an answer that is
    none.
    """
    ends = clock() + deadline_s
    await mesh.link(peer, deadline_s=deadline_s)
    if not mesh.endpoint.loopback_only:
        await _settled(mesh, peer)
    kind = _kind(mesh, peer)
    async with _probing(mesh, peer, deadline_s, max(0.1, ends - clock())) as stream:
        round_trip_s = min([await _echo(mesh, peer, stream, clock) for _ in range(_ECHOES)])
        bytes_per_s = None
        if probe_bytes:
            took_s = await _bulk(mesh, peer, stream, probe_bytes, clock)
            # The way of the confirmation is none of the bytes' time, but that is not known better than this.
            bytes_per_s = probe_bytes / max(took_s - round_trip_s / 2, took_s / 2, 1e-6)
    # A connection may have no path in use for a moment, then the one before counts: on loopback none is a relay's.
    kind = _kind(mesh, peer) or kind or ("direct" if mesh.endpoint.loopback_only else "relay")
    return Measured(kind, round_trip_s, bytes_per_s, probe_bytes)


async def send_bulk(
    mesh: Mesh, peer: str, size: int, deadline_s: float, *, clock: Callable[[], float] = time.monotonic
) -> float:
    """Seconds until `peer` has confirmed `size` bytes, on whatever way the link goes. Raises as `measure`."""
    async with _probing(mesh, peer, deadline_s, deadline_s) as stream:
        return await _bulk(mesh, peer, stream, size, clock)


@asynccontextmanager
async def _probing(mesh: Mesh, peer: str, deadline_s: float, left_s: float) -> AsyncIterator[FrameStream]:
    """A stream to probe with, finished or aborted at the end. `left_s` of the deadline are left."""
    stream = await mesh.open_stream(peer, max_frame=_PIECE_BYTES, deadline_s=left_s)
    done = False
    try:
        async with asyncio.timeout(left_s):
            yield stream
            await stream.finish()
            done = True
    except TimeoutError:
        name = mesh.name_of(peer)
        raise PeerLost(f"{name} did not answer a probe within {deadline_s:g} s", peer=name, phase="probe") from None
    except FrameError as error:
        raise _nonsense(mesh, peer, str(error)) from None
    finally:
        if not done:
            await stream.abort()


async def answer(stream: FrameStream, first: bytes) -> None:
    """Serve a prober until it has finished. Raises what a stream's reading does, FrameError, TimeoutError."""
    stream.cutter.max_frame = _PIECE_BYTES
    frame: bytes | None = first
    async with asyncio.timeout(_ANSWER_S):
        while frame is not None:
            if frame != _ECHO:
                await _count(stream, _bulk_size(frame))
            await stream.write_frame(frame)
            frame = await stream.read_frame()
        await stream.finish()


async def _count(stream: FrameStream, size: int) -> None:
    while size > 0:
        piece = await stream.read_frame()
        if piece is None:
            raise FrameError("a probe ended early")
        size -= len(piece)


def _bulk_size(frame: bytes) -> int:
    try:
        body = json.loads(frame)
    except (ValueError, RecursionError):
        body = None
    match body:
        case {"probe": "bulk", "bytes": int(size)} if 0 < size <= MAX_PROBE_BYTES:
            return size
    raise FrameError("not a probe")


async def _echo(mesh: Mesh, peer: str, stream: FrameStream, clock: Callable[[], float]) -> float:
    began = clock()
    await stream.write_frame(_ECHO)
    if await stream.read_frame() != _ECHO:
        raise _nonsense(mesh, peer, "another record came back")
    return clock() - began


async def _bulk(mesh: Mesh, peer: str, stream: FrameStream, size: int, clock: Callable[[], float]) -> float:
    """Seconds until the confirmation is here."""
    head = json.dumps({"probe": "bulk", "bytes": size}, separators=(",", ":")).encode()
    piece = bytes(_PIECE_BYTES)
    began = clock()
    await stream.write_frame(head)
    for start in range(0, size, _PIECE_BYTES):
        await stream.write_frame(piece[: size - start])
    if await stream.read_frame() != head:
        raise _nonsense(mesh, peer, "what was sent was not confirmed")
    return clock() - began


async def _settled(mesh: Mesh, peer: str) -> None:
    for _ in range(round(_SETTLE_S / _SETTLE_POLL_S)):
        if _kind(mesh, peer) == "direct":
            return
        await asyncio.sleep(_SETTLE_POLL_S)


def _kind(mesh: Mesh, peer: str) -> PathKind | None:
    connection = mesh.connection_of(peer)
    path = path_of(connection) if connection is not None else None
    return None if path is None else "relay" if path.relay else "direct"


def _nonsense(mesh: Mesh, peer: str, what: str) -> PeerLost:
    name = mesh.name_of(peer)
    return PeerLost(f"{name} answered a probe with nonsense: {what}", peer=name, phase="probe")
