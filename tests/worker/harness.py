"""A worker driven over its pipes, as a hand or a node would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self

from ppsmoke.worker_decoder import MessageDecoder
from ppsmoke.worker_protocol import Form, Message, Step, encode_step

DEADLINE_S = 90.0


@dataclass
class PipedWorker:
    """`messages` come from stdout in order; None is its end."""

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    supervised: bool = False

    def __enter__(self) -> Self:
        parent = {"PP_WORKER_PARENT": str(os.getpid())} if self.supervised else {}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ppsmoke_worker", *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **parent, **self.env},
        )
        self.messages: Queue[Message | None] = Queue()
        self.log: list[str] = []
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_log)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def next(self) -> Message:
        try:
            message = self.messages.get(timeout=DEADLINE_S)
        except Empty:
            raise AssertionError(f"no reply within {DEADLINE_S} s; log: {self.log[-5:]}") from None
        assert message is not None, f"the worker ended; log: {self.log[-5:]}"
        return message

    def ready(self) -> dict[str, Any]:
        fields = self.next().fields
        assert fields["status"] == "ready", fields
        return fields

    def ask(self, **fields: Any) -> dict[str, Any]:
        self.send(json.dumps(fields).encode() + b"\n")
        return self.next().fields

    def step(self, step: Step, form: Form) -> Message:
        self.send(encode_step(step, form))
        return self.next()

    def error_code(self, data: bytes) -> str:
        self.send(data)
        return str(self.next().fields["error"]["code"])

    def _read(self) -> None:
        assert self.process.stdout is not None
        decoder = MessageDecoder(1 << 26)
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            for item in decoder.feed(data):
                assert isinstance(item, Message), f"stdout carried something else: {item}"
                self.messages.put(item)
        self.messages.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(line.decode(errors="replace") for line in self.process.stderr)
