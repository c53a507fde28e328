"""What is said on a file connection. Pure.

It has an ALPN of its own, because who reads need not be a member of the run: the process beside a node that fetches a
model, or a machine that has no node yet. On one bidirectional stream the reader sends `Hello` and then requests, each
answered before the next: `List` by `Files`, `Read` by `Bytes` and one frame of that many bytes, anything that is not
granted by `Refused`.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass
from typing import Any

from ppsmoke.transport.hello import make_proof

FILES_ALPN = b"pp-smoke-run/files/1"
MAX_RECORD_BYTES = 65536
MAX_READ_BYTES = 8 << 20
"""Most bytes one request may ask for."""

NOT_PROVEN = "not_proven"
NOT_GIVEN = "not_given"

_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Hello:
    """`proof` shows that the reader holds the run's join token."""

    run_id: str
    proof: str


@dataclass(frozen=True, slots=True)
class List:
    pass


@dataclass(frozen=True, slots=True)
class Read:
    name: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class OfferedFile:
    """`version` is another one when the file's bytes are."""

    name: str
    size: int
    version: str


@dataclass(frozen=True, slots=True)
class Files:
    files: tuple[OfferedFile, ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    length: int


@dataclass(frozen=True, slots=True)
class Refused:
    """`code` is NOT_PROVEN or NOT_GIVEN; `reason` is a clause that completes "... was refused: "."""

    code: str
    reason: str


Request = Hello | List | Read
Answer = Files | Bytes | Refused


class FileRecordMalformed(Exception):
    """The bytes are not a record of a file connection; the message says what was expected."""


def proof_of(join_token: bytes, run_id: str, reader_id: str, owner_id: str) -> str:
    """What a reader shows; bound to the run, to this use of the token, and to the pair."""
    return make_proof(join_token, f"files|{run_id}", reader_id, owner_id)


def is_proven(hello: Hello, *, join_token: bytes, run_id: str, reader_id: str, owner_id: str) -> bool:
    wanted = proof_of(join_token, run_id, reader_id, owner_id)
    return hello.run_id == run_id and hmac.compare_digest(hello.proof.encode(), wanted.encode())


def encode(record: Request | Answer) -> bytes:
    fields = asdict(record)
    if isinstance(record, Refused):
        fields["reason"] = record.reason[:_LONGEST_REASON]
    return json.dumps({"file": type(record).__name__, **fields}).encode()


def decode_request(frame: bytes) -> Request:
    """Raises FileRecordMalformed."""
    match _body(frame):
        case {"file": "Hello", "run_id": str(run_id), "proof": str(proof)}:
            return Hello(run_id, proof)
        case {"file": "List"}:
            return List()
        case {"file": "Read", "name": str(name), "offset": int(offset), "length": int(length)} if (
            type(offset) is type(length) is int
        ):
            return Read(name, offset, length)
    raise FileRecordMalformed("no request for files")


def decode_answer(frame: bytes) -> Answer:
    """Raises FileRecordMalformed."""
    match _body(frame):
        case {"file": "Files", "files": list(files)}:
            return Files(tuple(_offered(entry) for entry in files))
        case {"file": "Bytes", "length": int(length)} if type(length) is int and length >= 0:
            return Bytes(length)
        case {"file": "Refused", "code": str(code), "reason": str(reason)}:
            return Refused(code, reason[:_LONGEST_REASON])
    raise FileRecordMalformed("no answer about files")


def _offered(entry: Any) -> OfferedFile:
    match entry:
        case {"name": str(name), "size": int(size), "version": str(version)} if type(size) is int and size >= 0:
            if name and name == name.rpartition("/")[2] and not name.startswith("."):
                return OfferedFile(name, size, version)
    raise FileRecordMalformed("an entry that is no file")


def _body(frame: bytes) -> Any:
    try:
        return json.loads(frame)
    except (ValueError, RecursionError):
        raise FileRecordMalformed("no record of a file connection") from None
