"""The orchestrator's machine: every state meets every event, one barrier, one prompt, one first fault, one end."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from ppsmoke.errors import DeadlineExceeded, EdgeFaulted, StageDied, StageFaulted
from ppsmoke.messages import Feedback
from ppsmoke.orchestrator.machine import (
    Action,
    AwaitPrompt,
    CloseTokenEnds,
    ClusterFormed,
    CodeSent,
    Condition,
    ConditionMet,
    EmitToken,
    Event,
    Faulted,
    Finish,
    FinishAnswer,
    FormAgain,
    HoldEnded,
    InjectPrompt,
    InjectToken,
    Outcome,
    OutputClosed,
    Phase,
    PromptGiven,
    Provisioned,
    ProvisionStages,
    RestartStage,
    RunState,
    StageHasStopped,
    StageIsReady,
    StopStage,
    TokenConsumed,
    TokenEndsClosed,
    step,
)
from tests.samples import EOS, plan

DIRECT, ORCHESTRATED = Feedback.DIRECT, Feedback.ORCHESTRATOR
BEFORE_END = [Phase.PLANNING, Phase.PROVISIONING, Phase.WAITING_READY, Phase.RUNNING, Phase.IDLE]
BEFORE_PROMPT = BEFORE_END[:3]
SECOND, THIRD = "22" * 16, "33" * 16
FAULT = Faulted(StageFaulted("stage 1 broke", stage=1))

# ---- helpers ----


def play(state: RunState, *events: Event) -> tuple[RunState, list[Action]]:
    done: list[Action] = []
    for event in events:
        state, actions = step(state, event)
        done += actions
    return state, done


def names(actions: Iterable[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def preparations(stages: int = 3) -> list[Event]:
    return [*(StageIsReady(index) for index in range(stages)), *(ConditionMet(c) for c in Condition)]


def endings(stages: int = 3) -> list[Event]:
    return [*(StageHasStopped(index) for index in range(stages)), TokenEndsClosed()]


def running(feedback: Feedback = DIRECT, max_tokens: int = 5, stages: int = 3, *, hold: bool = False) -> RunState:
    fresh = RunState(plan(stages, feedback, max_tokens=max_tokens), hold=hold)
    state, _ = play(fresh, ClusterFormed(), Provisioned(), *preparations(stages))
    assert state.phase is Phase.RUNNING
    return state


def in_phase(phase: Phase) -> RunState:
    """A chain of 3 led to `phase`, held for Idle; the end was a fault."""
    to_running = [ClusterFormed(), Provisioned(), *preparations()]
    events: dict[Phase, list[Event]] = {
        Phase.PLANNING: [],
        Phase.PROVISIONING: to_running[:1],
        Phase.WAITING_READY: to_running[:2],
        Phase.RUNNING: to_running,
        Phase.IDLE: [*to_running, TokenConsumed(0, EOS)],
        Phase.REDEPLOYING: [*to_running, TokenConsumed(0, EOS), CodeSent()],
        Phase.TEARING_DOWN: [*to_running, FAULT],
        Phase.DONE: [*to_running, FAULT, *endings()],
    }
    state, _ = play(RunState(plan(3), hold=phase in (Phase.IDLE, Phase.REDEPLOYING)), *events[phase])
    assert state.phase is phase
    return state


# ---- every state x every event ----

EVENTS: dict[str, Event] = {
    "cluster formed": ClusterFormed(),
    "provisioned": Provisioned(),
    "stage ready": StageIsReady(1),
    "condition met": ConditionMet(Condition.ENTRY),
    "token": TokenConsumed(0, 7),
    "prompt given": PromptGiven("33" * 16, 4),
    "hold ended": HoldEnded("no further prompt"),
    "code sent": CodeSent(),
    "fault": Faulted(DeadlineExceeded("too late")),
    "output closed": OutputClosed(),
    "stage stopped": StageHasStopped(1),
    "token ends closed": TokenEndsClosed(),
}
STOPS = "TearingDown StopStage StopStage StopStage CloseTokenEnds"
# The new phase and the actions; what is not here changes nothing.
TABLE: dict[str, dict[str, str]] = {
    "Planning": {
        "cluster formed": "Provisioning ProvisionStages",
        "token": "Done Finish",
        "fault": "Done Finish",
        "output closed": "Done Finish",
    },
    "Provisioning": {
        "provisioned": "WaitingReady",
        "stage ready": "Provisioning",
        "condition met": "Provisioning",
        "token": STOPS,
        "fault": STOPS,
        "output closed": STOPS,
    },
    "WaitingReady": {
        "stage ready": "WaitingReady",
        "condition met": "WaitingReady",
        "token": STOPS,
        "fault": STOPS,
        "output closed": STOPS,
    },
    "Running": {"token": "Running EmitToken", "fault": STOPS, "output closed": STOPS},
    "Idle": {
        "token": STOPS,
        "prompt given": "Running InjectPrompt",
        "hold ended": STOPS,
        "code sent": "Redeploying RestartStage RestartStage RestartStage CloseTokenEnds",
        "fault": STOPS,
        "output closed": STOPS,
    },
    "Redeploying": {
        "stage stopped": "Redeploying",
        "token ends closed": "Redeploying",
        "token": STOPS,
        "fault": STOPS,
        "output closed": STOPS,
    },
    "TearingDown": {"stage stopped": "TearingDown", "token ends closed": "TearingDown"},
    "Done": {},
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("phase", list(Phase))
def test_every_state_meets_every_event(phase: Phase, name: str) -> None:
    before = in_phase(phase)
    after, actions = step(before, EVENTS[name])
    expected = TABLE[phase.value].get(name)
    if expected is None:
        assert (after, actions) == (before, ())
    else:
        new_phase, *wanted = expected.split()
        assert (after.phase.value, names(actions)) == (new_phase, wanted)
        assert after != before


# ---- the barrier ----


@pytest.mark.parametrize("stages", [2, 3, 5, 8])
def test_the_prompt_is_injected_once_when_everything_is_ready_in_any_order(stages: int) -> None:
    for seed in range(20):
        order = [Provisioned(), *preparations(stages)]
        random.Random(seed).shuffle(order)
        state, actions = play(RunState(plan(stages)), ClusterFormed(), *order[:-1])
        assert names(actions) == ["ProvisionStages"]
        assert state.phase is not Phase.RUNNING
        state, actions = play(state, order[-1], *preparations(stages), Provisioned())
        assert state.phase is Phase.RUNNING
        assert actions == [InjectPrompt()]


@pytest.mark.parametrize("missing", preparations(), ids=str)
def test_the_barrier_needs_every_single_one(missing: Event) -> None:
    others = [event for event in preparations() if event != missing]
    state, actions = play(in_phase(Phase.WAITING_READY), *others, *others)
    assert (state.phase, actions) == (Phase.WAITING_READY, [])
    assert len(state.awaited) == 1


def test_a_stage_that_is_not_in_the_plan_does_not_count() -> None:
    waiting = in_phase(Phase.WAITING_READY)
    assert play(waiting, StageIsReady(3), StageIsReady(-1)) == (waiting, [])


def test_what_is_awaited_is_said_in_words() -> None:
    assert in_phase(Phase.WAITING_READY).awaited == [
        "stage 0",
        "stage 1",
        "stage 2",
        "the token producer",
        "the token consumer",
        "pp-entry",
    ]
    assert in_phase(Phase.TEARING_DOWN).awaited == ["stage 0", "stage 1", "stage 2"]
    assert in_phase(Phase.RUNNING).awaited == []


# ---- tokens ----


def test_with_direct_feedback_tokens_are_shown_and_nothing_is_injected() -> None:
    state, actions = play(running(), TokenConsumed(0, 7), TokenConsumed(1, 8))
    assert actions == [EmitToken(7, None), EmitToken(8, None)]
    assert state.tokens == (7, 8)


def test_with_orchestrator_feedback_each_token_is_injected_after_it_was_consumed() -> None:
    state, actions = play(running(ORCHESTRATED), TokenConsumed(0, 7))
    assert actions == [EmitToken(7, None), InjectToken(1, 7)]
    state, actions = play(state, TokenConsumed(1, 8))
    assert actions == [EmitToken(8, None), InjectToken(2, 8)]


@pytest.mark.parametrize("feedback", list(Feedback))
@pytest.mark.parametrize(("last_token", "reason"), [(9, "max_tokens"), (EOS, "eos")])
def test_the_run_completes_at_the_limit_or_the_end_token(feedback: Feedback, last_token: int, reason: str) -> None:
    state, actions = play(running(feedback, max_tokens=2), TokenConsumed(0, 7), TokenConsumed(1, last_token))
    assert (state.phase, state.outcome, state.finish_reason) == (Phase.TEARING_DOWN, Outcome.COMPLETED, reason)
    assert state.error is None
    assert EmitToken(last_token, reason) in actions
    assert names(actions)[-4:] == ["StopStage", "StopStage", "StopStage", "CloseTokenEnds"]
    injected = [action.sequence for action in actions if isinstance(action, InjectToken)]
    assert injected == ([1] if feedback is ORCHESTRATED else [])


@pytest.mark.parametrize("feedback", list(Feedback))
def test_the_end_token_may_be_the_first(feedback: Feedback) -> None:
    state, actions = play(running(feedback), TokenConsumed(0, EOS))
    assert (state.outcome, state.finish_reason, state.tokens) == (Outcome.COMPLETED, "eos", (EOS,))
    assert "InjectToken" not in names(actions)


@pytest.mark.parametrize("reason", ["eos", "max_tokens"])
def test_the_last_stages_word_that_it_is_over_is_taken(reason: str) -> None:
    state, actions = play(running(), TokenConsumed(0, 7, reason))  # type: ignore[arg-type]
    assert (state.outcome, state.finish_reason) == (Outcome.COMPLETED, reason)
    assert actions[0] == EmitToken(7, reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("sequence", [0, 2, 3, -1])
def test_a_token_out_of_order_is_a_fault(sequence: int) -> None:
    state, actions = play(running(), TokenConsumed(0, 7), TokenConsumed(sequence, 8))
    assert isinstance(state.error, EdgeFaulted)
    assert f"token {sequence} arrived on TokenOut, expected token 1" in str(state.error)
    assert state.tokens == (7,)
    assert names(actions).count("EmitToken") == 1


@pytest.mark.parametrize("phase", BEFORE_PROMPT)
def test_a_token_before_the_prompt_is_a_fault(phase: Phase) -> None:
    state, _ = play(in_phase(phase), TokenConsumed(0, 7))
    assert state.outcome is Outcome.FAULTED
    assert "before the prompt was injected" in str(state.error)


@pytest.mark.parametrize("feedback", list(Feedback))
def test_a_token_after_the_end_is_dropped(feedback: Feedback) -> None:
    over, _ = play(running(feedback, max_tokens=1), TokenConsumed(0, 7))
    assert step(over, TokenConsumed(1, 8)) == (over, ())
    done, _ = play(over, *endings())
    assert step(done, TokenConsumed(1, 8)) == (done, ())


# ---- the end ----


@pytest.mark.parametrize("phase", BEFORE_END)
def test_a_fault_stops_exactly_the_stages_that_were_provisioned(phase: Phase) -> None:
    state, actions = play(in_phase(phase), FAULT)
    stopped = [action.stage_index for action in actions if isinstance(action, StopStage)]
    assert stopped == ([] if phase is Phase.PLANNING else [0, 1, 2])
    assert (CloseTokenEnds("stage 1 broke") in actions) == (phase is not Phase.PLANNING)
    assert all(action.reason == "stage 1 broke" for action in actions if isinstance(action, StopStage))
    assert (state.outcome, state.error) == (Outcome.FAULTED, FAULT.error)


@pytest.mark.parametrize("phase", BEFORE_END)
def test_only_the_first_fault_counts(phase: Phase) -> None:
    state, actions = play(in_phase(phase), FAULT, Faulted(StageDied("stage 0 died")), OutputClosed(), *endings())
    assert state.error is FAULT.error
    assert state.phase is Phase.DONE
    assert names(actions).count("StopStage") == (0 if phase is Phase.PLANNING else 3)


def test_a_fault_after_completion_does_not_spoil_it() -> None:
    completed, _ = play(running(max_tokens=1), TokenConsumed(0, 7))
    state, actions = play(completed, FAULT, *endings())
    assert (state.phase, state.outcome, state.error) == (Phase.DONE, Outcome.COMPLETED, None)
    assert actions == [Finish()]


@pytest.mark.parametrize("phase", BEFORE_END)
def test_a_closed_output_ends_the_run_well(phase: Phase) -> None:
    state, actions = play(in_phase(phase), OutputClosed(), FAULT)
    assert (state.outcome, state.error) == (Outcome.COMPLETED, None)
    assert state.finish_reason == ("eos" if phase is Phase.IDLE else None)
    assert names(actions).count("StopStage") == (0 if phase is Phase.PLANNING else 3)


def test_the_run_finishes_once_when_everything_has_ended_in_any_order() -> None:
    for seed in range(20):
        order = endings()
        random.Random(seed).shuffle(order)
        state, actions = play(in_phase(Phase.TEARING_DOWN), *order[:-1], *order[:-1])
        assert (state.phase, actions) == (Phase.TEARING_DOWN, [])
        state, actions = play(state, order[-1], *endings(), FAULT)
        assert (state.phase, actions) == (Phase.DONE, [Finish()])


@pytest.mark.parametrize("missing", endings(), ids=str)
def test_the_end_needs_every_single_one(missing: Event) -> None:
    state, actions = play(in_phase(Phase.TEARING_DOWN), *(event for event in endings() if event != missing))
    assert (state.phase, actions) == (Phase.TEARING_DOWN, [])


def test_a_late_ready_does_not_start_a_run_that_is_over() -> None:
    for phase in (Phase.PROVISIONING, Phase.WAITING_READY):
        _, actions = play(in_phase(phase), FAULT, Provisioned(), *preparations())
        assert "InjectPrompt" not in names(actions)


# ---- further prompts ----

IN_ANSWER, _ = play(in_phase(Phase.IDLE), PromptGiven(SECOND, 3))


@pytest.mark.parametrize("feedback", list(Feedback))
def test_a_held_run_waits_after_its_answer_and_stops_no_stage(feedback: Feedback) -> None:
    state, actions = play(running(feedback, 2, hold=True), TokenConsumed(0, 7), TokenConsumed(1, 8))
    assert (state.phase, state.outcome, state.finish_reason, state.answers) == (Phase.IDLE, None, "max_tokens", 1)
    assert actions[-2:] == [EmitToken(8, "max_tokens"), FinishAnswer()]
    assert state.doing == "waiting for a prompt"


def test_a_held_run_without_a_prompt_waits_for_one_when_it_is_ready() -> None:
    fresh = RunState(plan(3), hold=True, unprompted=True)
    state, actions = play(fresh, ClusterFormed(), Provisioned(), *preparations())
    assert (state.phase, actions[-1], state.answers) == (Phase.IDLE, AwaitPrompt(), 0)
    state, actions = play(state, PromptGiven(SECOND, 2))
    assert (state.phase, actions) == (Phase.RUNNING, [InjectPrompt()])


@pytest.mark.parametrize("feedback", list(Feedback))
def test_each_further_prompt_is_a_request_of_its_own(feedback: Feedback) -> None:
    state = running(feedback, hold=True)
    state, _ = play(state, TokenConsumed(0, 7), TokenConsumed(1, EOS))
    for number, request in enumerate((SECOND, THIRD), start=2):
        state, actions = play(state, PromptGiven(request, 2))
        assert actions == [InjectPrompt()]
        assert (state.phase, state.tokens, state.finish_reason) == (Phase.RUNNING, (), None)
        state, actions = play(state, TokenConsumed(0, 7, None, request), TokenConsumed(1, 8, None, request))
        assert (state.phase, state.tokens, state.answers) == (Phase.IDLE, (7, 8), number)
        assert actions[-1] == FinishAnswer()
        assert names(actions).count("InjectToken") == (feedback is ORCHESTRATED)


def test_the_limit_is_the_requests_own() -> None:
    """Less may fit behind a longer prompt, and more behind a shorter one, than behind the first."""
    for most in (1, 3):
        state, _ = play(in_phase(Phase.IDLE), PromptGiven(SECOND, most))
        state, _ = play(state, *(TokenConsumed(sequence, 7, None, SECOND) for sequence in range(most)))
        assert (state.phase, state.finish_reason, len(state.tokens)) == (Phase.IDLE, "max_tokens", most)


@pytest.mark.parametrize("request_id", ["", THIRD])
def test_a_token_of_another_request_is_a_fault(request_id: str) -> None:
    state, actions = play(IN_ANSWER, TokenConsumed(0, 7, None, request_id))
    assert "arrived on TokenOut, not of request 22222222" in str(state.error)
    assert "EmitToken" not in names(actions)


def test_a_token_after_the_answer_is_a_fault() -> None:
    state, _ = play(in_phase(Phase.IDLE), TokenConsumed(1, 7))
    assert "after its answer was whole" in str(state.error)


def test_the_end_of_the_hold_is_a_good_one_and_says_why() -> None:
    state, actions = play(in_phase(Phase.IDLE), HoldEnded("no further prompt"), *endings())
    assert (state.phase, state.outcome, state.error, state.answers) == (Phase.DONE, Outcome.COMPLETED, None, 1)
    assert StopStage(1, "no further prompt") in actions


def test_a_fault_in_a_later_answer_keeps_what_came_of_it() -> None:
    state, _ = play(IN_ANSWER, TokenConsumed(0, 7, None, SECOND), FAULT)
    assert (state.outcome, state.tokens, state.finish_reason, state.answers) == (Outcome.FAULTED, (7,), None, 1)


# ---- new code ----


def test_new_code_stops_every_stage_and_forms_a_chain_that_waits_for_a_prompt() -> None:
    state, actions = play(in_phase(Phase.IDLE), CodeSent())
    assert (state.phase, state.doing) == (Phase.REDEPLOYING, "redeploy")
    assert actions[:3] == [RestartStage(0), RestartStage(1), RestartStage(2)]
    assert names(actions[3:]) == ["CloseTokenEnds"]
    *first, last = endings()
    state, actions = play(state, *first)
    assert (state.phase, actions) == (Phase.REDEPLOYING, [])
    state, actions = play(state, last)
    assert (state.phase, state.doing, actions) == (Phase.PLANNING, "redeploy", [FormAgain()])
    state, actions = play(state, ClusterFormed(), Provisioned(), *preparations())
    assert (state.phase, actions) == (Phase.IDLE, [ProvisionStages()])
    state, actions = play(state, PromptGiven(SECOND, 3), TokenConsumed(0, EOS, None, SECOND))
    assert (state.phase, state.answers, names(actions)) == (
        Phase.IDLE,
        2,
        ["InjectPrompt", "EmitToken", "FinishAnswer"],
    )


@pytest.mark.parametrize("after", range(5))
def test_a_fault_while_stages_restart_stops_whatever_may_live(after: int) -> None:
    state, actions = play(in_phase(Phase.REDEPLOYING), *endings()[:after], FAULT)
    if after == 4:  # nothing was provisioned of the new chain
        assert (state.phase, names(actions)) == (Phase.DONE, ["FormAgain", "Finish"])
        return
    assert [action.stage_index for action in actions if isinstance(action, StopStage)] == [0, 1, 2]
    state, _ = play(state, *endings())
    assert (state.phase, state.outcome) == (Phase.DONE, Outcome.FAULTED)


# ---- random schedules ----


class Promises:
    """Watches one machine and asserts what must hold after every step."""

    def __init__(self, feedback: Feedback, stages: int, max_tokens: int, *, hold: bool) -> None:
        self.state = RunState(plan(stages, feedback, max_tokens=max_tokens), hold=hold)
        self.feedback, self.stages, self.max_tokens = feedback, stages, max_tokens
        self.heard: set[Event] = set()
        self.actions: list[Action] = []
        self.prompts = 1
        self.shown: list[int] = []
        self.first_fault: object = None

    def feed(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(before, event)
        self.heard.add(event)
        over = before.outcome is not None
        if self.state.phase is Phase.RUNNING and before.phase is Phase.IDLE:
            assert isinstance(event, PromptGiven)
            assert actions == (InjectPrompt(),)
            self.prompts += 1
            self.shown.clear()
        if isinstance(event, Faulted) and not over:
            self.first_fault = event.error
        for action in actions:
            if isinstance(action, (InjectPrompt, InjectToken, EmitToken, ProvisionStages, StopStage)):
                assert not over
            if isinstance(action, InjectPrompt):
                assert self.heard >= {ClusterFormed(), Provisioned(), *preparations(self.stages)}
            if isinstance(action, EmitToken):
                self.shown.append(action.token)
            if isinstance(action, FinishAnswer):
                assert self.state.hold
                assert self.state.phase is Phase.IDLE
                assert self.state.finish_reason is not None
            if isinstance(action, InjectToken):
                assert self.feedback is ORCHESTRATED
                assert self.state.tokens[action.sequence - 1] == action.token
                assert len(self.state.tokens) == action.sequence
        self.actions += actions
        self.check()

    def check(self) -> None:
        did = names(self.actions)
        for once in ("ProvisionStages", "CloseTokenEnds", "Finish"):
            assert did.count(once) <= 1
        assert did.count("InjectPrompt") <= self.prompts
        assert did.count("FinishAnswer") == (self.state.answers if self.state.hold else 0)
        assert (did.count("Finish") == 1) == (self.state.phase is Phase.DONE)
        stopped = [action.stage_index for action in self.actions if isinstance(action, StopStage)]
        wanted = self.state.outcome is not None and "ProvisionStages" in did
        assert stopped == (list(range(self.stages)) if wanted else [])
        assert tuple(self.shown) == self.state.tokens
        assert len(self.shown) <= max(self.max_tokens, self.state.max_tokens or 0)
        assert EOS not in self.shown[:-1]
        assert (self.state.outcome is Outcome.FAULTED) == (self.state.error is not None)
        if self.first_fault is not None:
            assert self.state.error is self.first_fault


def next_legal(state: RunState, rng: random.Random) -> Event:
    match state.phase:
        case Phase.PLANNING:
            return ClusterFormed()
        case Phase.PROVISIONING:
            return rng.choice([Provisioned(), *preparations(len(state.plan.stages))])
        case Phase.WAITING_READY:
            return rng.choice(preparations(len(state.plan.stages)))
        case Phase.RUNNING:
            return TokenConsumed(len(state.tokens), rng.randrange(8), None, state.request_id)
        case Phase.IDLE:
            return rng.choice([PromptGiven(f"{state.answers:032x}", rng.randint(1, 6))] * 4 + [HoldEnded("over")])
        case _:
            return rng.choice(endings(len(state.plan.stages)))


def anything(rng: random.Random) -> Event:
    return rng.choice(
        [
            *(event for event in EVENTS.values() if event != CodeSent()),
            TokenConsumed(rng.randrange(4), rng.randrange(4), rng.choice([None, None, "eos"])),
            TokenConsumed(rng.randrange(4), rng.randrange(4), None, f"{rng.randrange(3):032x}"),
            *[PromptGiven(f"{rng.randrange(3):032x}", 2)] * 3,
            StageIsReady(rng.randrange(6)),
            StageHasStopped(rng.randrange(6)),
            *[Provisioned()] * 20,
        ]
    )


@pytest.mark.parametrize("disorder", [0.0, 0.05, 0.3, 0.9])
def test_random_schedules_keep_the_promises(disorder: float) -> None:
    outcomes: set[Outcome | None] = set()
    answers = 0
    for seed in range(150):
        rng = random.Random(f"{disorder} {seed}")
        promises = Promises(rng.choice(list(Feedback)), rng.choice([2, 3, 5]), rng.randint(1, 6), hold=seed % 2 == 0)
        for _ in range(80):
            promises.feed(anything(rng) if rng.random() < disorder else next_legal(promises.state, rng))
        outcomes.add(promises.state.outcome)
        answers = max(answers, promises.state.answers)
    assert outcomes >= ({Outcome.COMPLETED} if disorder == 0 else set(Outcome))
    assert answers > 3 or disorder > 0.1
