"""For tests: rented runs against the emulator whose machines run the real start script and a real node."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ppsmoke import __version__
from ppsmoke.messages import Generation
from ppsmoke.orchestrator.hold import Dialog
from ppsmoke.orchestrator.options import Deadlines, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.preflight import stage_memories
from ppsmoke.request import Model, open_model
from ppsmoke.run_events import RunEvent, Seen
from ppsmoke.stub_model import stub_encode
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.market import StageOffers
from ppsmoke.vast.offers import OfferWishes
from ppsmoke.vast.options import RentalOptions
from ppsmoke.vast.run import RentalReport, RentedRun
from ppsmoke.vast.stage_need import stage_needs
from tests.vast.emulated import KEY, Emulated, emulated
from tests.vast_emulator.nodes import ProcessNodes

RUN = "7e57" * 8
SCALE = 0.01
STUB = "stub:layers=6"
DEADLINES = Deadlines(join=60.0, ready=120.0, response=120.0, token=60.0, stop=5.0, kill=2.0, silence=5.0)
_SHIM = """#!/bin/sh
exec {python} -P -m ppsmoke.node_cli "$@"
"""


@contextmanager
def machines(folder: Path, program: str = _SHIM) -> Iterator[ProcessNodes]:
    """Instances on whose PATH `pp-gpu-node` is this checkout's, or another `program`."""
    programs = folder / "bin"
    programs.mkdir()
    node = programs / "pp-gpu-node"
    node.write_text(program.format(python=sys.executable))
    node.chmod(0o755)
    nodes = ProcessNodes(f"{programs}:{os.environ['PATH']}")
    try:
        yield nodes
    finally:
        nodes.close()


@dataclass
class Watcher:
    """A view that keeps what it is shown; `on_news` hears each line, detail and piece of text as it comes."""

    on_news: Callable[[str], None] = lambda text: None
    pieces: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)
        self.on_news(text)

    def detail(self, text: str) -> None:
        self.details.append(text)
        self.on_news(text)

    def waiting(self, text: str) -> None:
        self.waits.append(text)

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None:
        self.pieces.append(piece)
        self.on_news(f"text {piece}")

    def happened(self, event: RunEvent, seen: Seen | None = None) -> None:
        self.events.append(event)

    @property
    def all(self) -> str:
        return "\n".join([*self.lines, *self.details, *self.waits])


@dataclass
class Rented:
    """A run that is over. `left`: what the emulator's ledger shows alive of it; `billed_after`: USD after its end."""

    result: RunResult
    report: RentalReport
    watcher: Watcher
    left: list[str]
    billed_after: float
    creates: list[dict[str, Any]]

    def told(self) -> str:
        """For a test that failed."""
        error = self.result.error
        return "\n".join([repr(error), *(error.log_tail if error else ()), *self.watcher.lines, *self.watcher.details])


def run_options(folder: Path, stages: int, model: Model, prompt: tuple[int, ...], **changes: Any) -> RunOptions:
    logs = folder / "logs"
    logs.mkdir(exist_ok=True)
    options = RunOptions(
        run_id=RUN,
        model=model,
        num_stages=stages,
        prompt_tokens=prompt,
        generation=Generation(max_tokens=8, eos_token_ids=model.stop_token_ids),
        context=256,
        log_dir=logs,
        deadlines=DEADLINES,
    )
    return replace(options, **changes)


def stub_options(folder: Path, stages: int, model: str = STUB, *, max_tokens: int = 8, **changes: Any) -> RunOptions:
    options = run_options(folder, stages, open_model(model, None), tuple(stub_encode("hello")), **changes)
    return replace(options, generation=replace(options.generation, max_tokens=max_tokens))


async def rental_options(
    url: str, scale: float, client: VastClient, options: RunOptions, folder: Path, **changes: Any
) -> RentalOptions:
    """As a command would fill them in, for machines that are processes here."""
    needs = stage_needs(stage_memories(options), image_gb=0.05)
    market = StageOffers(client, needs, OfferWishes())
    rental = RentalOptions(
        offers=await market.choose(),
        needs=needs,
        market=market,
        package=f"pp-smoke-run=={__version__}",
        version=__version__,
        journal_dir=folder / "journal",
        bad_machines=folder / "bad-machines.json",
        loopback_only=True,
        max_spend=5.0,
        vast_url=url,
        orphan_timeout_s=60,
        time_scale=scale,
    )
    return replace(rental, **changes)


def rent_and_run(
    folder: Path,
    options: RunOptions,
    *,
    faults: str = "",
    program: str = _SHIM,
    on_news: Callable[[Emulated, str], None] = lambda cloud, text: None,
    hold: Dialog | None = None,
    **changes: Any,
) -> Rented:
    """One rented run in this process, its machines being processes of their own.

    `on_news` hears what the view is shown, in the run's event loop, and may do to the emulator what it wants.
    """
    watcher = Watcher()

    async def scenario(nodes: ProcessNodes) -> Rented:
        async with emulated(faults, scale=SCALE, nodes=nodes) as cloud, cloud.client() as client:
            watcher.on_news = partial(on_news, cloud)
            rental = await rental_options(cloud.url, cloud.scale, client, options, folder, **changes)
            run = RentedRun(options, rental, watcher, client, hold=hold)
            result = await run.execute()
            ended = cloud.service.settle()
            creates = [x.wish for x in cloud.service.account.rentals.values() if x.instance_id not in cloud.foreign]
            left = cloud.left()
            billed = round(cloud.billed_after(ended), 9)  # sums of many small amounts
            return Rented(result, run.rental, watcher, left, billed, [dict(x) for x in creates])

    with machines(folder, program) as nodes:
        return asyncio.run(scenario(nodes))


def once(pattern: str, act: Callable[[Emulated], None]) -> Callable[[Emulated, str], None]:
    """For `on_news`: do this the first time that something like `pattern` is shown."""
    seen = False

    def hear(cloud: Emulated, text: str) -> None:
        nonlocal seen
        if not seen and re.search(pattern, text):
            seen = True
            act(cloud)

    return hear


def end_machine(stage: int) -> Callable[[Emulated], None]:
    """As if its owner, or its host, had ended the machine of a stage."""

    def end(cloud: Emulated) -> None:
        ours = [x for x in cloud.service.account.rentals.values() if x.instance_id not in cloud.foreign]
        [rental] = [x for x in ours if x.wish["env"]["STAGE"] == str(stage) and x.died is None]
        url = f"{cloud.url}/api/v0/instances/{rental.instance_id}/"
        request = urllib.request.Request(url, b"{}", {"Authorization": f"Bearer {KEY}"}, method="DELETE")
        with urllib.request.urlopen(request, timeout=30):
            pass

    return end


def send(*numbers: signal.Signals) -> Callable[[Emulated], None]:
    """Signals to this process, which is the orchestrator's."""

    def strike(_cloud: Emulated) -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return strike
