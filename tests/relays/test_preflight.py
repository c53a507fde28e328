"""What a run says of the relays that it will use."""

from __future__ import annotations

import asyncio
import mmap
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppsmoke.iroh_fix import iroh
from ppsmoke.relays import PUBLIC_RELAYS, check
from ppsmoke.relays.preflight import choose_relays
from tests.transport.relay import relay

OPTIONS: Any = SimpleNamespace(prefill_part=32, model=SimpleNamespace(hidden_dim=576))
WARNING = "warning: these relays are public, shared and rate-limited; --relay-url names one of your own"


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def waiting(self, text: str) -> None: ...

    def settle(self) -> None: ...


def choose(*given: str) -> tuple[tuple[str, ...], list[str]]:
    said: Any = Said()
    return asyncio.run(choose_relays(given, "", OPTIONS, said, otherwise="nothing was rented")), said.lines


def test_public_relays_are_named_with_what_they_carry_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with relay() as one, relay() as other:
        monkeypatch.setattr(check, "PUBLIC_RELAYS", (one.url, other.url))
        chosen, lines = choose()
        assert set(chosen) == {one.url, other.url}
    assert [line.split()[:2] for line in lines[:-1]] == [["relay", url] for url in chosen]
    assert lines[-1] == WARNING


def test_a_relay_that_was_given_is_named_without_a_warning() -> None:
    with relay() as own:
        chosen, lines = choose(own.url)
        assert chosen == (own.url,)
    (line,) = lines
    assert line.startswith(f"relay        {own.url} answers in ")


def test_the_public_relays_are_those_of_the_library_in_use() -> None:
    [library] = Path(iroh.__file__).parent.glob("libiroh_ffi.*")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = [(text[at.start() - 20 : at.start()], at[0]) for at in re.finditer(rb"\.relay\.n0\.iroh\.link", text)]
    known = {(re.findall(rb"[a-z0-9-]+$", before)[0] + rest).decode() for before, rest in found}
    assert {f"https://{name}" for name in known} == set(PUBLIC_RELAYS)
