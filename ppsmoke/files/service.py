"""The orchestrator's side: answers who proves the run's token, with the files of one list and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ppsmoke.errors import ModelNotFound, PeerLost, PpError
from ppsmoke.files import protocol
from ppsmoke.files.protocol import (
    NOT_GIVEN,
    NOT_PROVEN,
    Bytes,
    FileRecordMalformed,
    Files,
    Hello,
    List,
    OfferedFile,
    Read,
    Refused,
)
from ppsmoke.iroh_fix import IROH_ERRORS, iroh_text
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.stream import FrameStream
from ppsmoke.waiting import wait_for

log = logging.getLogger(__name__)

_LOST: tuple[type[Exception], ...] = (PpError, *IROH_ERRORS)
_HELLO_S = 10.0
_IDLE_S = 120.0
_WRITE_S = 120.0
_HEAD_BYTES = 1 << 20
_MAX_READERS = 64


@dataclass(slots=True)
class _Open:
    offered: OfferedFile
    file: BinaryIO
    stamp: tuple[int, int]
    readers: int = 0
    withdrawn: bool = False


class FileService:
    """Holds the files open from the beginning, so that a file that is replaced meanwhile is served as it was.

    `bytes_sent` counts payload. Raises ModelNotFound for a file that cannot be read.
    """

    def __init__(self, files: Mapping[str, Path], *, run_id: str, join_token: bytes, own_id: str) -> None:
        self.bytes_sent = 0
        self._run_id = run_id
        self._join_token = join_token
        self._own_id = own_id
        self._readers = 0
        self._files: dict[str, _Open] = {}
        try:
            for name, path in files.items():
                self.offer(name, path)
        except ModelNotFound:
            self.close()
            raise

    def offer(self, name: str, path: Path) -> None:
        """Offer one file more. Raises ModelNotFound."""
        try:
            self._files[name] = _open(name, path)
        except OSError as error:
            raise ModelNotFound(f"the file {error.filename} cannot be read: {error.strerror}") from error

    def withdraw(self, name: str) -> None:
        """Offer that file no more, and close it as soon as nobody reads from it."""
        opened = self._files.pop(name, None)
        if opened is not None:
            opened.withdrawn = True
            _close_unread(opened)

    def close(self) -> None:
        """Close the files. Safe to call twice."""
        while self._files:
            _, opened = self._files.popitem()
            opened.file.close()

    async def serve(self, connection: Any) -> None:
        """Answer one reader until it goes; never raises. To be run as a task for each connection of FILES_ALPN."""
        reader = str(connection.remote_id())
        if self._readers >= _MAX_READERS:
            connection.close(1, b"too many readers")
            return
        self._readers += 1
        try:
            await self._serve(connection, reader)
        except TimeoutError:
            log.warning("node %s did not go on reading files within %g s", reader[:8], _IDLE_S)
        except (FileRecordMalformed, FrameError) as error:
            log.warning("node %s sent no request for files: %s", reader[:8], error)
        except _LOST as error:
            log.debug("node %s stopped reading files: %s", reader[:8], error)
        finally:
            self._readers -= 1
            connection.close(0, b"done")

    async def _serve(self, connection: Any, reader: str) -> None:
        async with asyncio.timeout(_HELLO_S):
            stream = FrameStream(
                await connection.accept_bi(), max_frame=protocol.MAX_RECORD_BYTES, explain=_stream_lost
            )
            hello = protocol.decode_request(await stream.read_frame() or b"")
        proven = isinstance(hello, Hello) and protocol.is_proven(
            hello, join_token=self._join_token, run_id=self._run_id, reader_id=reader, owner_id=self._own_id
        )
        if not proven:
            log.warning("node %s asked for files without the run's token", reader[:8])
            await self._answer(stream, Refused(NOT_PROVEN, "the proof of the run's join token is wrong"))
            await stream.finish()
            await stream.wait_delivered(1.0)
            return
        while (frame := await wait_for(stream.read_frame(), _IDLE_S)) is not None:
            match protocol.decode_request(frame):
                case List():
                    offered = tuple(opened.offered for opened in self._files.values())
                    await self._answer(stream, Files(offered))
                case Read() as wanted:
                    await self._read(stream, wanted)
                case Hello():
                    raise FileRecordMalformed("a second hello")

    async def _read(self, stream: FrameStream, wanted: Read) -> None:
        opened = self._files.get(wanted.name)
        if opened is None:
            await self._answer(stream, Refused(NOT_GIVEN, f"there is no file {wanted.name[:200]!r}"))
            return
        inside = wanted.offset >= 0 and 0 < wanted.length <= protocol.MAX_READ_BYTES
        if not inside or wanted.offset + wanted.length > opened.offered.size:
            await self._answer(
                stream, Refused(NOT_GIVEN, f"bytes {wanted.offset}+{wanted.length} are not in {wanted.name}")
            )
            return
        opened.readers += 1
        try:
            data = await asyncio.to_thread(os.pread, opened.file.fileno(), wanted.length, wanted.offset)
            as_it_was = _stamp(opened.file) == opened.stamp
        finally:
            opened.readers -= 1
            _close_unread(opened)
        if not as_it_was or len(data) != wanted.length:
            await self._answer(stream, Refused(NOT_GIVEN, f"{wanted.name} was changed during the run"))
            return
        await self._answer(stream, Bytes(len(data)))
        await wait_for(stream.write_frame(b"", data), _WRITE_S)
        self.bytes_sent += len(data)

    async def _answer(self, stream: FrameStream, record: protocol.Answer) -> None:
        await wait_for(stream.write_frame(protocol.encode(record)), _WRITE_S)


def _open(name: str, path: Path) -> _Open:
    file = path.open("rb")
    head = hashlib.sha256(os.pread(file.fileno(), _HEAD_BYTES, 0)).hexdigest()[:16]
    stamp = _stamp(file)
    size, changed_ns = stamp
    return _Open(OfferedFile(name, size, f"{size}-{changed_ns}-{head}"), file, stamp)


def _close_unread(opened: _Open) -> None:
    if opened.withdrawn and not opened.readers:
        opened.file.close()


def _stamp(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


async def _stream_lost(error: BaseException) -> PpError:
    return PeerLost(iroh_text(error))
