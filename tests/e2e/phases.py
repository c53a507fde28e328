"""Runs on the stub worker, held in one phase."""

from __future__ import annotations

from tests.e2e.kit import Box, Program

STAGES = 3
FIRST, MIDDLE, LAST = 0, 1, 2
PHASES = ("boot", "load", "prefill", "decode")
FOREVER_MS = 600_000


def start_in(box: Box, phase: str, stage: int, *more: str) -> Program:
    """A run held in `phase`: while nodes are spawned, while `stage` loads, in `stage`'s prefill step, in decode."""
    model = {
        "boot": "stub:layers=8",
        "load": f"stub:layers=8,load_ms={FOREVER_MS},at_stage={stage}",
        "prefill": f"stub:layers=8,step_ms={FOREVER_MS},at_stage={stage}",
        "decode": "stub:layers=8,step_ms=20",
    }[phase]
    run = box.start(
        *("--seed", "-n", str(STAGES), "--model", model, "--max-tokens", "2000", "--context", "4096", "--debug"), *more
    )
    match phase:
        case "boot":
            run.node(stage)
        case "load":
            run.wait_line(f"stage {stage}: loading and compiling")
        case "prefill":
            run.wait_line("WaitingReady -> Running")
        case "decode":
            run.wait_output()
    return run
