"""The reading side: a process that fetches files of the orchestrator's machine, call by blocking call."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from ppsmoke.errors import JoinRefused, ModelFetchFailed, PeerLost, PpError
from ppsmoke.files import protocol
from ppsmoke.files.protocol import Bytes, FileRecordMalformed, Files, List, OfferedFile, Read, Refused
from ppsmoke.iroh_fix import IROH_ERRORS, iroh_text
from ppsmoke.transport.endpoint import Endpoint, TicketInvalid, parse_ticket
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.stream import FrameStream

_T = TypeVar("_T")

_BROKEN: tuple[type[Exception], ...] = (PeerLost, FrameError, FileRecordMalformed, TimeoutError, *IROH_ERRORS)
_CONNECT_S = 15.0
_ANSWER_S = 180.0
PAUSES_S = (0.5, 2.0, 5.0)
"""How long to wait before each further try of a connection that broke."""


class FileReader:
    """A context manager with a key, an endpoint and an event loop of its own.

    `owner_ticket` is the orchestrator's address. `far`: it is on another machine. Every call raises ModelFetchFailed,
    after several tries, and JoinRefused where the owner does not accept the token.
    """

    def __init__(
        self,
        owner_ticket: str,
        *,
        run_id: str,
        join_token: bytes,
        relay_urls: Sequence[str] = (),
        relay_token: str = "",
        far: bool = False,
        pauses_s: Sequence[float] = PAUSES_S,
        connect_s: float = _CONNECT_S,
    ) -> None:
        try:
            self._owner_id, self._address = parse_ticket(owner_ticket)
        except TicketInvalid as error:
            raise ModelFetchFailed(f"the orchestrator's address is unusable: {error}") from None
        self._run_id = run_id
        self._join_token = join_token
        self._relay_urls = tuple(relay_urls)
        self._relay_token = relay_token
        self._far = far
        self._pauses_s = tuple(pauses_s)
        self._connect_s = connect_s
        self._runner = asyncio.Runner()
        self._endpoint: Endpoint | None = None
        self._connection: Any = None
        self._stream: FrameStream | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner as runner:
            runner.run(self._close())

    def files(self) -> tuple[OfferedFile, ...]:
        """What is offered, in order."""
        answer = self._retrying(lambda: self._ask(List()))
        if not isinstance(answer, Files):
            raise ModelFetchFailed("the orchestrator gave no list of its files")
        return answer.files

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly these bytes, in requests of at most MAX_READ_BYTES."""
        parts = []
        for start in range(offset, offset + length, protocol.MAX_READ_BYTES):
            size = min(protocol.MAX_READ_BYTES, offset + length - start)
            parts.append(self._retrying(lambda start=start, size=size: self._read(Read(name, start, size))))  # type: ignore[misc]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _retrying(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        for pause_s in (*self._pauses_s, None):
            try:
                return self._runner.run(call())
            except _BROKEN as error:
                self._runner.run(self._drop())
                if pause_s is None:
                    raise ModelFetchFailed(
                        f"fetching from the orchestrator over iroh failed: {_text(error)}",
                        remedy="check that the orchestrator's machine can be reached, directly or through the relay",
                    ) from error
                time.sleep(pause_s)
        raise AssertionError("unreachable")

    async def _read(self, wanted: Read) -> bytes:
        answer = await self._ask(wanted)
        if not isinstance(answer, Bytes) or answer.length != wanted.length:
            raise FileRecordMalformed(f"another answer than {wanted.length} bytes")
        assert self._stream is not None
        self._stream.cutter.max_frame = max(wanted.length, protocol.MAX_RECORD_BYTES)
        async with asyncio.timeout(_ANSWER_S):
            data = await self._stream.read_frame()
        self._stream.cutter.max_frame = protocol.MAX_RECORD_BYTES
        if data is None or len(data) != wanted.length:
            raise FileRecordMalformed(f"{len(data or b'')} bytes in place of {wanted.length}")
        return data

    async def _ask(self, record: protocol.Request) -> protocol.Answer:
        stream = await self._connected()
        async with asyncio.timeout(_ANSWER_S):
            await stream.write_frame(protocol.encode(record))
            frame = await stream.read_frame()
        if frame is None:
            raise PeerLost("the orchestrator ended the stream")
        answer = protocol.decode_answer(frame)
        if isinstance(answer, Refused):
            kind = JoinRefused if answer.code == protocol.NOT_PROVEN else ModelFetchFailed
            raise kind(f"the request to the orchestrator was refused: {answer.reason}")
        return answer

    async def _connected(self) -> FrameStream:
        if self._stream is not None:
            return self._stream
        if self._endpoint is None:
            self._endpoint = await Endpoint.bind(
                secrets.token_bytes(32),
                loopback_only=not self._far,
                relay_urls=self._relay_urls,
                relay_token=self._relay_token,
            )
        async with asyncio.timeout(self._connect_s):
            self._connection = await self._endpoint.connect(self._address, protocol.FILES_ALPN)
            bi = await self._connection.open_bi()
        stream = FrameStream(bi, max_frame=protocol.MAX_RECORD_BYTES, explain=_stream_lost)
        proof = protocol.proof_of(self._join_token, self._run_id, self._endpoint.node_id, self._owner_id)
        async with asyncio.timeout(self._connect_s):
            await stream.write_frame(protocol.encode(protocol.Hello(self._run_id, proof)))
        self._stream = stream
        return stream

    async def _drop(self) -> None:
        """So that the next call connects anew."""
        self._stream = None
        if self._connection is not None:
            with suppress(*IROH_ERRORS):
                self._connection.close(0, b"done")
            self._connection = None

    async def _close(self) -> None:
        await self._drop()
        if self._endpoint is not None:
            await self._endpoint.close(2.0)


def _text(error: BaseException) -> str:
    return iroh_text(error) if isinstance(error, IROH_ERRORS) else str(error) or type(error).__name__


async def _stream_lost(error: BaseException) -> PpError:
    return PeerLost(iroh_text(error))
