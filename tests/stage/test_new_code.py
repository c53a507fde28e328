"""A node fetches new code: one fetch at a time, each with a process of its own."""

from __future__ import annotations

import asyncio

import pytest

from ppsmoke.errors import EnvironmentFault
from ppsmoke.messages import FetchCode
from ppsmoke.stage.helper_process import HelperProcess
from ppsmoke.stage.new_code import NewCode


class Fetching:
    """A process that answers when `over` is set, which its end does too."""

    def __init__(self) -> None:
        self.told: dict[str, str] | None = None
        self.over = asyncio.Event()
        self.asked = asyncio.Event()

    async def ask(self, _request: object) -> None:
        self.asked.set()

    async def answer(self) -> dict[str, str] | None:
        await self.over.wait()
        return self.told

    async def end(self) -> None:
        self.over.set()


def test_a_further_fetch_ends_the_one_before_and_is_not_ended_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Fetching(), Fetching()]
    waiting = iter(made)

    async def begin(_module: str) -> Fetching:
        return next(waiting)

    async def run() -> None:
        code = NewCode()
        orders = [FetchCode(run_id="ab" * 16, file=f"code-{n}", sha256=f"{n}" * 64, folder="") for n in (1, 2)]
        first = asyncio.create_task(code.fetch(orders[0], 60))
        await made[0].asked.wait()
        second = asyncio.create_task(code.fetch(orders[1], 60))
        with pytest.raises(EnvironmentFault, match="without a word"):
            await first
        await made[1].asked.wait()
        assert not made[1].over.is_set()
        made[1].told = {"python_path": "/new"}
        made[1].over.set()
        await second
        assert code.successor(orders[0].sha256, "key") is None
        successor = code.successor(orders[1].sha256, "key")
        assert successor is not None
        assert successor.environment["PYTHONPATH"] == "/new"

    monkeypatch.setattr(HelperProcess, "begin", begin)
    asyncio.run(run())
