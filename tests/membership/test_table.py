from __future__ import annotations

from ppsmoke.membership.table import MemberRow, table_json, table_lines

ROWS = [
    MemberRow("c" * 64, 2, "suspect", 11, 0.1234, "relay", frozenset({"pp-exit", "pp-stage-2"})),
    MemberRow("a" * 64, 0, "alive", 0, 0.00042, "direct", frozenset({"pp-stage-0", "pp-entry"})),
    MemberRow("b" * 64, 1, "dead", 3),
    MemberRow("0" * 64, None, "alive", 0, None, "self", frozenset({"pp-orchestrator"})),
]


def test_the_table_has_a_line_a_member_in_order_and_fits_80_columns() -> None:
    lines = table_lines(ROWS, 3)
    assert lines == [
        "stage  role          state    inc  round trip  path    names",
        "    -  orchestrator  alive      0           -  self    pp-orchestrator",
        "    0  First         alive      0      0.4 ms  direct  pp-stage-0 pp-entry",
        "    1  Middle        dead       3           -  -       -",
        "    2  Last          suspect   11      123 ms  relay   pp-stage-2 pp-exit",
    ]
    assert max(map(len, lines)) <= 80


def test_the_json_has_the_same_in_full() -> None:
    first, _, dead, last = table_json(ROWS, 3)
    assert first["role"] == "orchestrator"
    assert first["stage"] is None
    assert dead == {
        "node_id": "b" * 64, "stage": 1, "role": "Middle", "state": "dead", "incarnation": 3, "rtt_s": None,
        "path": None, "names": [],
    }  # fmt: skip
    assert last["rtt_s"] == 0.1234
    assert last["names"] == ["pp-exit", "pp-stage-2"]


def test_a_member_that_claims_a_stage_which_the_chain_has_not_is_shown_all_the_same() -> None:
    assert "?" in table_lines([MemberRow("d" * 64, 9, "alive", 0)], 3)[1]
