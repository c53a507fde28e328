"""A real HTTP server on loopback whose behaviour a test scripts, and a recorder of progress."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ppsmoke.models import ensure_model, list_models, parse_model


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    server: FileServer

    @property
    def range(self) -> tuple[int, int | None] | None:
        value = self.headers.get("range", "")
        if not value.startswith("bytes="):
            return None
        first, _, last = value.removeprefix("bytes=").partition("-")
        return int(first), int(last) if last else None


@dataclass
class Reply:
    """`cut`: how many bytes of the body really come before the connection is closed."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    length: int | None = -1  # -1: that of the body; None: no Content-Length at all


Answer = Callable[[Request], Reply]


class FileServer:
    """Serves what `answers` has for a path; everything asked is in `requests`."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]


def file_answer(data: bytes, *, ranges: bool = True, etag: str = '"one"', **headers: str) -> Answer:
    """A well-behaved file server."""

    def answer(request: Request) -> Reply:
        common = {"ETag": etag, "Content-Type": "application/octet-stream", **headers}
        wanted = request.range if ranges else None
        if wanted is None or request.headers.get("if-range", etag) != etag:
            return Reply(200, data, common)
        first, last = wanted[0], min(len(data) - 1, wanted[1] if wanted[1] is not None else len(data) - 1)
        return Reply(206, data[first : last + 1], {**common, "Content-Range": f"bytes {first}-{last}/{len(data)}"})

    return answer


def then(*answers: Answer) -> Answer:
    """The first answer to the first request, and so on; the last one for ever."""
    left = list(answers)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)


def always(reply: Reply) -> Answer:
    return lambda request: reply


@contextlib.contextmanager
def file_server() -> Iterator[FileServer]:
    files = FileServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            request = Request(self.path, {key.lower(): value for key, value in self.headers.items()}, files)
            files.requests.append(request)
            answer = files.answers.get(urlsplit(self.path).path, always(Reply(404)))
            reply = answer(request)
            self.send_response(reply.status)
            length = len(reply.body) if reply.length == -1 else reply.length
            for key, value in {**reply.headers, "Connection": "close"}.items():
                self.send_header(key, value)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            # A client that saw enough closes its end.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(reply.body[: reply.cut])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        files.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield files
        finally:
            server.shutdown()
            thread.join()


class Recorder:
    """A Progress that remembers, and may do something at the first update of a label."""

    def __init__(self, on_update: Callable[[str, int], None] = lambda label, done: None) -> None:
        self.updates: list[tuple[str, int, int | None]] = []
        self.notes: list[str] = []
        self._on_update = on_update

    def update(self, label: str, done: int, total: int | None) -> None:
        self.updates.append((label, done, total))
        self._on_update(label, done)

    def note(self, message: str) -> None:
        self.notes.append(message)


ENV: dict[str, str] = {"HOME": "/nonexistent"}


def fetch(server: FileServer, cache: Path, path: str = "/m/tiny.gguf", **options: Any) -> Path:
    options.setdefault("env", ENV)
    return ensure_model(parse_model(server.url + path), cache_dir=cache, **options)


def left_over(cache: Path) -> list[str]:
    """Every file of the cache except locks and whole models."""
    return sorted(
        str(path.relative_to(cache))
        for path in cache.rglob("*")
        if path.is_file() and ".locks" not in path.parts and (path.suffix != ".gguf" or not list_models(cache))
    )
