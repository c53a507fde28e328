"""What a run is asked to do, after the model was opened and the prompt tokenised. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ppsmoke.messages import Generation
from ppsmoke.redaction import Redactor
from ppsmoke.request import Model
from ppsmoke.run_events import RunEvent, Seen


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. `stop` is for a stage to stop by itself, `kill` for its process to be gone after that."""

    boot: float = 20.0
    join: float = 30.0
    ready: float = 600.0
    response: float = 600.0
    token: float = 60.0
    stop: float = 5.0
    kill: float = 2.0
    silence: float = 5.0
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`prefill_part`: most prompt tokens that travel in one object; parts overlap in the chain's stages.

    `show_members`: the membership table is news for the terminal, not a detail.
    `redactor` learns every secret that the run makes or is given.
    `relay_urls`: what local nodes meet through, as if they were far from each other; none: they meet on loopback.
    `prompt_given`: False where a held run waits for its first prompt too; `prompt_tokens` stand for its size till then.
    `held_dir`: where a held run can be found and sent new code; None for one that is not to be.
    """

    run_id: str
    model: Model
    num_stages: int
    prompt_tokens: tuple[int, ...]
    generation: Generation
    context: int
    log_dir: Path
    device: str = ""
    deadlines: Deadlines = field(default_factory=Deadlines)
    prefill_part: int = 32
    show_members: bool = False
    relay_urls: tuple[str, ...] = ()
    relay_token: str = field(default="", repr=False)
    redactor: Redactor = field(default_factory=Redactor, repr=False, compare=False)
    held_dir: Path | None = None
    prompt_given: bool = True


class View(Protocol):
    """Who watches the run. `text` may wait for a slow reader; it raises OutputGone when nobody reads any more."""

    def line(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...

    def waiting(self, text: str) -> None: ...

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None: ...

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        """Something happened: now, as the orchestrator sees it, unless `seen` says else. Never raises, never waits."""


class OutputGone(Exception):
    """The reader of the generated text closed its end."""
