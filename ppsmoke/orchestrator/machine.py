"""The orchestrator's state machine, pure: `step(state, event)` gives the next state and the actions to perform.

    Planning -> Provisioning -> WaitingReady -> Running -> Completed -> TearingDown -> Done
    any of the first four -> Faulted -> TearingDown -> Done, with the first reason only

A held run answers further prompts on the same chain; between two it is Idle, and it tears down when no prompt follows:

    Running -> Idle -> Running -> ... -> Idle -> Completed -> TearingDown

One that is given no prompt to begin with goes from WaitingReady to Idle.

New code for its nodes makes it a chain anew, between two prompts:

    Idle -> Redeploying -> Planning -> Provisioning -> WaitingReady -> Idle

`Completed` and `Faulted` pass at once into `TearingDown`: their moment is the action list that stops injecting and
sends `StopRun`. The state keeps `outcome` so that both can be told apart to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ppsmoke.errors import EdgeFaulted, PpError
from ppsmoke.messages import Feedback
from ppsmoke.objects import FinishReason, finish_reason
from ppsmoke.plan import RunPlan


class Phase(StrEnum):
    PLANNING = "Planning"
    PROVISIONING = "Provisioning"
    WAITING_READY = "WaitingReady"
    RUNNING = "Running"
    IDLE = "Idle"
    REDEPLOYING = "Redeploying"
    TEARING_DOWN = "TearingDown"
    DONE = "Done"


class Outcome(StrEnum):
    COMPLETED = "Completed"
    FAULTED = "Faulted"


class Condition(StrEnum):
    """What WaitingReady waits for besides the stages."""

    TOKEN_PRODUCER = "the token producer"
    TOKEN_CONSUMER = "the token consumer"
    ENTRY = "pp-entry"


# ---- events ----


@dataclass(frozen=True, slots=True)
class ClusterFormed:
    """The plan is valid and every planned node is an alive member."""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """Every ProvisionStage was handed to its stage's link."""


@dataclass(frozen=True, slots=True)
class StageIsReady:
    stage_index: int


@dataclass(frozen=True, slots=True)
class ConditionMet:
    condition: Condition


@dataclass(frozen=True, slots=True)
class TokenConsumed:
    """One object of TokenOut. `finish_reason` is set where the last stage decided that the request is over."""

    sequence: int
    token: int
    finish_reason: FinishReason | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class PromptGiven:
    """A held run's next prompt. `request_id` was never used before; `max_tokens` as in RunState."""

    request_id: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """No prompt follows: the run is over, and well."""

    reason: str


@dataclass(frozen=True, slots=True)
class CodeSent:
    """Every stage has new code and can restart with it."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """A stage's fault, a dead member, an edge fault, a fault of a local token end, a deadline, a signal."""

    error: PpError


@dataclass(frozen=True, slots=True)
class OutputClosed:
    """Nobody reads the text any more: the run is over, and well."""


@dataclass(frozen=True, slots=True)
class StageHasStopped:
    """StageStopped came, or its deadline passed, or its process is known to be gone."""

    stage_index: int


@dataclass(frozen=True, slots=True)
class TokenEndsClosed:
    pass


Event = (
    ClusterFormed
    | Provisioned
    | StageIsReady
    | ConditionMet
    | TokenConsumed
    | PromptGiven
    | HoldEnded
    | CodeSent
    | Faulted
    | OutputClosed
    | StageHasStopped
    | TokenEndsClosed
)

# ---- actions ----


@dataclass(frozen=True, slots=True)
class ProvisionStages:
    """Send ProvisionStage to every stage, and create the local token producer and consumer."""


@dataclass(frozen=True, slots=True)
class InjectPrompt:
    """Sequence 0: the whole prompt."""


@dataclass(frozen=True, slots=True)
class AwaitPrompt:
    """The chain is ready and no prompt was given: take the first one from where the further ones come."""


@dataclass(frozen=True, slots=True)
class InjectToken:
    """Feed token `sequence - 1` back as the input of step `sequence` (only with orchestrator feedback)."""

    sequence: int
    token: int


@dataclass(frozen=True, slots=True)
class EmitToken:
    token: int
    finish_reason: FinishReason | None


@dataclass(frozen=True, slots=True)
class FinishAnswer:
    """The answer is whole, and the chain waits for another prompt."""


@dataclass(frozen=True, slots=True)
class StopStage:
    stage_index: int
    reason: str


@dataclass(frozen=True, slots=True)
class RestartStage:
    """As StopStage; then another node begins in its place, with the new code."""

    stage_index: int


@dataclass(frozen=True, slots=True)
class FormAgain:
    """No node of the old chain is left; plan for those that begin, and wait for them to join."""


@dataclass(frozen=True, slots=True)
class CloseTokenEnds:
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Every stage stopped or was given up; processes may be ended now."""


Action = (
    ProvisionStages
    | InjectPrompt
    | AwaitPrompt
    | InjectToken
    | EmitToken
    | FinishAnswer
    | StopStage
    | RestartStage
    | FormAgain
    | CloseTokenEnds
    | Finish
)


@dataclass(frozen=True, slots=True)
class RunState:
    """`request_id`, `max_tokens` (the plan's where None), `tokens` and `finish_reason` are the newest request's;
    `answers`: how many are whole. `hold`: after an answer the run waits for another prompt. `again`: the chain is being
    formed anew, with no prompt to begin with. `unprompted`: nor has the run one, which holds."""

    plan: RunPlan
    phase: Phase = Phase.PLANNING
    stages_awaited: frozenset[int] = frozenset()
    conditions_awaited: frozenset[Condition] = frozenset(Condition)
    provisioned: bool = False
    tokens: tuple[int, ...] = ()
    outcome: Outcome | None = None
    finish_reason: FinishReason | None = None
    error: PpError | None = None
    token_ends_open: bool = False
    hold: bool = False
    request_id: str = ""
    max_tokens: int | None = None
    answers: int = 0
    again: bool = False
    unprompted: bool = False

    @property
    def doing(self) -> str:
        """The phase in a user's words, for errors."""
        match self.phase:
            case Phase.REDEPLOYING:
                return "redeploy"
            case Phase.PLANNING | Phase.PROVISIONING | Phase.WAITING_READY if self.again:
                return "redeploy"
            case Phase.PLANNING:
                return "boot"
            case Phase.PROVISIONING | Phase.WAITING_READY:
                return "preparing the stages"
            case Phase.RUNNING:
                return "decode" if self.tokens else "prefill"
            case Phase.IDLE:
                return "waiting for a prompt"
            case _:
                return "teardown"

    @property
    def awaited(self) -> list[str]:
        """What the current phase still waits for, in words."""
        names = [f"stage {index}" for index in sorted(self.stages_awaited)]
        if self.phase is Phase.WAITING_READY:
            names += [condition.value for condition in Condition if condition in self.conditions_awaited]
        return names


Step = tuple[RunState, tuple[Action, ...]]
_BEFORE_END = frozenset(
    {Phase.PLANNING, Phase.PROVISIONING, Phase.WAITING_READY, Phase.RUNNING, Phase.IDLE, Phase.REDEPLOYING}
)


def step(state: RunState, event: Event) -> Step:
    """The next state and what to do, in order. Events that come late (after the first fault, say) change nothing."""
    match event:
        case ClusterFormed() if state.phase is Phase.PLANNING:
            stages = frozenset(range(len(state.plan.stages)))
            provisioning = replace(
                state, phase=Phase.PROVISIONING, provisioned=True, stages_awaited=stages, token_ends_open=True
            )
            return provisioning, (ProvisionStages(),)
        case Provisioned() if state.phase is Phase.PROVISIONING:
            return _maybe_start(replace(state, phase=Phase.WAITING_READY))
        case StageIsReady(index) if state.phase in (Phase.PROVISIONING, Phase.WAITING_READY):
            return _maybe_start(replace(state, stages_awaited=state.stages_awaited - {index}))
        case ConditionMet(condition) if state.phase in (Phase.PROVISIONING, Phase.WAITING_READY):
            return _maybe_start(replace(state, conditions_awaited=state.conditions_awaited - {condition}))
        case TokenConsumed():
            return _consume(state, event)
        case PromptGiven(request_id, max_tokens) if state.phase is Phase.IDLE:
            begun = replace(
                state,
                phase=Phase.RUNNING,
                request_id=request_id,
                max_tokens=max_tokens,
                tokens=(),
                finish_reason=None,
            )
            return begun, (InjectPrompt(),)
        case HoldEnded(reason) if state.phase is Phase.IDLE:
            return _tear_down(replace(state, outcome=Outcome.COMPLETED), reason)
        case CodeSent() if state.phase is Phase.IDLE:
            stages = frozenset(range(len(state.plan.stages)))
            restarts = tuple(RestartStage(index) for index in sorted(stages))
            redeploying = replace(state, phase=Phase.REDEPLOYING, stages_awaited=stages, again=True)
            return redeploying, (*restarts, CloseTokenEnds("new code takes the nodes' place"))
        case StageHasStopped(index) if state.phase is Phase.REDEPLOYING:
            return _maybe_form_again(replace(state, stages_awaited=state.stages_awaited - {index}))
        case TokenEndsClosed() if state.phase is Phase.REDEPLOYING:
            return _maybe_form_again(replace(state, token_ends_open=False))
        case Faulted(error) if state.phase in _BEFORE_END:
            return _tear_down(replace(state, outcome=Outcome.FAULTED, error=error), str(error))
        case OutputClosed() if state.phase in _BEFORE_END:
            return _tear_down(replace(state, outcome=Outcome.COMPLETED), "the output was closed")
        case StageHasStopped(index) if state.phase is Phase.TEARING_DOWN:
            return _maybe_done(replace(state, stages_awaited=state.stages_awaited - {index}))
        case TokenEndsClosed() if state.phase is Phase.TEARING_DOWN:
            return _maybe_done(replace(state, token_ends_open=False))
        case _:
            return state, ()


def _maybe_start(state: RunState) -> Step:
    if state.phase is not Phase.WAITING_READY or state.stages_awaited or state.conditions_awaited:
        return state, ()
    if state.again:
        return replace(state, phase=Phase.IDLE, again=False), ()
    if state.unprompted:
        return replace(state, phase=Phase.IDLE, unprompted=False), (AwaitPrompt(),)
    return replace(state, phase=Phase.RUNNING), (InjectPrompt(),)


def _maybe_form_again(state: RunState) -> Step:
    if state.stages_awaited or state.token_ends_open:
        return state, ()
    forming = replace(state, phase=Phase.PLANNING, provisioned=False, conditions_awaited=frozenset(Condition))
    return forming, (FormAgain(),)


def _consume(state: RunState, event: TokenConsumed) -> Step:
    if state.phase is not Phase.RUNNING:
        if state.phase in _BEFORE_END:
            when = "after its answer was whole" if state.phase is Phase.IDLE else "before the prompt was injected"
            return step(state, Faulted(EdgeFaulted(f"a token arrived {when}")))
        return state, ()
    if event.request_id != state.request_id:
        what = f"a token of request {event.request_id[:8]} arrived on TokenOut, not of request {state.request_id[:8]}"
        return step(state, Faulted(EdgeFaulted(what)))
    if event.sequence != len(state.tokens):
        what = f"token {event.sequence} arrived on TokenOut, expected token {len(state.tokens)}"
        return step(state, Faulted(EdgeFaulted(what)))
    generation = state.plan.generation
    reason = event.finish_reason or finish_reason(event.token, len(state.tokens) + 1, generation, most=state.max_tokens)
    grown = replace(state, tokens=(*state.tokens, event.token))
    emit = EmitToken(event.token, reason)
    if reason is not None:
        whole = replace(grown, finish_reason=reason, answers=state.answers + 1)
        if state.hold:
            return replace(whole, phase=Phase.IDLE), (emit, FinishAnswer())
        ended, actions = _tear_down(replace(whole, outcome=Outcome.COMPLETED), f"completed: {reason}")
        return ended, (emit, *actions)
    if generation.feedback is Feedback.ORCHESTRATOR:
        return grown, (emit, InjectToken(event.sequence + 1, event.token))
    return grown, (emit,)


def _tear_down(state: RunState, reason: str) -> Step:
    stages = frozenset(range(len(state.plan.stages))) if state.provisioned else frozenset()
    closing = replace(state, phase=Phase.TEARING_DOWN, stages_awaited=stages, conditions_awaited=frozenset())
    actions: list[Action] = [StopStage(index, reason) for index in sorted(stages)]
    if state.token_ends_open:
        actions.append(CloseTokenEnds(reason))
    after, more = _maybe_done(closing)
    return after, (*actions, *more)


def _maybe_done(state: RunState) -> Step:
    if state.stages_awaited or state.token_ends_open:
        return state, ()
    return replace(state, phase=Phase.DONE), (Finish(),)
