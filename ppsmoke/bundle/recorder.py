"""What happens in a run, into its directory: the driver around the writer, with the clock."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ppsmoke.bundle import names
from ppsmoke.bundle.facts import host_facts
from ppsmoke.bundle.folder import RunFolder
from ppsmoke.bundle.thinning import Thinning
from ppsmoke.bundle.writer import BundleWriter
from ppsmoke.redaction import without_secret_arguments
from ppsmoke.run_events import (
    ClockCompared,
    NoteMade,
    RecordsDropped,
    RunEvent,
    Seen,
    StagePace,
    StepRan,
    TokenArrived,
    event_json,
    step_json,
)

_PLAIN = (TokenArrived, StagePace)
_REGULAR = (StagePace, ClockCompared)
"""What comes again and again however little happens."""
_STEPS_AT_ONCE = 64
MOST_TOKENS = 20_000
MOST_REGULAR = 20_000
MOST_STEPS = 100_000
"""So many lines of a kind are written whole, about 3, 3 and 22 MB; more are thinned out."""


class RunRecorder:
    """Of one run, from its directory's making to its last word. `writer` is for what is no event.

    Never raises and waits for nothing but the disk. Zero of the run's time axis is when this is made.
    """

    def __init__(self, folder: RunFolder, writer: BundleWriter) -> None:
        self.writer = writer
        self._folder = folder
        self._zero = time.monotonic()
        self._began = time.time()
        self._steps: list[dict[str, Any]] = []  # they come in batches, and another event behind each
        self._turn = threading.Lock()
        self._tokens, self._regular = Thinning(MOST_TOKENS), Thinning(MOST_REGULAR)
        self._all_steps = Thinning(MOST_STEPS)
        self._regular_seen = 0

    @property
    def directory(self) -> Path:
        return self._folder.path

    def begin(self, run_id: str, plan: Mapping[str, Any]) -> None:
        """What is known before anything happens. `plan` as `--plan --json` has it."""
        began = datetime.fromtimestamp(self._began, UTC).isoformat(timespec="milliseconds")
        environment = {
            "format": names.FORMAT,
            "run_id": run_id,
            "began_unix": round(self._began, 6),
            "began": began,
            **host_facts(),
            "command": without_secret_arguments(sys.argv),
        }
        self.writer.write_json(names.ENVIRONMENT, environment)
        self.writer.write_json(names.PLAN, plan)

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        """Keep it; without `seen` the orchestrator sees it now."""
        if not self._keeps(event):
            return
        at = time.monotonic() if seen is None else seen.at
        within = {} if seen is None or seen.source is None else {"within": round(seen.within, 6)}
        if isinstance(event, StepRan):
            self._keep_step(step_json(event, zero=self._zero) | within)
            return
        self._write_steps()
        source = None if seen is None else seen.source
        body = event_json(event, at=at - self._zero, source=source) | within
        self.writer.append(names.EVENTS, [body], plain=isinstance(event, _PLAIN))

    def _keeps(self, event: RunEvent) -> bool:
        """Whether there is room for it: always, but for what a long run has without end."""
        if isinstance(event, StepRan):
            return self._all_steps.keeps(event.request_id, event.sequence)
        if isinstance(event, TokenArrived):
            # The report asks for the first one's time, and for why the last one was the last.
            wanted = event.index == 0 or event.finish_reason is not None
            return wanted or self._tokens.keeps(event.request_id, event.index)
        if isinstance(event, _REGULAR):
            self._regular_seen += 1
            return self._regular.keeps("", self._regular_seen)
        return True

    def _keep_step(self, body: dict[str, Any]) -> None:
        with self._turn:
            self._steps.append(body)
            full = len(self._steps) >= _STEPS_AT_ONCE
        if full:
            self._write_steps()

    def _write_steps(self) -> None:
        with self._turn:
            steps, self._steps = self._steps, []
        self.writer.append(names.SPANS, steps, plain=True)

    def finish(self, run: Mapping[str, Any]) -> None:
        """The last word: what the run came to, as `--json` has it. Nothing is kept afterwards."""
        self._write_steps()
        steps, events = self._all_steps.left_out, self._tokens.left_out + self._regular.left_out
        if steps or events:
            self.happened(RecordsDropped(None, steps, events))
        self.writer.clean_files(names.STAGE_LOG.format("*"))
        self.writer.clean_files(names.INSTANCE_LOG.format("*"))
        self.writer.write_json(names.RUN, run)
        self.writer.close()
        self._folder.close()


class RecordedLog(logging.Handler):
    """Warnings of the parts below, and of asyncio, as events."""

    def __init__(self, recorder: RunRecorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        level: Literal["detail", "warning"] = "detail" if getattr(record, "expected", False) else "warning"
        self._recorder.happened(NoteMade(self.format(record), level))
