"""The frames of the step socket, and the socket that carries them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ppsmoke.errors import BadPayload, MalformedRequest, OutOfOrder
from ppsmoke.objects import HEADER, StreamObject, encode_header, token_payload
from ppsmoke.step_frames import (
    ERROR,
    HIDDEN,
    REQUEST,
    TOKEN,
    decode_error,
    decode_request,
    decode_token,
    error_reply,
    hidden_reply,
    request_prefix,
    token_reply,
)
from ppsmoke.step_socket import StepSocket
from ppsmoke.worker_protocol import GREEDY, Op, Sampling, Step

HIDDEN_DIM = 8
ROWS = bytes(range(64)) * HIDDEN_DIM  # 16 rows
OBJECT = StreamObject(
    edge_id=3, request_id="ab" * 16, sequence=0, position=40, seq_len=16, payload=ROWS, is_prefill=True, last_part=False
)
SAMPLING = Sampling(0.7, 0.9, 2**63 - 1)
TOKENS = replace(OBJECT, seq_len=3, payload=token_payload([5, 0, 2**31 - 1]))


def decode(prefix: bytes, obj: StreamObject, hidden_dim: int = HIDDEN_DIM) -> Step:
    return decode_request(prefix + encode_header(obj), obj.payload, hidden_dim)


def test_a_request_is_a_prefix_and_the_record_as_it_came() -> None:
    request = ("ab" * 16, 40)
    assert decode(request_prefix(Op.FORWARD_AND_SAMPLE, SAMPLING), OBJECT) == Step(
        Op.FORWARD_AND_SAMPLE, *request, 16, True, (), ROWS, SAMPLING, False
    )
    assert decode(request_prefix(Op.EMBED_AND_FORWARD), TOKENS) == Step(
        Op.EMBED_AND_FORWARD, *request, 3, True, (5, 0, 2**31 - 1), b"", GREEDY, False
    )
    one = replace(TOKENS, seq_len=1, payload=token_payload([7]), is_prefill=False, last_part=True)
    assert decode(request_prefix(Op.DECODE_STEP), one) == Step(Op.DECODE_STEP, *request, 1, False, (7,))


@pytest.mark.parametrize(
    ("op", "obj", "error"),
    [
        (Op.FORWARD_RANGE, replace(OBJECT, seq_len=15), BadPayload),
        (Op.FORWARD_RANGE, replace(OBJECT, seq_len=0, payload=b""), BadPayload),
        (Op.FORWARD_RANGE, TOKENS, BadPayload),
        (Op.EMBED_AND_FORWARD, OBJECT, BadPayload),
        (Op.DECODE_STEP, TOKENS, BadPayload),
    ],
)
def test_a_payload_that_does_not_fit_its_op_is_refused(op: Op, obj: StreamObject, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(request_prefix(op), obj)


def test_an_op_that_does_not_exist_is_refused() -> None:
    prefix = request_prefix(Op.FORWARD_RANGE)
    with pytest.raises(MalformedRequest, match="op 99"):
        decode(prefix[:2] + b"\x63" + prefix[3:], OBJECT)


class Ends:
    """The node's and the worker's end."""

    def __init__(self) -> None:
        self.sockets = socket.socketpair()
        self.node, self.worker = (StepSocket(end) for end in self.sockets)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    made.node.deadline(20)
    made.worker.deadline(20)
    yield made
    made.node.close()
    made.worker.close()


def exchange(ends: Ends, obj: StreamObject) -> tuple[bytes, bytes]:
    """Send an object's request from a thread of its own; what the worker gets of it."""
    prefix = request_prefix(Op.FORWARD_RANGE)
    sending = threading.Thread(target=ends.node.send, args=(prefix, encode_header(obj) + obj.payload))
    sending.start()
    got = ends.worker.receive_request()
    sending.join()
    assert got is not None
    return bytes(got[0]), got[1]


@pytest.mark.parametrize("rows", [1, 16, 2048, 400_000])
def test_requests_and_replies_of_every_size_come_whole(ends: Ends, rows: int) -> None:
    payload = bytes(range(256)) * (rows * HIDDEN_DIM * 4 // 256) or ROWS[: rows * HIDDEN_DIM * 4]
    obj = replace(OBJECT, seq_len=rows, payload=payload)
    for _ in range(2):
        head, got = exchange(ends, obj)
        assert head == request_prefix(Op.FORWARD_RANGE) + encode_header(obj)
        assert got == payload
        replying = threading.Thread(target=ends.worker.send, args=(hidden_reply(len(got), 1.5, 2.5), memoryview(got)))
        replying.start()
        assert ends.node.receive_reply() == (HIDDEN, 1.5, 2.5, payload)
        replying.join()


def test_a_frame_that_comes_in_crumbs_is_put_together(ends: Ends) -> None:
    node_end = ends.sockets[0]
    wire = request_prefix(Op.FORWARD_RANGE) + encode_header(OBJECT) + ROWS

    def crumble() -> None:
        for start in range(0, len(wire), 23):
            node_end.sendall(wire[start : start + 23])

    thread = threading.Thread(target=crumble)
    thread.start()
    got = ends.worker.receive_request()
    thread.join()
    assert got is not None
    assert got[1] == ROWS


def test_tokens_and_errors_come_back_as_what_they_are(ends: Ends) -> None:
    for token in (0, 151_935, None):
        ends.worker.send(*token_reply(token, 1.0, 2.0))
        reply = ends.node.receive_reply()
        assert reply is not None
        assert (reply.kind, decode_token(reply.payload)) == (TOKEN, token)
    ends.worker.send(*error_reply(OutOfOrder("not now", remedy="wait")))
    reply = ends.node.receive_reply()
    assert reply is not None
    assert reply.kind == ERROR
    assert decode_error(reply.payload) == {"code": "out_of_order", "message": "not now", "remedy": "wait"}
    for nonsense in (b"no json", b"[1]"):
        with pytest.raises(MalformedRequest):
            decode_error(nonsense)
    with pytest.raises(MalformedRequest):
        decode_token(b"abc")


def test_an_end_between_frames_is_none_and_one_within_a_frame_an_error(ends: Ends) -> None:
    node_end = ends.sockets[0]
    node_end.sendall(request_prefix(Op.FORWARD_RANGE) + encode_header(OBJECT) + ROWS[:-1])
    ends.node.shut()
    with pytest.raises(ConnectionResetError, match="middle of a frame"):
        ends.worker.receive_request()
    assert ends.node.receive_reply() is None


@pytest.mark.parametrize("junk", [b"{" * REQUEST.size, b"\xb1\x01" + bytes(REQUEST.size)])
def test_what_is_no_frame_is_refused(ends: Ends, junk: bytes) -> None:
    ends.sockets[0].sendall(junk)
    with pytest.raises(MalformedRequest, match="not a step request"):
        ends.worker.receive_request()


def test_a_payload_over_the_limit_is_refused_before_room_is_made_for_it(ends: Ends) -> None:
    ends.worker.payload_limit = 1 << 20
    huge = HEADER.pack(0x5050, 1, 0, 0, bytes(16), 0, 0, 0, 1, 1 << 62)
    ends.sockets[0].sendall(request_prefix(Op.FORWARD_RANGE) + huge)
    with pytest.raises(MalformedRequest, match="over the limit of 1048576"):
        ends.worker.receive_request()


def test_shut_wakes_whoever_waits(ends: Ends) -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(ends.node.receive_reply()))
    thread.start()
    ends.node.shut()
    thread.join(5)
    assert found == [None]
