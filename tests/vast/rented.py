"""For tests: rented runs against the emulator whose machines run the real start script and a real node."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ppsmoke import __version__
from ppsmoke.messages import Generation
from ppsmoke.orchestrator.options import Deadlines, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.preflight import stage_memories
from ppsmoke.request import Model, open_model
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
    """A view that keeps what it is shown; `on_line` hears each line as it comes."""

    on_line: Callable[[str], None] = lambda line: None
    pieces: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)
        self.on_line(text)

    def detail(self, text: str) -> None:
        self.details.append(text)

    def waiting(self, text: str) -> None:
        self.waits.append(text)

    def settle(self) -> None: ...

    async def text(self, piece: str) -> None:
        self.pieces.append(piece)

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


def stub_options(folder: Path, stages: int, model: str = STUB, **changes: Any) -> RunOptions:
    return run_options(folder, stages, open_model(model, None), tuple(stub_encode("hello")), **changes)


async def rental_options(
    cloud: Emulated, client: VastClient, options: RunOptions, folder: Path, **changes: Any
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
        vast_url=cloud.url,
        secrets=(KEY,),
        orphan_timeout_s=60,
        time_scale=cloud.scale,
    )
    return replace(rental, **changes)


def rent_and_run(
    folder: Path,
    options: RunOptions,
    *,
    faults: str = "",
    program: str = _SHIM,
    watcher: Watcher | None = None,
    meanwhile: Callable[[Emulated, Watcher], None] = lambda cloud, watcher: None,
    **changes: Any,
) -> Rented:
    """One rented run in this process, its machines being processes of their own.

    `meanwhile` runs in a thread beside it and may do to the emulator what it wants.
    """
    watcher = watcher or Watcher()

    async def scenario(nodes: ProcessNodes) -> Rented:
        async with emulated(faults, scale=SCALE, nodes=nodes) as cloud, cloud.client() as client:
            run = RentedRun(options, await rental_options(cloud, client, options, folder, **changes), watcher, client)
            beside = threading.Thread(target=meanwhile, args=(cloud, watcher), daemon=True)
            beside.start()
            result = await run.execute()
            ended = cloud.service.settle()
            creates = [x.wish for x in cloud.service.account.rentals.values() if x.instance_id not in cloud.foreign]
            left = cloud.left()
            return Rented(result, run.rental, watcher, left, cloud.billed_after(ended), [dict(x) for x in creates])

    with machines(folder, program) as nodes:
        return asyncio.run(scenario(nodes))
