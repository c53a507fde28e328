"""The pipes of a worker process: replies in the order of their requests, log lines, its last words."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ppsmoke.errors import PpError, RequestRejected, WorkerFailed, error_class
from ppsmoke.logs import without_tracebacks
from ppsmoke.worker_decoder import MessageDecoder
from ppsmoke.worker_protocol import Form, Message

_LOG_TAIL_LINES = 20
_LOG_LINE_BYTES = 4096
_REPLY_LINE_BYTES = 64 * 1024 * 1024


class WorkerPipe(asyncio.SubprocessProtocol):
    """The process's three pipes: replies resolve futures in the order of their requests, stderr becomes log lines."""

    def __init__(
        self, stage: int, on_log: Callable[[str], None], on_progress: Callable[[Mapping[str, Any]], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()  # stdout and stderr have both ended
        self.closed: asyncio.Future[None] = loop.create_future()
        self.log: deque[str] = deque(maxlen=_LOG_TAIL_LINES)
        self._stage = stage
        self._on_log = on_log
        self._on_progress = on_progress
        self._decoder = MessageDecoder(_REPLY_LINE_BYTES)
        self._pending: deque[asyncio.Future[Message]] = deque()
        self._open = {1, 2}
        self._line = b""
        self.fatal: PpError | None = None
        self._failure: PpError | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def ask(self, data: bytes) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
            return future
        self._pending.append(future)
        self.send(data)
        return future

    def send(self, data: bytes) -> None:
        stdin = None if self._transport is None else self._transport.get_pipe_transport(0)
        if isinstance(stdin, asyncio.WriteTransport) and not stdin.is_closing():
            stdin.write(data)

    def fail_all(self, error: PpError) -> None:
        self._failure = error
        if not self.ready.done():
            self.ready.set_exception(error)
        self.ready.exception()  # seen: nobody may be waiting
        while self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_exception(error)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._take_log(data)
            return
        for item in self._decoder.feed(data):
            self._take_reply(item)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if fd == 2 and self._line:
            self._take_log(b"\n")
        if not self._open and not self.drained.done():
            self.drained.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def _take_reply(self, item: Message | RequestRejected) -> None:
        if isinstance(item, RequestRejected):
            self._on_log(f"worker: unreadable reply: {item.what}")
            item = Message(
                {"error": {"code": WorkerFailed.code, "message": f"unreadable reply: {item.what}"}},
                None,
                Form.JSON,
            )
        status = item.fields.get("status")
        if status == "progress":
            self._on_progress(item.fields)
        elif status == "ready" and not self.ready.done():
            self.ready.set_result(item.fields)
        elif status == "fatal":
            tail = without_tracebacks(self.log)
            error = error_from(item.fields, stage=self._stage, phase="starting the worker", log_tail=tail)
            self.fatal = error
            if not self.ready.done():
                self.ready.set_exception(error)
                self.ready.exception()
        elif self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_result(item)

    def _take_log(self, data: bytes) -> None:
        *lines, rest = (self._line + data).split(b"\n")
        if len(rest) > _LOG_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._line = rest
        for raw in lines:
            line = raw[:_LOG_LINE_BYTES].decode(errors="replace").rstrip()
            if line:
                self.log.append(line)
                self._on_log(line)


def error_from(
    fields: Mapping[str, Any],
    *,
    stage: int | None = None,
    phase: str | None = None,
    log_tail: Sequence[str] = (),
) -> PpError:
    """The error that a `{code, message, remedy}` object stands for; WorkerFailed for a code unknown here."""
    code, message, remedy = fields.get("code"), str(fields.get("message", "")), fields.get("remedy")
    kind = error_class(str(code)) or WorkerFailed
    return kind(message, remedy=remedy, stage=stage, phase=phase, log_tail=log_tail)
