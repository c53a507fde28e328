from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import fields
from typing import Any

from ppsmoke.errors import PeerLost
from ppsmoke.membership import Member
from ppsmoke.messages import ClockProbe, ClockReply, StageRecords
from ppsmoke.run_events import MemberSeen, NoteMade, event_from_json
from ppsmoke.stage import reporting
from ppsmoke.stage.reporting import ReportedLog, Reporting

RUN, NODE = "ab" * 16, "cd" * 32


class Link:
    """Takes messages, refuses them, or takes none for ever."""

    def __init__(self) -> None:
        self.sent: list[ClockReply | StageRecords] = []
        self.broken = False
        self.stuck = False

    async def send(self, message: ClockReply | StageRecords) -> None:
        if self.broken:
            raise PeerLost("the link is down")
        if self.stuck:
            await asyncio.Event().wait()
        self.sent.append(message)


def test_what_is_left_is_sent_before_the_end() -> None:
    async def run() -> None:
        link = Link()
        reports = Reporting(stage=1, run_id=RUN, send=link.send)
        for index in range(250):
            reports.note(f"note {index}", "detail")
        await reports.flush(NODE)
        assert sum(len(message.events) for message in link.sent if isinstance(message, StageRecords)) == 250
        await reports.flush(NODE)
        assert len(link.sent) == 3

    asyncio.run(run())


def test_a_link_that_takes_nothing_holds_nobody_up() -> None:
    async def run() -> None:
        link = Link()
        reports = Reporting(stage=1, run_id=RUN, send=link.send)
        reports.note("lost", "detail")
        link.broken = True
        await reports.flush(NODE)
        await reports.answer(ClockProbe(run_id=RUN, sent=1.0), NODE)
        link.broken, link.stuck = False, True
        reports.note("stuck", "detail")
        await asyncio.wait_for(reports.flush(NODE), 20 * reporting._LAST_S)
        assert link.sent == []

    asyncio.run(run())


def test_a_probe_is_answered_with_our_clock() -> None:
    async def run() -> None:
        link = Link()
        await Reporting(stage=1, run_id=RUN, send=link.send).answer(ClockProbe(run_id=RUN, sent=12.5), NODE)
        (reply,) = link.sent
        assert isinstance(reply, ClockReply)
        assert (reply.stage_index, reply.node_id, reply.sent) == (1, NODE, 12.5)
        assert reply.received <= reply.replied

    asyncio.run(run())


def test_what_a_stage_tells_are_events_of_the_run() -> None:
    async def run() -> None:
        link = Link()
        reports = Reporting(stage=1, run_id=RUN, send=link.send)
        logger = logging.getLogger("ppsmoke.test_reporting")
        handler = ReportedLog(reports)
        logger.addHandler(handler)
        try:
            logger.warning("no %s", "peer")
            logger.info("nothing")
        finally:
            logger.removeHandler(handler)
        reports.member_seen(Member("cd" * 32, "dead", "ticket", 0, reason="silent", incarnation=3))
        await reports.flush(NODE)
        (message,) = link.sent
        assert isinstance(message, StageRecords)
        bodies = [json.loads(text) for text in message.events]
        assert [event_from_json(body) for body in bodies] == [
            NoteMade("no peer", "warning"),
            MemberSeen(1, 0, "dead", 3, "silent"),
        ]
        assert all(set(body) - {"at", "source", "event"} == fields_of(event_from_json(body)) for body in bodies)

    asyncio.run(run())


def fields_of(event: Any) -> set[str]:
    return {field.name for field in fields(event)}
