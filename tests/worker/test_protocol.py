from __future__ import annotations

import json
import random
import struct

import pytest

from ppsmoke.errors import BadPayload, MalformedRequest, RequestRejected
from ppsmoke.worker_decoder import MessageDecoder
from ppsmoke.worker_protocol import Form, Message, Op, Sampling, Step, StepReply, encode_step, encode_step_reply
from ppsmoke.worker_requests import parse_sampling, parse_step

HIDDEN_DIM = 3
HIDDEN = struct.pack("<6f", *range(6))
STEPS = [
    Step(Op.EMBED_AND_FORWARD, "r", 5, 3, True, (1, 2, 4_000_000_000)),
    Step(Op.DECODE_STEP, "ü\U0001f642", 0, 1, False, (7,)),
    Step(Op.FORWARD_RANGE, "r", 4, 2, False, (), HIDDEN),
    Step(Op.FORWARD_RANGE, "r", 0, 2, True, (), HIDDEN),
    Step(Op.FORWARD_AND_SAMPLE, "r", 9, 2, True, (), HIDDEN, Sampling(0.7, 0.9, 2**63 - 1), False),
]
REPLIES = [StepReply("r", 2, HIDDEN), StepReply("r", 1, None, 49151), StepReply("r", 1, None, None)]


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.op.value)
def test_a_step_survives_every_form(step: Step, form: Form) -> None:
    (message,) = MessageDecoder().feed(encode_step(step, form))
    assert isinstance(message, Message)
    assert message.form is form
    assert parse_step(message, HIDDEN_DIM) == step


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_survives_every_form(reply: StepReply, form: Form) -> None:
    (message,) = MessageDecoder().feed(encode_step_reply(reply, form))
    assert isinstance(message, Message)
    assert message.fields["request_id"] == reply.request_id
    if reply.hidden is None:
        assert message.fields["token_id"] == reply.token_id
    else:
        assert (message.hidden, message.fields["seq_len"]) == (reply.hidden, reply.seq_len)


def test_messages_of_all_forms_come_out_whole_however_the_bytes_are_cut() -> None:
    rng = random.Random(1)
    sent = [(step, form) for step in STEPS for form in Form]
    wire = b"\n".join(encode_step(step, form) for step, form in sent)
    for _ in range(50):
        decoder, got, at = MessageDecoder(), [], 0
        while at < len(wire):
            size = rng.randint(1, 40)
            got += decoder.feed(wire[at : at + size])
            at += size
        assert [parse_step(message, HIDDEN_DIM) for message in got if isinstance(message, Message)] == [
            step for step, _ in sent
        ]


GOOD = encode_step(STEPS[0], Form.JSON)
BAD_FRAME = b"\xb1\x07" + encode_step(STEPS[2], Form.BINARY)[2:]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"{\n", MalformedRequest),
        (b"[]\n", MalformedRequest),
        (b"\xff\xfe\n", MalformedRequest),
        (b'{"x": NaN}\n', MalformedRequest),
        (b"[" * 60_000 + b"\n", MalformedRequest),
        (b'{"hidden_bytes": -1}\n', MalformedRequest),
        (b'{"hidden_bytes": 1.5}\n', MalformedRequest),
        (b'{"hidden_bytes": 4, "hidden_b64": ""}\n\n\n\n\n', MalformedRequest),
        (b'{"hidden_bytes": 2000}\n' + b"\n{" * 1000, BadPayload),
        (b'{"hidden_b64": "a"}\n', BadPayload),
        (b'{"hidden_b64": 1}\n', MalformedRequest),
        (b"x" * 70_000 + b"\n", MalformedRequest),
        (BAD_FRAME, MalformedRequest),
    ],
)
def test_after_a_malformed_message_the_next_one_is_read(data: bytes, error: type[RequestRejected]) -> None:
    decoder = MessageDecoder(payload_limit=1000)
    first, second = decoder.feed(data + GOOD)
    assert type(first) is error
    assert isinstance(second, Message)
    assert parse_step(second, HIDDEN_DIM) == STEPS[0]


def test_an_endless_line_is_answered_once_and_not_kept() -> None:
    decoder = MessageDecoder(line_limit=1000)
    got = [item for _ in range(100) for item in decoder.feed(b"y" * 500)]
    assert [type(item) for item in got] == [MalformedRequest]
    assert len(decoder._buffer) <= 1000
    assert len(decoder.feed(b"\n" + GOOD)) == 1


def request(**fields: object) -> Message:
    (message,) = MessageDecoder().feed(json.dumps(fields).encode() + b"\n")
    assert isinstance(message, Message)
    return message


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "decode_step", "request_id": "r", "token": 1},
        {"op": "decode_step", "request_id": "r", "token": True, "position": 0},
        {"op": "decode_step", "request_id": "", "token": 1, "position": 0},
        {"op": "decode_step", "request_id": "\ud800", "token": 1, "position": 0},
        {"op": "decode_step", "request_id": "r" * 300, "token": 1, "position": 0},
        {"op": "decode_step", "request_id": "r", "token": -1, "position": 0},
        {"op": "decode_step", "request_id": "r", "token": 1, "position": 10**30},
        {"op": "embed_and_forward", "request_id": "r", "tokens": [], "position": 0},
        {"op": "embed_and_forward", "request_id": "r", "tokens": "12", "position": 0},
        {"op": "forward_range", "request_id": "r", "position": 0, "seq_len": 0, "hidden_b64": ""},
        {"op": "forward_range", "request_id": "r", "position": 0, "seq_len": 1},
        {"op": "nonsense"},
        {"op": 3},
        {},
    ],
)
def test_a_step_with_a_wrong_field_is_malformed(fields: dict[str, object]) -> None:
    with pytest.raises(MalformedRequest):
        parse_step(request(**fields), HIDDEN_DIM)


def test_a_payload_of_another_size_than_seq_len_says_both_sizes() -> None:
    with pytest.raises(BadPayload, match=r"8 bytes.*1 x 3 float32 need 12"):
        parse_step(request(op="forward_range", request_id="r", position=0, seq_len=1, hidden_b64="AAAAAAAAAAA="), 3)


@pytest.mark.parametrize(
    "value",
    [
        {"temperature": -1},
        {"temperature": 10**400},
        {"top_p": 0},
        {"top_p": 1.1},
        {"seed": -1},
        {"seed": 2**63},
        {"seed": 1.0},
        {"top_k": 3},
        [],
    ],
)
def test_sampling_out_of_range_is_malformed(value: object) -> None:
    with pytest.raises(MalformedRequest):
        parse_sampling(value)


def test_without_the_flag_a_first_position_or_several_rows_are_a_prefill() -> None:
    row = "AAAAAAAAAAAAAAAA"
    fields = {"op": "forward_range", "request_id": "r", "seq_len": 1, "hidden_b64": row}
    assert parse_step(request(**fields, position=0), HIDDEN_DIM).is_prefill
    assert not parse_step(request(**fields, position=5), HIDDEN_DIM).is_prefill
