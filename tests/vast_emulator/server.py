"""The emulator as an HTTP server, in threads of this process or as the whole of a program."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.vast_emulator.answers import text_answer
from tests.vast_emulator.service import Reaction, Request, Service

_HELD_MOST_S = 60.0
_LOOK_S = 0.02


class Server(ThreadingHTTPServer):
    """One thread a connection; closing it lets go of the connections that a fault holds."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        service: Service,
        port: int = 0,
        latency_s: float = 0.0,
        *,
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`latency_s`: how much later each call is heard, in real seconds. `tls`: under https instead of http.

        Raises OSError for a port that cannot be had.
        """
        self.closing = threading.Event()  # first: a port that is in use has the server closed at once
        super().__init__((address, port), _Handler)
        self._tls = tls
        self.service = service
        self.latency_s = latency_s
        service.base_url = self.url

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self.server_address[0]}:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        if self._tls is not None:  # shaking hands is for the connection's own thread
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def server_close(self) -> None:
        self.closing.set()
        super().server_close()


@contextmanager
def serving(service: Service, port: int = 0, latency_s: float = 0.0) -> Iterator[Server]:
    """The service under an address of this machine, until the end of the block."""
    with running(Server(service, port, latency_s)) as server:
        yield server


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """The server answers, until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Head and body go out in two writes; without this the second may wait for the client's acknowledgement.
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):  # a client that has gone is its own affair
            super().handle()

    def _handle(self) -> None:
        address = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        scheme, _, key = (self.headers.get("Authorization") or "").partition(" ")
        request = Request(
            method=self.command,
            path=address.path,
            query=dict(parse_qsl(address.query)),
            key=key if scheme == "Bearer" else None,
            body=self.rfile.read(length),
        )
        self.server.closing.wait(self.server.latency_s)
        self._send(self._react(request))

    do_GET = do_PUT = do_POST = do_DELETE = _handle

    def _react(self, request: Request) -> Reaction:
        service = self.server.service
        try:
            return service.react(request)
        except Exception as error:  # a fault of the emulator itself, not one of those it plays
            service.broken.append(error)
            return Reaction(text_answer(f"the emulator is broken: {error!r}", 500))

    def _send(self, reaction: Reaction) -> None:
        answer = reaction.answer
        if answer is None:
            self.close_connection = True
            if not reaction.drop:
                self._hold()
            return
        with suppress(ConnectionError):
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

    def _hold(self) -> None:
        """Say nothing until the client has gone."""
        self.connection.settimeout(_LOOK_S)
        for _ in range(int(_HELD_MOST_S / _LOOK_S)):
            if self.server.closing.is_set():
                return
            try:
                if self.connection.recv(1, socket.MSG_PEEK) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the service keeps a record, and the program prints it."""
