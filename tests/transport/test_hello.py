from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ppsmoke.transport import hello
from ppsmoke.transport.hello import Hello, HelloMalformed, Refused, Welcome, judge_hello, make_proof

TOKEN, RUN, DIALLER, ACCEPTOR = b"token", "ab" * 16, "a" * 64, "b" * 64
GOOD = Hello(RUN, hello.PROTOCOL_VERSION, "0.1.0", make_proof(TOKEN, RUN, DIALLER, ACCEPTOR), "endpointx", "cafe", 3)


def judge(said: Hello, **changed: object) -> Refused | None:
    facts = {"run_id": RUN, "join_token": TOKEN, "tool_version": "0.1.0", "own_id": ACCEPTOR, "dialler_id": DIALLER}
    return judge_hello(said, **{**facts, **changed})  # type: ignore[arg-type]


def test_a_proper_hello_passes() -> None:
    assert judge(GOOD) is None


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (replace(GOOD, protocol=99), "wrong_protocol"),
        (replace(GOOD, tool_version="0.2.0"), "wrong_version"),
        (replace(GOOD, run_id="cd" * 16), "wrong_run"),
        (replace(GOOD, proof=""), "bad_token"),
        (replace(GOOD, proof="é"), "bad_token"),
        (replace(GOOD, proof=make_proof(b"other", RUN, DIALLER, ACCEPTOR)), "bad_token"),
        (replace(GOOD, proof=make_proof(TOKEN, RUN, ACCEPTOR, DIALLER)), "bad_token"),
        (replace(GOOD, protocol=99, run_id="x", proof=""), "wrong_protocol"),
    ],
)
def test_each_fault_has_its_code(said: Hello, code: str) -> None:
    refused = judge(said)
    assert refused is not None
    assert refused.code == code


def test_a_proof_serves_one_pair_and_one_run() -> None:
    assert judge(GOOD, dialler_id="c" * 64) is not None
    assert judge(GOOD, own_id="c" * 64) is not None


def test_records_survive_the_wire() -> None:
    assert hello.decode_hello(hello.encode(GOOD)) == GOOD
    for answer in (Welcome("endpointy", "beef", 9), Refused("bad_token", "no")):
        assert hello.decode_answer(hello.encode(answer)) == answer


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"5",
        b"{}",
        b"[" * 8000,
        json.dumps({"is": "Hello"}).encode(),
        json.dumps({**json.loads(hello.encode(GOOD)), "stamp": "3"}).encode(),
        json.dumps({**json.loads(hello.encode(GOOD)), "stamp": True}).encode(),
        json.dumps({**json.loads(hello.encode(GOOD)), "run_id": None}).encode(),
        hello.encode(Welcome("t", "l", 1)),
    ],
)
def test_what_is_no_hello_is_malformed(frame: bytes) -> None:
    with pytest.raises(HelloMalformed):
        hello.decode_hello(frame)


def test_a_hello_is_no_answer() -> None:
    with pytest.raises(HelloMalformed):
        hello.decode_answer(hello.encode(GOOD))
