"""What a run says about its members: the table after boot and at the end, and every change between."""

from __future__ import annotations

from collections.abc import Sequence

from ppsmoke.membership import Member, MemberRow, describe_member, table_lines
from ppsmoke.orchestrator.options import View


class MemberNews:
    """`show`: news for the terminal; else details for --debug."""

    def __init__(self, view: View, stage_count: int, *, show: bool) -> None:
        self._stage_count = stage_count
        self._detail = view.detail
        self._say = view.line if show else view.detail

    def changed(self, before: Member | None, after: Member, *, expected: bool) -> None:
        """`expected`: members come in boot and go in teardown; that is a detail. So are names, which the table has, and
        a new address, which comes with an incarnation of its own."""
        same = before is not None and before.state == after.state
        if before is not None and before.incarnation != after.incarnation:
            same = same and before.ticket != after.ticket
        text = f"member {describe_member(after)}, incarnation {after.incarnation}"
        if expected or same:
            self._detail(text)
        else:
            self._say(text)

    def table(self, title: str, rows: Sequence[MemberRow]) -> None:
        """All members, a line each."""
        alive = sum(row.state == "alive" for row in rows)
        self._say(f"members {title}: {alive} of {len(rows)} alive")
        for line in table_lines(rows, self._stage_count):
            self._say(f"  {line}")
