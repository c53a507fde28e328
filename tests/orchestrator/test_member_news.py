from __future__ import annotations

from dataclasses import replace

from ppsmoke.membership import Member, MemberRow
from ppsmoke.orchestrator.member_news import MemberNews
from ppsmoke.run_events import RunEvent, Seen

STAGE = Member("a" * 64, "alive", "ticket", 1, frozenset({"pp-stage-1"}))


class Said:
    """A view that keeps lines and details apart."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.details: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def detail(self, text: str) -> None:
        self.details.append(text)

    def waiting(self, text: str) -> None: ...

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None: ...

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None: ...


def test_a_doubt_and_a_contradiction_are_news_and_a_name_is_a_detail() -> None:
    said = Said()
    news = MemberNews(said, 3, show=True)
    suspect = replace(STAGE, state="suspect", reason="no answer")
    news.changed(STAGE, suspect, expected=False)
    news.changed(suspect, replace(STAGE, incarnation=1), expected=False)
    news.changed(STAGE, replace(STAGE, names=frozenset()), expected=False)
    assert said.lines == [
        "member stage 1 [aaaaaaaa]: suspect (no answer), names pp-stage-1, incarnation 0",
        "member stage 1 [aaaaaaaa]: alive, names pp-stage-1, incarnation 1",
    ]
    news.changed(STAGE, replace(STAGE, ticket="another", incarnation=1), expected=False)
    assert len(said.lines) == 2, "where it is reached is a detail"
    assert len(said.details) == 2


def test_members_come_and_go_without_being_news() -> None:
    said = Said()
    news = MemberNews(said, 3, show=True)
    news.changed(None, STAGE, expected=True)
    news.changed(STAGE, replace(STAGE, state="left", reason="said goodbye"), expected=True)
    assert not said.lines
    assert len(said.details) == 2


def test_unless_asked_for_all_of_it_is_a_detail() -> None:
    said = Said()
    news = MemberNews(said, 3, show=False)
    news.changed(STAGE, replace(STAGE, state="dead"), expected=False)
    news.table("at the end", [MemberRow("a" * 64, 1, "dead", 0), MemberRow("0" * 64, None, "alive", 0)])
    assert not said.lines
    assert said.details[1] == "members at the end: 1 of 2 alive"
    assert len(said.details) == 1 + 1 + 3
