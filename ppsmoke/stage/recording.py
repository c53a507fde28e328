"""What a stage keeps of its steps and of what happens to it, until its orchestrator has it. No clock, no network.

A step costs the data thread an append; everything else is the event loop's. What is kept is bounded: a run that goes on
for hours, or whose orchestrator takes nothing, loses records, which are counted, and not memory.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from ppsmoke.messages import StageRecords
from ppsmoke.step_rows import Step, pack_steps

MOST_STEPS = 20_000
"""As many are recorded whole; of those that follow one in `THINNED`, and at no time do more wait to be sent."""
THINNED = 16
MOST_EVENTS = 2_000
STEPS_A_MESSAGE = 500
EVENTS_A_MESSAGE = 100
_LONGEST_EVENT = 4_000


class Recording:
    """Of one stage. Steps come from one thread at a time; `take` is the event loop's."""

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self._steps: deque[Step] = deque()
        self._events: deque[str] = deque()
        self._steps_seen = 0
        self._steps_dropped = 0
        self._events_dropped = 0

    def step(self, step: Step) -> None:
        seen = self._steps_seen = self._steps_seen + 1
        if len(self._steps) >= MOST_STEPS or (seen > MOST_STEPS and seen % THINNED):
            self._steps_dropped += 1
        else:
            self._steps.append(step)

    def event(self, name: str, fields: Mapping[str, Any], at: float) -> None:
        """An event of run_events by its name in a file; `at`: monotonic seconds. A node does without the classes of all
        events, which take a while to load."""
        text = json.dumps({"at": round(at, 6), "source": self._stage, "event": name, **fields})
        if len(self._events) >= MOST_EVENTS or len(text) > _LONGEST_EVENT:
            self._events_dropped += 1
        else:
            self._events.append(text)

    def take(self, *, run_id: str, node_id: str, now: float) -> StageRecords | None:
        """The next message to send, which has the oldest of all that waits; None when nothing does."""
        steps = [self._steps.popleft() for _ in range(min(len(self._steps), STEPS_A_MESSAGE))]
        events = [self._events.popleft() for _ in range(min(len(self._events), EVENTS_A_MESSAGE))]
        if not steps and not events:
            return None
        requests, rows = pack_steps(steps)
        return StageRecords(
            run_id=run_id,
            stage_index=self._stage,
            node_id=node_id,
            sent=now,
            requests=requests,
            steps=rows,
            events=tuple(events),
            steps_dropped=self._steps_dropped,
            events_dropped=self._events_dropped,
        )
