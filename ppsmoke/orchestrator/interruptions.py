"""The user's signals to end a run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from ppsmoke.orchestrator import machine
from ppsmoke.orchestrator.conversation import Conversation
from ppsmoke.orchestrator.node_source import NodeSource
from ppsmoke.orchestrator.options import View
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.signals import ending_signals, interruption


class Interruptions:
    """The first one stops the run in order; `finish` is called at each further one. `seen` counts them.

    `state` gives the run's state, `dispatch` steps its machine.
    """

    def __init__(
        self,
        view: View,
        nodes: NodeSource,
        conversation: Conversation,
        result: RunResult,
        *,
        state: Callable[[], machine.RunState],
        dispatch: Callable[[machine.Event], None],
        finish: Callable[[], None],
    ) -> None:
        self._view = view
        self._nodes = nodes
        self._conversation = conversation
        self._result = result
        self._state = state
        self._dispatch = dispatch
        self._finish = finish
        self.seen = 0

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on; see `ending_signals` for which."""
        for number in ending_signals():
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        self.seen += 1
        self._view.settle()
        state = self._state()
        error = interruption(number, state.doing)
        if self.seen > 1:
            self._nodes.interrupted(self.seen, signal.Signals(number).name)
            self._finish()
            return
        self._view.line(f"{signal.Signals(number).name}: stopping {self._nodes.describe()}")
        if number == signal.SIGINT and state.phase is machine.Phase.IDLE and not self._conversation.handing_over:
            # The usual way to end a hold: nothing was asked for that did not come.
            self._dispatch(machine.HoldEnded("SIGINT"))
            return
        if state.outcome is machine.Outcome.COMPLETED and self._result.error is None:
            self._result.error = error  # too late for the run itself, not for what would come after it
        self._dispatch(machine.Faulted(error))
