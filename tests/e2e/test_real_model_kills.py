"""The default model, killed while it loads and compiles, in prefill and in decode; and a fetch that is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from tests.e2e.kit import NOTICED_S, Box, Program, wait_until

LONG_PROMPT = "word " * 1500


def start(box: Box, phase: str) -> Program:
    prompt = LONG_PROMPT if phase == "prefill" else "Write a long story."
    run = box.start(
        *("--seed", "-n", "3", "--debug", "--max-tokens", "400", "--prompt", prompt, "--context", "2048"),
    )
    match phase:
        case "load":
            run.wait_line("stage 1: loading and compiling")
        case "prefill":
            run.wait_line("WaitingReady -> Running", 300)
        case "decode":
            run.wait_output(300)
    return run


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.parametrize("phase", ["load", "prefill", "decode"])
@pytest.mark.parametrize("who", ["node", "worker", "orchestrator", "ctrl-c"])
def test_a_real_run_dies_clean(box: Box, who: str, phase: str) -> None:
    run = start(box, phase)
    match who:
        case "node":
            run.strike(run.node(1))
            done = run.end().failed(1, "stage 1's node was killed by SIGKILL")
        case "worker":
            run.strike(run.worker(1))
            done = run.end().failed(1, "stage 1's worker", "SIGKILL")
        case "orchestrator":
            run.signal(signal.SIGKILL)
            run.process.wait(NOTICED_S)
            box.wait_gone()
            done = run.end().expect(-9)
        case _:
            run.signal_group(signal.SIGINT)
            done = run.end().failed(130, "SIGINT")
    assert done.took_s < NOTICED_S


@pytest.mark.parametrize("who", ["worker", "orchestrator", "ctrl-c"])
def test_compilers_end_with_the_run(box: Box, who: str) -> None:
    """With nothing compiled before, so that a compiler runs in the very moment."""
    model = write_tiny_gguf(box.root / "tiny.gguf")
    run = box.start(
        *("--seed", "--model", str(model), "--device", "CPU", "--debug"),
        env={"PP_SMOKE_CACHE": str(box.root / "cache")},
    )

    def compiling() -> int | None:
        """The worker of a compiler that runs now."""
        for pid, command, _ in box.processes():
            if "-ffreestanding" in command:
                return psutil.Process(pid).ppid()
        return None

    worker = wait_until("a compiler", compiling)
    match who:
        case "worker":
            run.strike(worker)
            done = run.end().failed(1, "worker", "SIGKILL")
        case "orchestrator":
            run.signal(signal.SIGKILL)
            run.process.wait(NOTICED_S)
            box.wait_gone()
            done = run.end().expect(-9)
        case _:
            run.signal_group(signal.SIGINT)
            done = run.end().failed(130, "SIGINT")
    assert done.took_s < NOTICED_S


@contextmanager
def stalled_server(content: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Its address, and what is set once it has sent half of `content`; more never comes."""
    half_sent, over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            half_sent.set()
            over.wait(120)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/tiny.gguf", half_sent
        finally:
            over.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_model_is_fetched(box: Box, number: signal.Signals, status: int) -> None:
    """Nothing half stays in the cache, and nobody waits for the rest."""
    content = write_tiny_gguf(box.root / "tiny.gguf").read_bytes()
    cache = box.root / "cache"
    direct = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), "")
    with stalled_server(content) as (address, half_sent):
        run = box.start("--seed", "--model", address, env={"PP_SMOKE_CACHE": str(cache), **direct})
        assert half_sent.wait(60), run.lines
        run.signal(number)
        done = run.end()
    done.failed(status, number.name)
    assert done.took_s < NOTICED_S
    assert not list(cache.rglob("*.gguf"))
    assert not list(cache.rglob("*.partial*"))
