"""The stage machine executes the next object only, one at a time; anything else is a fault with its reason."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ppsmoke.stage.machine import Action, ExecuteStep, ForgetRequest, ObjectLoaded, ReleaseInput, StepDone, step
from ppsmoke.stage.stage_state import Handle, Phase, StageState
from tests.samples import OTHER_REQUEST, REQUEST
from tests.stage.machines import (
    ACTIVATION,
    FEEDBACK,
    ORCHESTRATED,
    STOP,
    TOKEN_IN,
    fault,
    in_phase,
    names,
    play,
    prompt,
    ready,
    token,
)


def run_steps(state: StageState, *handles: Handle) -> tuple[StageState, list[Action]]:
    """Each object is loaded and its step done."""
    return play(state, *(event for handle in handles for event in (ObjectLoaded(handle), StepDone(handle))))


def executed(actions: Iterable[Action]) -> list[Handle]:
    return [action.handle for action in actions if isinstance(action, ExecuteStep)]


def released(actions: Iterable[Action]) -> list[Handle]:
    return [action.handle for action in actions if isinstance(action, ReleaseInput)]


@pytest.mark.parametrize(
    ("state", "handles"),
    [
        (ready(0), [prompt(), token(1), token(2)]),
        (ready(0), [prompt(0, last=False), prompt(1, last=False), prompt(2), token(1)]),
        (ready(0, ORCHESTRATED), [prompt(), token(1, on=TOKEN_IN), token(2, on=TOKEN_IN)]),
        (ready(1), [prompt(on=ACTIVATION), token(1, on=ACTIVATION)]),
        (ready(2), [prompt(0, last=False, on=2), prompt(1, on=2), token(1, on=2)]),
    ],
)
def test_steps_in_order_are_executed_and_released(state: StageState, handles: list[Handle]) -> None:
    after, actions = run_steps(state, *handles)
    assert after.phase is Phase.READY
    assert executed(actions) == released(actions) == handles


def test_one_step_runs_at_a_time_and_the_queued_one_follows_its_release() -> None:
    first, second, third = prompt(0, last=False), prompt(1), token(1)
    state, actions = play(ready(), *map(ObjectLoaded, (first, second, third)))
    assert executed(actions) == [first]
    state, actions = play(state, StepDone(first))
    assert actions == [ReleaseInput(first), ExecuteStep(second)]
    state, actions = play(state, StepDone(second), StepDone(third))
    assert actions == [ReleaseInput(second), ExecuteStep(third), ReleaseInput(third)]
    assert state.phase is Phase.READY


def test_a_step_done_that_is_not_the_running_one_changes_nothing() -> None:
    running = in_phase(Phase.EXECUTING)
    for other in (token(1), prompt(1), prompt(request=OTHER_REQUEST), prompt(on=FEEDBACK)):
        assert step(running, StepDone(other)) == (running, ())


AFTER_PROMPT, _ = run_steps(ready(), prompt())
IN_PARTS, _ = run_steps(ready(), prompt(0, last=False))
AFTER_PROMPT_ORCHESTRATED, _ = run_steps(ready(0, ORCHESTRATED), prompt())
MIDDLE, _ = run_steps(ready(1), prompt(on=ACTIVATION))

OUT_OF_ORDER = {
    "a decode step first": (ready(), token(1), "expected sequence 0 part 0"),
    "a later part first": (ready(), prompt(1), "expected sequence 0 part 0"),
    "the prompt twice": (AFTER_PROMPT, prompt(), "expected sequence 1 part 0"),
    "a part after the last": (AFTER_PROMPT, prompt(1), "expected sequence 1 part 0"),
    "a sequence left out": (AFTER_PROMPT, token(2), "expected sequence 1 part 0"),
    "a sequence twice": (run_steps(AFTER_PROMPT, token(1))[0], token(1), "expected sequence 2 part 0"),
    "a part left out": (IN_PARTS, prompt(2), "expected sequence 0 part 1"),
    "a part twice": (IN_PARTS, prompt(0, last=False), "expected sequence 0 part 1"),
    "a decode step before the last part": (IN_PARTS, token(1), "expected sequence 0 part 1"),
    "a decode step with a part": (AFTER_PROMPT, token(1, part=1), "expected sequence 1 part 0"),
    "a decode step in parts": (AFTER_PROMPT, token(1, last_part=False), "only a prompt travels in parts"),
    "another request's decode step": (AFTER_PROMPT, token(1, request_id=OTHER_REQUEST), "is out of order"),
    "another request's later part": (AFTER_PROMPT, prompt(1, request=OTHER_REQUEST), "is out of order"),
    "the end of another request": (
        AFTER_PROMPT,
        token(1, request_id=OTHER_REQUEST, done=True),
        "is out of order",
    ),
    "the end of a request never begun": (ready(), token(1, done=True), "is out of order"),
    "the end too late": (AFTER_PROMPT, token(2, done=True), "expected sequence 1 part 0"),
    "an unknown edge": (ready(), prompt(on=99), "edge 99, which is no inbound edge of this stage"),
    "an outbound edge": (ready(), prompt(on=1), "edge 1, which is no inbound edge of this stage"),
    "the end on an unknown edge": (AFTER_PROMPT, token(1, on=99, done=True), "edge 99"),
    "another stage's edge": (MIDDLE, token(1, on=2), "edge 2, which is no inbound edge of this stage"),
    "the orchestrator feeding although Last does": (
        AFTER_PROMPT,
        token(1, on=TOKEN_IN),
        "although the last stage feeds tokens back",
    ),
    "a prompt from the last stage": (ready(), prompt(on=FEEDBACK), "a prompt comes from the orchestrator"),
    "Last feeding although the orchestrator does": (AFTER_PROMPT_ORCHESTRATED, token(1, on=FEEDBACK), "edge 4"),
    "a sequence left out by the orchestrator": (
        AFTER_PROMPT_ORCHESTRATED,
        token(2, on=TOKEN_IN),
        "expected sequence 1 part 0",
    ),
}


@pytest.mark.parametrize(("state", "handle", "reason"), OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_an_object_that_is_not_the_next_one_is_a_fault(state: StageState, handle: Handle, reason: str) -> None:
    emitted = fault(state, ObjectLoaded(handle))
    assert reason in emitted.reason
    assert emitted.code == "out_of_order"


def test_a_queued_object_out_of_order_faults_after_the_running_step() -> None:
    state, actions = play(ready(), ObjectLoaded(prompt()), ObjectLoaded(token(2)))
    assert names(actions) == ["ExecuteStep"]
    state, actions = play(state, StepDone(prompt()))
    assert names(actions) == ["ReleaseInput", "EmitFault"]
    assert state.phase is Phase.FAULTED


def test_the_end_of_a_request_is_released_and_not_computed() -> None:
    end = token(1, done=True)
    state, actions = play(AFTER_PROMPT, ObjectLoaded(end))
    assert state.phase is Phase.READY
    assert actions == [ReleaseInput(end)]


def test_the_end_that_overtakes_the_news_of_its_step_waits_for_it() -> None:
    end = token(1, done=True)
    state, actions = play(ready(), ObjectLoaded(prompt()), ObjectLoaded(end))
    assert names(actions) == ["ExecuteStep"]
    state, actions = play(state, StepDone(prompt()))
    assert actions == [ReleaseInput(prompt()), ReleaseInput(end)]
    assert state.phase is Phase.READY


@pytest.mark.parametrize("late", [token(1), token(2), prompt(), token(1, done=True)])
def test_nothing_of_a_request_follows_its_end(late: Handle) -> None:
    ended, _ = play(AFTER_PROMPT, ObjectLoaded(token(1, done=True)))
    assert "after the end of its request" in fault(ended, ObjectLoaded(late)).reason


# ---- one request after the other ----

OVER, _ = play(AFTER_PROMPT, ObjectLoaded(token(1, done=True)))
NEW = prompt(request=OTHER_REQUEST)
THIRD_REQUEST = "33" * 16


def test_a_new_request_may_follow_the_end_of_another_which_is_forgotten_first() -> None:
    state, actions = run_steps(OVER, NEW, token(1, request_id=OTHER_REQUEST))
    assert executed(actions) == [NEW, token(1, request_id=OTHER_REQUEST)]
    assert actions[:2] == [ForgetRequest(REQUEST), ExecuteStep(NEW)]
    assert names(actions).count("ForgetRequest") == 1
    state, actions = play(state, ObjectLoaded(token(2, request_id=OTHER_REQUEST, done=True)))
    _, actions = play(state, ObjectLoaded(prompt(request=THIRD_REQUEST)))
    assert names(actions) == ["ForgetRequest", "ExecuteStep"]
    assert actions[0] == ForgetRequest(OTHER_REQUEST)


def test_the_first_request_of_a_run_has_nothing_to_forget() -> None:
    _, actions = run_steps(ready(), prompt(0, last=False), prompt(1), token(1))
    assert "ForgetRequest" not in names(actions)


@pytest.mark.parametrize(
    "state",
    [
        run_steps(ready(1), prompt(on=ACTIVATION), token(1, on=ACTIVATION))[0],
        run_steps(ready(2), prompt(on=2), token(1, on=2))[0],
        run_steps(ready(0, ORCHESTRATED), prompt(), token(1, on=TOKEN_IN))[0],
    ],
    ids=["a middle stage", "the last stage", "a first stage that the orchestrator feeds"],
)
def test_where_no_end_is_told_a_new_request_is_it(state: StageState) -> None:
    assert state.provision is not None
    new = prompt(on=state.provision.inbound[0].edge_id, request=OTHER_REQUEST)
    _, actions = play(state, ObjectLoaded(new))
    assert actions == [ForgetRequest(REQUEST), ExecuteStep(new)]


def test_a_prompt_that_overtakes_the_end_of_the_former_request_waits_for_it() -> None:
    """They come on two edges."""
    first, second = prompt(0, last=False, request=OTHER_REQUEST), prompt(1, request=OTHER_REQUEST)
    state, actions = play(AFTER_PROMPT, ObjectLoaded(first), ObjectLoaded(second))
    assert actions == []
    state, actions = run_steps(state, token(1))
    assert executed(actions) == [token(1)]
    state, actions = play(state, ObjectLoaded(token(2, done=True)))
    assert actions == [ReleaseInput(token(2, done=True)), ForgetRequest(REQUEST), ExecuteStep(first)]
    state, actions = play(state, StepDone(first))
    assert actions == [ReleaseInput(first), ExecuteStep(second)]


def test_it_waits_also_where_the_last_step_is_not_done_yet() -> None:
    end = token(1, done=True)
    state, actions = play(ready(), ObjectLoaded(prompt()), ObjectLoaded(NEW), ObjectLoaded(end))
    assert executed(actions) == [prompt()]
    _, actions = play(state, StepDone(prompt()))
    assert actions == [ReleaseInput(prompt()), ReleaseInput(end), ForgetRequest(REQUEST), ExecuteStep(NEW)]


STALE, _ = play(*[run_steps(OVER, NEW)[0], ObjectLoaded(token(1, request_id=OTHER_REQUEST, done=True))])


@pytest.mark.parametrize(
    ("state", "handle", "reason"),
    [
        (STALE, prompt(), "came after another request had begun"),
        (STALE, token(1), "came after another request had begun"),
        (STALE, token(1, done=True), "came after another request had begun"),
        (run_steps(OVER, NEW)[0], prompt(), "came after another request had begun"),
        (run_steps(OVER, NEW)[0], token(1), "came after another request had begun"),
        (IN_PARTS, NEW, "came in the middle of the prompt of request 11111111"),
        (run_steps(ready(1), prompt(0, last=False, on=ACTIVATION))[0], prompt(on=ACTIVATION, request=OTHER_REQUEST),
         "came in the middle of the prompt of request 11111111"),
        (OVER, prompt(1, request=OTHER_REQUEST), "out of order"),
        (OVER, token(1, request_id=OTHER_REQUEST), "out of order"),
    ],
)  # fmt: skip
def test_a_request_out_of_its_turn_is_a_fault(state: StageState, handle: Handle, reason: str) -> None:
    assert reason in fault(state, ObjectLoaded(handle)).reason


def test_a_stop_ends_a_prompt_that_waits() -> None:
    state, _ = play(AFTER_PROMPT, ObjectLoaded(NEW), STOP)
    assert state.loaded == ()
    _, actions = play(state, ObjectLoaded(token(1, done=True)))
    assert "ExecuteStep" not in names(actions)
