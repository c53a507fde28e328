"""The worker's ends of the wire: a reader thread on stdin, a private copy of stdout, and the step socket of a node."""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppsmoke.errors import PpError, RequestRejected
from ppsmoke.parent_death import signalled_at_the_parents_death
from ppsmoke.step_socket import StepSocket
from ppsmoke.worker_decoder import MessageDecoder
from ppsmoke.worker_protocol import Message, Op, encode_line, error_fields

_READ_BYTES = 1 << 20
_QUEUED_MESSAGES = 64


class EventWriter:
    """Owns the real stdout; whatever a library prints goes to stderr instead, so nothing can break the protocol."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Raises BrokenPipeError when nobody reads any more."""
        view = memoryview(data)
        with self._lock:
            while view:
                view = view[os.write(self._fd, view) :]

    def line(self, fields: Mapping[str, Any]) -> None:
        self.write(encode_line(fields))

    def error(self, error: PpError) -> None:
        self.line({"error": error_fields(error)})

    def fatal(self, error: PpError) -> None:
        self.line({"status": "fatal", **error_fields(error)})


class RequestReader(threading.Thread):
    """Reads stdin all the time, so that the end of a supervising node is noticed in the middle of a step.

    Supervised: end of input, and `shutdown`, take effect at once, also while the main thread computes or compiles. By
    hand (not supervised): they take effect after the requests before them, so that `printf ... | pp-worker` answers.

    The main thread reads `steps` itself: on its way a step is handed from no thread to another.
    """

    def __init__(
        self,
        decoder: MessageDecoder,
        *,
        supervised: bool,
        on_abrupt_shutdown: Callable[[], None],
        steps: StepSocket | None = None,
    ) -> None:
        super().__init__(name="stdin", daemon=True)
        self.decoder = decoder
        self.steps = steps
        self._supervised = supervised
        self._on_abrupt_shutdown = on_abrupt_shutdown
        self._queue: queue.Queue[Message | RequestRejected | None] = queue.Queue(_QUEUED_MESSAGES)
        # A byte for each item of the queue, for the main thread that waits for both.
        self._bell, self._rope = os.pipe() if steps is not None else (-1, -1)
        self._poll = select.poll()
        if steps is not None:
            self._poll.register(steps.fileno(), select.POLLIN)
            self._poll.register(self._bell, select.POLLIN)

    def next(self) -> Message | RequestRejected | tuple[memoryview, bytes] | None:
        """The next request: a message of stdin, the error to answer a malformed one with, or (head, payload) off the
        step socket; None at the end of input. Raises MalformedRequest when the step socket carried no frame."""
        while self.steps is not None:
            (fd, _), *both = self._poll.poll()
            if both or fd == self._bell:
                os.read(self._bell, 1)
                break
            try:
                frame = self.steps.receive_request()
            except OSError:
                frame = None
            if frame is not None:
                return frame
            self._poll.unregister(self.steps.fileno())  # the node's end has gone; stdin says what is to come
            self.steps.close()
            self.steps = None
        return self._queue.get()

    def run(self) -> None:
        while True:
            try:
                data = os.read(0, _READ_BYTES)
            except OSError:
                data = b""
            if not data:
                break
            for item in self.decoder.feed(data):
                if self._supervised and _is_shutdown(item):
                    self._on_abrupt_shutdown()
                    end_now(0)
                self._put(item)
        if self._supervised:
            end_now(0)
        self._put(None)

    def _put(self, item: Message | RequestRejected | None) -> None:
        self._queue.put(item)
        if self._rope >= 0:
            os.write(self._rope, b"!")


def open_step_socket(fd: int) -> StepSocket:
    """The node's step socket at an inherited descriptor, which no compiler inherits in turn."""
    os.set_inheritable(fd, False)
    return StepSocket(socket.socket(fileno=fd))


def end_now(status: int) -> None:
    """Ends this process and its compilers from any thread, without waiting for anything."""
    for pid in _descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    os._exit(status)


def die_with(parent: int) -> None:
    """Ends this process with its parent, even when the parent is killed and this one is deep in a computation."""
    signalled_at_the_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


def _is_shutdown(item: Message | RequestRejected) -> bool:
    return isinstance(item, Message) and item.fields.get("op") == Op.SHUTDOWN.value


def _descendants(pid: int) -> list[int]:
    # Linux only; elsewhere a compiler in flight ends by itself within a second.
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    except OSError:
        pass
    return found
