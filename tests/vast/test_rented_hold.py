"""Held runs over rented machines: prompt after prompt, the money in sight, and every way to the end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ppsmoke.orchestrator.hold import Answer, Prompt
from ppsmoke.stub_model import parse_stub_model, stub_decode, stub_encode, stub_tokens
from tests.vast.commanding import STUB, Office, office
from tests.vast.rented import SCALE, machines, rent_and_run, stub_options

HOLD = ("--vastai", "-n", "2", *STUB, "--max-tokens", "6", "--yes", "--hold")
SO_FAR = r"held    \d+ s, \d\.\d{4} USD so far at \d\.\d{3} an hour"


@contextmanager
def shop_of(folder: Path) -> Iterator[Office]:
    home = folder / "home"
    home.mkdir()
    with machines(folder) as nodes, office(home, nodes=nodes, scale=SCALE) as shop:
        yield shop


def text(prompt: str) -> str:
    return stub_decode(stub_tokens(stub_encode(prompt), 6, parse_stub_model(STUB[1])))


def test_rented_machines_answer_line_after_line_and_the_price_is_told_between(tmp_path: Path) -> None:
    with shop_of(tmp_path) as shop, shop.at_a_terminal(*HOLD) as person:
        for typed in ("two\n", "\n", "three\n", "\x04"):
            person.seen = ""
            person.wait_for("\r\n> ")
            assert re.search(SO_FAR, person.seen) or "refused: the prompt is empty" in person.seen, person.seen
            assert len(shop.alive()) == 2
            person.types(typed)
        said = person.end()
        assert said.status == 0, said.err
        assert said.out == "".join(f"{text(prompt)}\n" for prompt in ("hello", "two", "three"))
        assert "rented  2 machines, at most 0.0" in said.err
        assert shop.alive() == set()


def test_a_teardown_from_elsewhere_ends_the_hold_with_a_sentence(tmp_path: Path) -> None:
    with shop_of(tmp_path) as shop, shop.at_a_terminal(*HOLD) as person:
        person.wait_for("\r\n> ")
        labels = {x.wish["label"] for x in shop.cloud.service.account.rentals.values() if x.instance_id in shop.alive()}
        run = {label.rsplit("-", 2)[0] for label in labels}
        assert len(run) == 1
        torn = shop.run("--teardown", "--label", run.pop(), "--yes")
        assert torn.status == 0, torn.err
        said = person.end()
        said.refused(1, "teardown", "elsewhere", "waiting for a prompt")
        assert said.out == f"{text('hello')}\n"
        assert shop.alive() == set()


class Silent:
    """A dialog that never gives another prompt."""

    async def answered(self, answer: Answer) -> None: ...

    def ask_again(self) -> None: ...

    async def next(self) -> Prompt | None:
        await asyncio.Event().wait()
        return None


@pytest.mark.slow
def test_what_may_be_spent_ends_the_hold(tmp_path: Path) -> None:
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2), hold=Silent(), max_spend=0.05)
    assert done.result.error is not None
    assert "has spent" in str(done.result.error), done.told()
    assert (done.result.exit_status, done.left, done.billed_after) == (1, [], 0)
