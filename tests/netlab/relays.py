"""Relays on a host of a lab, the real one and ours, alike: started, killed, started again."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.netlab.iroh_relay import relay_program
from tests.netlab.lab import Host

REAL, OURS = "iroh-relay", "python"
_PORT = 3340
_UP_S = 30.0
_OURS = Path(__file__).parents[1] / "transport/relay.py"


class RelayServer:
    """A relay with a fixed address; `start` after `kill` is its restart."""

    def __init__(self, host: Host, kind: str, folder: Path, token: str = "") -> None:
        """`token`: what it asks of its clients. Raises NotBuilt where the real one is not to be had."""
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://{host.public_address}:{_PORT}"
        if kind == OURS:
            self._command = [sys.executable, "-P", str(_OURS), host.address, str(_PORT), token]
            return
        settings = folder / "iroh-relay.toml"
        settings.write_text(
            f'enable_relay = true\nhttp_bind_addr = "{host.address}:{_PORT}"\n'
            "enable_quic_addr_discovery = false\nenable_metrics = false\n"
            + (f'access.shared_token = ["{token}"]\n' if token else "")
        )
        self._command = [str(relay_program()), "--dev", "--config-path", str(settings)]

    def start(self) -> None:
        """Return when it answers."""
        self._process = self._host.popen(
            self._command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        ends = time.monotonic() + _UP_S
        while not self._answers():
            assert self._process.poll() is None, f"the relay ended with status {self._process.returncode}"
            assert time.monotonic() < ends, f"the relay did not answer within {_UP_S:g} s"
            time.sleep(0.02)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _answers(self) -> bool:
        with self._host.inside(), socket.socket() as asking:
            asking.settimeout(_UP_S)
            try:
                asking.connect((self._host.address, _PORT))
                asking.sendall(b"GET /ping HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")
                return asking.recv(64).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

    def kill(self) -> None:
        """At once, with every connection."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def relay_on(host: Host, kind: str, token: str = "") -> Iterator[RelayServer]:
    """A relay that is up. Raises NotBuilt."""
    with TemporaryDirectory(prefix="pp-relay-") as folder:
        server = RelayServer(host, kind, Path(folder), token)
        server.start()
        try:
            yield server
        finally:
            server.kill()
