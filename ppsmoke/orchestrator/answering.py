"""The chain's tokens on their way to the conversation, and, with a held run, the prompts on theirs to the chain."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import EdgeFaulted
from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.conversation import Conversation
from ppsmoke.orchestrator.deadline import PhaseDeadline
from ppsmoke.orchestrator.faults import Faults
from ppsmoke.orchestrator.options import Deadlines, OutputGone
from ppsmoke.orchestrator.provisioning import Provisioning
from ppsmoke.orchestrator.redeploy import Redeployments
from ppsmoke.orchestrator.token_ends import TokenEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """`state` gives the run's state, `dispatch` steps its machine; what `spawn` runs may end the run."""

    conversation: Conversation
    deadlines: Deadlines
    deadline: PhaseDeadline
    provisioning: Provisioning
    redeployments: Redeployments
    faults: Faults
    state: Callable[[], machine.RunState]
    dispatch: Callable[[machine.Event], None]
    spawn: Callable[[Coroutine[Any, Any, None]], object]

    async def consume(self, ends: TokenEnds) -> None:
        """Take what comes out of `ends` until they are closed. Raises EdgeFaulted, DeadlineExceeded."""
        try:
            await self._consume_until_closed(ends)
        except EdgeFaulted:
            if ends is self.provisioning.ends:  # else we closed it ourselves
                raise

    async def take_prompt(self) -> None:
        """Wait for another prompt, as long as it takes, and serve it on the same chain."""
        self.restart_when_idle()
        try:
            prompt = await self.conversation.next_prompt()
        except OutputGone:
            self.dispatch(machine.OutputClosed())
            return
        await self.redeployments.over()
        if self.state().phase is not machine.Phase.IDLE:
            return
        if prompt is None:
            self.dispatch(machine.HoldEnded("no further prompt"))
            return
        self.conversation.begin(prompt)
        self.dispatch(machine.PromptGiven(self.conversation.request.id, prompt.max_tokens))

    def restart_when_idle(self) -> None:
        """Now, if new code is due; else this is called again when an answer was handed over."""
        idle = self.state().phase is machine.Phase.IDLE and not self.conversation.handing_over
        if idle and self.redeployments.due:
            self.dispatch(machine.CodeSent())

    async def _consume_until_closed(self, ends: TokenEnds) -> None:
        await ends.consumer.wait_ready(self.deadlines.ready)
        self.dispatch(machine.ConditionMet(machine.Condition.TOKEN_CONSUMER))
        async for obj in ends.tokens():
            self.deadline.disarm()
            self.dispatch(machine.TokenConsumed(obj.sequence, obj.tokens[0], obj.finish_reason, obj.request_id))
            try:
                await self.conversation.flush()
                if self.conversation.handing_over:
                    state = self.state()
                    answered = state.finish_reason if state.phase is machine.Phase.IDLE else None
                    await self.conversation.hand_over(state.tokens, answered)
            except OutputGone:
                self.dispatch(machine.OutputClosed())
            if self.state().phase is machine.Phase.IDLE:
                self.spawn(self.take_prompt())
                continue
            if self.state().phase is not machine.Phase.RUNNING:
                return
            # Not before the text was taken: a slow reader is not a slow chain.
            self.deadline.arm(self.deadlines.token, f"token {len(self.state().tokens)}", "--token-timeout")
        if ends is self.provisioning.ends:
            self.faults.take(EdgeFaulted("the last stage ended its TokenOut edge before the text was over"))
