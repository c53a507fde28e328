"""A held run's prompts as lines of standard input, and its answers to whoever reads standard output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Protocol

from ppsmoke.command_steps import RunCommand, read_prompt
from ppsmoke.errors import PpError
from ppsmoke.figures import duration
from ppsmoke.orchestrator.hold import Answer, Prompt
from ppsmoke.orchestrator.result import error_json
from ppsmoke.output import RunOutput
from ppsmoke.prompt_lines import PromptLines
from ppsmoke.request import Model

_SIGN = "> "


class Costs(Protocol):
    """What a run costs, in USD."""

    @property
    def price_per_hour_usd(self) -> float: ...

    @property
    def spent_usd(self) -> float: ...


class TypedDialog:
    """See Dialog. `costs`: of a run that costs money, as of now.

    Prompts are counted from 1, the command line's being the first where it gives one; what is refused counts too.
    """

    def __init__(
        self,
        command: RunCommand,
        model: Model,
        output: RunOutput,
        *,
        costs: Callable[[], Costs] | None = None,
        file: int = 0,
    ) -> None:
        self._as_json = command.as_json
        self._output = output
        self._costs = costs
        self._lines = PromptLines(lambda text: read_prompt(command, model, text), file=file)
        self._prompts = 1 if command.prompt_given else 0
        self._began = time.monotonic()

    async def answered(self, answer: Answer) -> None:
        """End the text's line, or write the answer's object; then what it took, and costs, as news."""
        costs = self._costs() if self._costs is not None else None
        if self._as_json:
            spent = {} if costs is None else {"spent_usd": round(costs.spent_usd, 4)}
            await self._write({"prompt": self._prompts, **answer.as_json(), **spent})
        else:
            await self._output.whole_line("")
        self._output.line(f"answer  {answer.describe()}")
        if costs is not None:
            spent_text = f"{costs.spent_usd:.4f} USD so far at {costs.price_per_hour_usd:.3f} an hour"
            self._output.line(f"held    {duration(time.monotonic() - self._began)}, {spent_text}")

    async def next(self) -> Prompt | None:
        """The next line that can be served."""
        while True:
            self._output.ask(_SIGN)
            found = await self._lines.next()
            if found is None:
                return None
            self._output.heard()
            self._prompts += 1
            if not isinstance(found, PpError):
                return found
            self._output.refuse(found)
            if self._as_json:
                await self._write({"prompt": self._prompts, "error": error_json(found)})

    def ask_again(self) -> None:
        """Show the sign where news took it away."""
        self._output.ask_again()

    async def _write(self, body: dict[str, Any]) -> None:
        await self._output.whole_line(json.dumps(body))
