"""What a chain's user sees when the network fails under it: the right tokens, or a clear error soon; nothing is left.

BEHAVIOR.md has the times that were measured.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest

from tests.e2e.kit import Box, Done, Program
from tests.netlab.link_model import LinkSettings
from tests.netlab.nat import Nat
from tests.netlab.observed import Observed, observe
from tests.netlab.plain import plain_command, plain_environment
from tests.netlab.relays import OURS, REAL, relay_on
from tests.netlab.rented import rent
from tests.netlab.town import Town, town

pytestmark = [pytest.mark.real_model, pytest.mark.usefixtures("lab_possible")]

SLOW = pytest.mark.slow
LINK = LinkSettings(delay_s=0.01, rate_bit_s=100e6)
"""40 ms there and back between any two, so that a token takes 60 ms."""
NARROW = replace(LINK, mtu=1300)
SILENT = replace(NARROW, mtu_silent=True)
ASKED = ("--model", "smollm2:135m", "--prompt", "Tell me a long story about the sea.", "--context", "512")
VICTIM = 1
FAILS_WITHIN_S = 60.0
"""Silence counts as death after 30 s at most; the rest is for a busy machine."""
PATIENCE_S = 300.0
END = r"(?:orchestrator|stage \d)"
RESUMED = re.compile(rf"{END} -> {END}: connection lost, resumed after [0-9.]+ m?s")
RELAYED = re.compile(rf"{END} -> {END}: direct -> relay")


@dataclass(frozen=True)
class Fault:
    """`strike` while the answer is decoded. `survived`: the chain must go on; else it may also fail clearly.

    `told`: lines that the output of a chain that goes on must have.
    """

    name: str
    strike: Callable[[Town], None]
    nat: Nat | None = Nat.SYMMETRIC
    seen_by_first: bool = False  # stage 0 is on the open internet, so that the others' ways are direct ones
    survived: bool = True
    told: tuple[re.Pattern[str], ...] = ()
    tokens: int = 150

    def relays(self) -> tuple[str, ...]:
        """Over which it is worth looking: both, unless it strikes ways that no relay is in."""
        return (OURS, REAL) if self.nat is not None or self.strike is kill_relay else (OURS,)


def restart_relay(place: Town) -> None:
    place.relay.kill()
    time.sleep(0.5)
    place.relay.start()


def kill_relay(place: Town) -> None:
    place.relay.kill()


def renew_mapping(nat: Nat, place: Town) -> None:
    host = place.stages[VICTIM]
    assert host.router is not None
    host.router.rules(nat, ports=(40000, 40999))
    host.router.forget()


def block_udp(place: Town) -> None:
    host = place.stages[VICTIM]
    assert host.router is not None
    host.router.rules(Nat.NO_UDP)
    host.router.forget()


def cut(for_s: float, place: Town) -> None:
    place.stages[VICTIM].link.cut(for_s)


def worsen(link: LinkSettings, place: Town) -> None:
    place.stages[VICTIM].link.both(link)


FAULTS = [
    Fault("the relay restarts", restart_relay, tokens=40),
    Fault("the relay dies, ways over it", kill_relay, survived=False),
    Fault("the relay dies, direct ways", kill_relay, nat=None),
    Fault("the mapping of a router changes", partial(renew_mapping, Nat.SYMMETRIC)),
    Fault(
        "the mapping of a router changes, direct ways",
        partial(renew_mapping, Nat.PORT_PRESERVING),
        Nat.PORT_PRESERVING,
        seen_by_first=True,
    ),
    Fault("no UDP passes any more", block_udp, Nat.PORT_PRESERVING, seen_by_first=True, told=(RESUMED, RELAYED)),
    Fault("a link drops for 5 s", partial(cut, 5.0), told=(RESUMED,)),
    Fault("a direct link drops for 5 s", partial(cut, 5.0), nat=None, told=(RESUMED,)),
    Fault("a link drops for 20 s", partial(cut, 20.0), survived=False),
    Fault("a direct link drops for 20 s", partial(cut, 20.0), nat=None, survived=False),
    Fault("a link drops for 40 s", partial(cut, 40.0), survived=False),
    Fault("a direct link drops for 40 s", partial(cut, 40.0), nat=None, survived=False),
    Fault("a link takes 1300 bytes at most", partial(worsen, NARROW)),
    Fault("a direct link takes 1300 bytes at most", partial(worsen, NARROW), nat=None),
    Fault("a link takes 1300 bytes and does not say so", partial(worsen, SILENT), survived=False),
    Fault("a direct link takes 1300 bytes and does not say so", partial(worsen, SILENT), nat=None),
    Fault("5 of 100 packets are lost", partial(worsen, replace(LINK, loss=0.05))),
    Fault("5 of 100 packets are lost on a direct link", partial(worsen, replace(LINK, loss=0.05)), nat=None),
    Fault("20 of 100 packets are lost", partial(worsen, replace(LINK, loss=0.2)), survived=False),
    Fault("20 of 100 packets are lost on a direct link", partial(worsen, replace(LINK, loss=0.2)), nat=None),
]
IN_CI = {("the relay restarts", OURS)}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """The text of a local run."""

    @cache
    def tell(tokens: int) -> str:
        box = Box(tmp_path_factory.mktemp("local"))
        done = box.run("--seed", "-n", "2", *ASKED, "--max-tokens", str(tokens), deadline_s=PATIENCE_S)
        box.close()
        return done.expect(0).text

    return tell


@pytest.mark.parametrize(
    ("fault", "relay_kind"),
    [
        pytest.param(
            fault, kind, marks=() if (fault.name, kind) in IN_CI else SLOW, id=f"{fault.name.replace(' ', '-')}-{kind}"
        )
        for fault in FAULTS
        for kind in fault.relays()
    ],
    indirect=["relay_kind"],
)
def test_a_fault_in_decode_ends_in_the_right_text_or_in_a_clear_error(
    fault: Fault, relay_kind: str, box: Box, story: Callable[[int], str]
) -> None:
    expected = story(fault.tokens)
    nats: dict[int | None, Nat | None] | None = {0: None} if fault.seen_by_first else None
    with town(3, relay=relay_kind, nat=fault.nat, nats=nats, link=LINK) as place:
        command = [*plain_command(place), *ASKED, "--max-tokens", str(fault.tokens)]
        seen = observe(
            box, command, plain_environment(place), lambda program: fault.strike(place), deadline_s=PATIENCE_S
        )
    print(f"{fault.name}, {relay_kind}: {seen.describe()}")
    if fault.survived or seen.done.status == 0:
        assert seen.done.expect(0).text == expected
        for line in fault.told:
            assert any(map(line.fullmatch, seen.told)), (line, seen.told)
    else:
        fails_clearly(seen)
        # Whom only a relay leads to may have lost nothing but that.
        assert fault.nat is not Nat.SYMMETRIC or f"see whether {place.relay.url} still serves" in seen.done.err
        assert expected.startswith(seen.done.text.rstrip("\n"))


@SLOW
@pytest.mark.parametrize("victim", [0, 1], ids=["the first", "the second"])
def test_one_of_two_relays_may_die(victim: int, relay_kind: str, box: Box, story: Callable[[int], str]) -> None:
    with (
        town(3, relay=relay_kind, nat=Nat.SYMMETRIC, link=LINK) as place,
        relay_on(place.lab.host("spare"), relay_kind) as spare,
    ):
        command = [*plain_command(place, "--relay-url", spare.url), *ASKED, "--max-tokens", "150"]
        dies = (place.relay, spare)[victim]
        seen = observe(box, command, plain_environment(place), lambda program: dies.kill(), deadline_s=PATIENCE_S)
    print(f"relay {victim} of two dies, {relay_kind}: {seen.describe()}")
    assert seen.done.expect(0).text == story(150)


def fails_clearly(seen: Observed) -> None:
    """Status 1 and one sentence that names a stage or the relay, in time."""
    seen.done.expect(1)
    assert len(seen.done.errors) == 1, seen.done.err
    assert re.search(r"stage \d|relay", seen.done.errors[0], re.IGNORECASE), seen.done.err
    assert "Traceback" not in seen.done.err
    assert seen.ended_s < FAILS_WITHIN_S


@SLOW
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=["an hour ahead", "an hour back"])
def test_a_nodes_clock_may_jump(number: signal.Signals, relay_kind: str, box: Box, story: Callable[[int], str]) -> None:
    def jump(program: Program) -> None:
        program.strike(program.node(VICTIM), number)

    with town(3, relay=relay_kind, nat=Nat.SYMMETRIC, link=LINK) as place:
        command = [*plain_command(place), *ASKED, "--max-tokens", "150", "--debug"]
        env = plain_environment(place, node_module="tests.netlab.jumping_clock")
        seen = observe(box, command, env, jump, deadline_s=PATIENCE_S)
    assert seen.done.expect(0).text == story(150)
    assert seen.silence_s < FAILS_WITHIN_S


@SLOW
def test_rented_machines_are_given_back_when_the_relay_dies(relay_kind: str, box: Box, tmp_path: Path) -> None:
    def strike(program: Program) -> Done:
        program.wait_output(PATIENCE_S)
        place.relay.kill()
        return program.end(PATIENCE_S)

    with town(3, relay=relay_kind, nat=Nat.SYMMETRIC, link=LINK) as place:
        chain = rent(place, box, tmp_path / "run", *ASKED, "--max-tokens", "400", act=strike)
    chain.done.expect(1)
    assert len(chain.done.errors) == 1, chain.done.err
    assert chain.left == []
