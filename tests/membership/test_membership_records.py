from __future__ import annotations

import json
from typing import Any

import pytest

from ppsmoke.membership.api import Member
from ppsmoke.membership.records import (
    Join,
    JoinRejected,
    Record,
    RecordMalformed,
    Register,
    RegisterRefused,
    Table,
    decode,
    encode,
)

MEMBER = Member("a" * 64, "dead", "endpointabc", 3, frozenset({"pp-stage-3", "pp-exit"}), "silent")


@pytest.mark.parametrize(
    "record",
    [
        Join("endpointabc", 2),
        Join("endpointabc", None),
        Register("pp-entry"),
        Table(7, (MEMBER, Member("b" * 64, "alive", "t"))),
        RegisterRefused("pp-entry", "taken"),
        JoinRejected("no"),
    ],
)
def test_records_survive_the_wire(record: Record) -> None:
    assert decode(json.loads(json.dumps(encode(record)))) == record


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"op": 5},
        {"op": "join"},
        {"op": "join", "ticket": 5, "stage_index": 0},
        {"op": "register", "name": "../../etc"},
        {"op": "register", "name": "x" * 65},
        {"op": "table", "version": "1", "members": []},
        {"op": "table", "version": 1, "members": [{}] * 2000},
        {"op": "table", "version": 1, "members": [{"node_id": "zz"}]},
        {"op": "table", "version": 1, "members": ["x"]},
    ],
)
def test_what_is_no_record_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RecordMalformed):
        decode(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [("node_id", "A" * 64), ("state", "zombie"), ("names", [5]), ("names", "pp-exit"), ("ticket", None)],
)
def test_a_table_with_a_bad_member_is_refused_whole(field: str, value: object) -> None:
    body = encode(Table(1, (MEMBER,)))
    body["members"][0][field] = value
    with pytest.raises(RecordMalformed, match="a member record is malformed"):
        decode(body)
