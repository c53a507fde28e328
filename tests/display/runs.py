"""A run as the display is told of it: events with the moments at which they came."""

from __future__ import annotations

from ppsmoke.display.state import DisplayState, begin, fold
from ppsmoke.run_events import (
    EdgeMeasured,
    MoneySpent,
    PhaseEntered,
    PromptInjected,
    RunBegan,
    RunEvent,
    StageDoing,
    StageIsReady,
    StagePace,
    StagePlaced,
    StageState,
    TokenArrived,
)

LOCAL = RunBegan("0" * 32, "smollm2:135m", ((0, 10), (10, 20), (20, 30)), 32, 64, remote=False)
RENTED = RunBegan("0" * 32, "llama3.2:1b", ((0, 6), (6, 11), (11, 16)), 32, 64, remote=True, budget_s=300.0)

PREPARING: list[tuple[float, RunEvent]] = [
    (0.0, PhaseEntered("Planning")),
    *((0.1, StagePlaced(stage, f"pid {4711 + stage}")) for stage in range(3)),
    (1.0, PhaseEntered("Joining", 30.0, "--join-timeout")),
    (1.5, PhaseEntered("WaitingReady", 600.0, "--ready-timeout")),
    (2.0, StageDoing(0, StageState.FETCHING, "fetching 12 of 345 MB", 12_000_000, 345_000_000, "bytes", 600.0)),
    (2.5, StageDoing(1, StageState.LOADING, "loading 4 of 10 blocks", 4, 10, "blocks")),
    (3.0, StageIsReady(2, "CPU", 0.4, 1.2, 1.8)),
]

DECODING: list[tuple[float, RunEvent]] = [
    *PREPARING,
    (5.0, StageIsReady(0, "CUDA", 1.8, 4.3, 5.0)),
    (5.0, StageIsReady(1, "CPU", 2.1, 5.1, 6.0)),
    (5.5, EdgeMeasured(0, 1, "direct", 0.00021)),
    (5.5, EdgeMeasured(1, 2, "relay", 0.212)),
    (6.0, PhaseEntered("Running", 600.0, "--response-timeout")),
    (6.0, PromptInjected("r", 32)),
    *((6.4 + index * 0.1, TokenArrived("r", index, 5)) for index in range(11)),
    *((7.4, StageDoing(stage, StageState.DECODING)) for stage in range(3)),
    (7.4, StagePace(0, 10, 0.0081, 0.0004)),
]

RENTING: list[tuple[float, RunEvent]] = [
    (0.0, PhaseEntered("Planning")),
    (10.0, StageDoing(0, StageState.RENTING, "being rented")),
    (11.0, StagePlaced(0, "instance 4242, RTX 3060, Sweden, SE, 0.081 USD an hour")),
    (12.0, StageDoing(0, StageState.STARTING, "pulling the image: layer 3 of 7")),
    (14.0, MoneySpent(0.243, 0.0123)),
]


def told(run: RunBegan, events: list[tuple[float, RunEvent]]) -> DisplayState:
    state = begin(run, 0.0)
    for at, event in events:
        state = fold(state, event, at)
    return state
