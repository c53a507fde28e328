"""A stage's records on their way to the orchestrator, and its clock for whoever asks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

from ppsmoke.errors import PpError
from ppsmoke.membership import Member
from ppsmoke.messages import ClockProbe, ClockReply, StageRecords
from ppsmoke.stage.recording import Recording
from ppsmoke.step_rows import Step

_EVERY_S = 1.0
_LAST_S = 1.0
_LONGEST_NOTE = 500

Send = Callable[[ClockReply | StageRecords], Awaitable[None]]


class Reporting:
    """Of one stage. `send` delivers a message to the orchestrator; its PpErrors are nobody's fault here: what could not
    be sent is lost, and whoever watches over the link tells of it.

    `note` may be called from any thread; the rest is the event loop's, but for `step`.
    """

    def __init__(self, *, stage: int, run_id: str, send: Send) -> None:
        self._stage = stage
        self._run_id = run_id
        self._send = send
        self._recording = Recording(stage)

    def step(self, step: Step) -> None:
        """In the data thread, between two steps: no more than an append."""
        self._recording.step(step)

    def note(self, text: str, level: Literal["detail", "warning"]) -> None:
        """See NoteMade."""
        self._recording.event("note_made", {"text": text[:_LONGEST_NOTE], "level": level}, time.monotonic())

    def member_seen(self, member: Member) -> None:
        """See MemberSeen: this member changed."""
        seen = {
            "seen_by": self._stage,
            "member": member.stage_index,
            "state": member.state,
            "incarnation": member.incarnation,
            "reason": member.reason,
        }
        self._recording.event("member_seen", seen, time.monotonic())

    async def run(self, node_id: str) -> None:
        """Send what there is once a second, for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._send_all(node_id)

    async def flush(self, node_id: str) -> None:
        """Send what is left, which holds nobody up for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self._send_all(node_id)

    async def answer(self, probe: ClockProbe, node_id: str) -> None:
        """Tell our clock; `received` is now."""
        received = time.monotonic()
        with suppress(PpError):
            await self._send(
                ClockReply(
                    run_id=self._run_id,
                    stage_index=self._stage,
                    node_id=node_id,
                    sent=probe.sent,
                    received=received,
                    replied=time.monotonic(),
                )
            )

    async def _send_all(self, node_id: str) -> None:
        with suppress(PpError):
            while True:
                records = self._recording.take(run_id=self._run_id, node_id=node_id, now=time.monotonic())
                if records is None:
                    return
                await self._send(records)


class ReportedLog(logging.Handler):
    """Warnings of the node's log, as events. For the root logger of a process with one node."""

    def __init__(self, reporting: Reporting) -> None:
        super().__init__(logging.WARNING)
        self._reporting = reporting

    def emit(self, record: logging.LogRecord) -> None:
        self._reporting.note(record.getMessage(), "warning")
