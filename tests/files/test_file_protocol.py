"""The records of a file connection, from strangers too."""

from __future__ import annotations

import json

import pytest

from ppsmoke.files.protocol import (
    Bytes,
    FileRecordMalformed,
    Files,
    Hello,
    List,
    OfferedFile,
    Read,
    Refused,
    decode_answer,
    decode_request,
    encode,
    is_proven,
    proof_of,
)

TOKEN, RUN, READER, OWNER = b"token", "ab" * 16, "1" * 64, "2" * 64


@pytest.mark.parametrize("record", [Hello(RUN, "00"), List(), Read("m.gguf", 5, 7)])
def test_requests_come_through(record: Hello | List | Read) -> None:
    assert decode_request(encode(record)) == record


@pytest.mark.parametrize(
    "record",
    [Files((OfferedFile("m.gguf", 7, "v"),)), Files(()), Bytes(0), Refused("not_given", "there is no such file")],
)
def test_answers_come_through(record: Files | Bytes | Refused) -> None:
    assert decode_answer(encode(record)) == record


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        json.dumps({"file": "Read", "name": "m", "offset": "0", "length": 1}).encode(),
        json.dumps({"file": "Read", "name": "m", "offset": True, "length": 1}).encode(),
        json.dumps({"file": "Files", "files": [{"name": "../m", "size": 1, "version": "v"}]}).encode(),
        json.dumps({"file": "Files", "files": [{"name": ".bashrc", "size": 1, "version": "v"}]}).encode(),
        json.dumps({"file": "Files", "files": [{"name": "m", "size": -1, "version": "v"}]}).encode(),
        json.dumps({"file": "Bytes", "length": -1}).encode(),
    ],
)
def test_what_is_no_record_is_refused(body: bytes) -> None:
    for decode in (decode_request, decode_answer):
        with pytest.raises(FileRecordMalformed):
            decode(body)


@pytest.mark.parametrize(
    "proof",
    [
        proof_of(b"other", RUN, READER, OWNER),
        proof_of(TOKEN, "cd" * 16, READER, OWNER),
        proof_of(TOKEN, RUN, OWNER, READER),
        "",
        "é",
    ],
)
def test_only_the_runs_token_for_this_pair_is_a_proof(proof: str) -> None:
    def judged(said: str) -> bool:
        return is_proven(Hello(RUN, said), join_token=TOKEN, run_id=RUN, reader_id=READER, owner_id=OWNER)

    assert judged(proof_of(TOKEN, RUN, READER, OWNER))
    assert not judged(proof)
