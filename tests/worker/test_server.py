"""The worker's server, without a process around it."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace

import pytest
from ppsmoke_worker.engines import stub_engines
from ppsmoke_worker.server import Server
from ppsmoke_worker.stub import StubEngine

from ppsmoke.objects import StreamObject, encode_header, token_payload
from ppsmoke.step_frames import ERROR, REPLY, decode_error, decode_reply_head, request_prefix
from ppsmoke.step_socket import StepSocket
from ppsmoke.worker_protocol import Op
from tests.worker.steps import REQUEST


def test_a_system_error_in_a_step_is_the_steps_and_the_worker_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the disk fails from which an embedding is read."""

    def fails(_engine: StubEngine, _tokens: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(StubEngine, "embed", fails)
    payload = token_payload([7])
    step = StreamObject(edge_id=0, request_id=REQUEST, sequence=0, position=0, seq_len=1, payload=payload)
    frame = (memoryview(request_prefix(Op.EMBED_AND_FORWARD) + encode_header(step)), payload)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        requests = iter([frame, frame, None])
        reader = SimpleNamespace(steps=StepSocket(theirs), decoder=SimpleNamespace(), next=lambda: next(requests))
        writer = SimpleNamespace(line=lambda _fields: None)
        server = Server(reader, writer, stub_engines(0), stage=0, num_stages=2, device=None)
        server.start("stub:layers=4", 64)
        assert server.serve() == 0
        for _ in range(2):
            kind, size, _, _ = decode_reply_head(ours.recv(REPLY.size))
            assert kind == ERROR
            assert "OSError in the worker: [Errno 5]" in decode_error(ours.recv(size))["message"]
