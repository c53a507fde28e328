"""Chains whose caller and nodes cannot see each other, each on a host behind a router of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from tests.e2e.kit import Box, Done
from tests.netlab.link_model import LinkSettings
from tests.netlab.nat import Nat
from tests.netlab.plain import plain_command, plain_environment
from tests.netlab.rented import PATIENCE_S, RentedChain, rent
from tests.netlab.town import Town, town

pytestmark = [pytest.mark.real_model, pytest.mark.usefixtures("lab_possible")]

MODEL = "smollm2:135m"
ASKED = ("--model", MODEL, "--prompt", "Say hello", "--max-tokens", "12", "--context", "256", "--json")
PART_BYTES = 32 * 576 * 4
"""What one part of a prompt has between two stages: 32 positions of the model's hidden state, as float32."""
RUNS = 3
"""A busy machine may take longer to punch holes than a run waits for them, so one of some must have had the time."""
SLOW = pytest.mark.slow
STAGES = (pytest.param(2, marks=SLOW), 3, pytest.param(5, marks=SLOW))


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, Any]]:
    """What a local run says, which compares itself with one process."""

    @cache
    def run() -> dict[str, Any]:
        box = Box(tmp_path_factory.mktemp("local"))
        done = box.run("--seed", "--num-stages", "2", *ASKED, "--verify", deadline_s=PATIENCE_S)
        box.close()
        said = done.expect(0).json
        assert said["verify"]["equal"]
        return said

    return run


def paths(done: Done) -> dict[str, str]:
    """The last known kind of path of every edge, as "stage 0 -> stage 1": measured, and changed since."""

    def name(end: int | None) -> str:
        return "orchestrator" if end is None else f"stage {end}"

    known = {f"{name(edge['source'])} -> {name(edge['target'])}": edge["path"] for edge in done.json["edges"]}
    changed = re.findall(r"((?:orchestrator|stage \d+) -> (?:orchestrator|stage \d+)): \w+ -> (\w+)", done.err)
    return known | {edge: path for edge, path in changed if edge in known}


def all_edges(done: Done, stages: int, path: str) -> bool:
    """Between the stages, around the ring, and between the orchestrator and each."""
    found = paths(done)
    # A way that could not be measured in time, on a busy machine, is a warning and is not among them.
    assert stages < len(found) <= 2 * stages + 1, found
    assert {edge["probe_bytes"] for edge in done.json["edges"]} == {PART_BYTES}
    print(found)
    return set(found.values()) == {path}


def answered(place: Town, box: Box, folder: Path, said: dict[str, Any], *, mapped: Collection[int] = ()) -> RentedChain:
    """A run of the town's chain that ended well and left nothing, with the tokens of one process."""
    chain = rent(place, box, folder, *ASKED, "--debug", mapped=mapped)
    body = chain.done.expect(0).json
    assert chain.left == []
    assert (body["tokens"], body["text"]) == (said["tokens"], said["text"])
    return chain


def asked(place: Town, box: Box, env: Mapping[str, str], said: dict[str, Any]) -> Done:
    """A run on the town's own nodes that ended well, with the tokens of one process."""
    done = box.run(*ASKED, "--debug", program=plain_command(place), env=env, deadline_s=PATIENCE_S)
    body = done.expect(0).json
    assert (body["tokens"], body["text"]) == (said["tokens"], said["text"])
    return done


@pytest.mark.parametrize("stages", STAGES)
def test_through_symmetric_routers_the_chain_goes_over_the_relay(
    stages: int, relay_kind: str, box: Box, tmp_path: Path, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(stages, relay=relay_kind, nat=Nat.SYMMETRIC) as place:
        chain = answered(place, box, tmp_path / "run", one_process())
    assert all_edges(chain.done, stages, "relay"), paths(chain.done)


@pytest.mark.parametrize("stages", STAGES)
def test_behind_routers_holes_are_punched_where_a_public_port_leads_to_one_stage(
    stages: int, relay_kind: str, box: Box, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(stages, relay=relay_kind) as place:
        env = plain_environment(place, mapped=[0])
        # Also between those that no port leads to.
        assert any(all_edges(asked(place, box, env, one_process()), stages, "direct") for _ in range(RUNS))


@SLOW
@pytest.mark.parametrize(
    ("stages", "seer"),
    [(2, 0), (3, 0), (5, 0), (3, None)],
    ids=["2-stage 0", "3-stage 0", "5-stage 0", "3-orchestrator"],
)
def test_holes_are_punched_where_one_member_sees_the_others_from_outside(
    stages: int, seer: int | None, relay_kind: str, box: Box, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(stages, relay=relay_kind, nats={seer: None}) as place:
        env = plain_environment(place)
        # Also between those that are behind routers.
        assert any(all_edges(asked(place, box, env, one_process()), stages, "direct") for _ in range(RUNS))


@SLOW
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_holes_are_punched_between_rented_machines(
    stages: int, relay_kind: str, box: Box, tmp_path: Path, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(stages, relay=relay_kind, nats={0: None}) as place:

        def run(number: int) -> Done:
            return answered(place, box, tmp_path / f"run {number}", one_process()).done

        assert any(all_edges(run(number), stages, "direct") for number in range(RUNS))


@pytest.mark.parametrize("stages", STAGES)
def test_a_rented_machine_with_a_mapped_port_is_reached_there_and_the_others_punch_holes(
    stages: int, relay_kind: str, box: Box, tmp_path: Path, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(stages, relay=relay_kind) as place:

        def run(number: int) -> Done:
            return answered(place, box, tmp_path / f"run {number}", one_process(), mapped=[0]).done

        assert any(all_edges(run(number), stages, "direct") for number in range(RUNS))


@pytest.mark.parametrize("stages", STAGES)
def test_where_nobody_sees_anybody_from_outside_the_relay_serves(
    stages: int, relay_kind: str, box: Box, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(stages, relay=relay_kind) as place:
        command, env = plain_command(place), plain_environment(place)
        done = box.run(*ASKED, "--debug", program=command, env=env, deadline_s=PATIENCE_S)
    assert done.expect(0).json["tokens"] == one_process()["tokens"]
    assert all_edges(done, stages, "relay"), paths(done)


@SLOW
def test_where_no_udp_passes_the_relay_does(
    relay_kind: str, box: Box, tmp_path: Path, one_process: Callable[[], dict[str, Any]]
) -> None:
    stages = 3
    with town(stages, relay=relay_kind, nat=Nat.NO_UDP) as place:
        chain = answered(place, box, tmp_path / "run", one_process())
    assert all_edges(chain.done, stages, "relay"), paths(chain.done)


@SLOW
def test_between_symmetric_and_other_routers_the_relay_serves_and_the_edge_is_named(
    relay_kind: str, box: Box, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(3, relay=relay_kind, nats={0: None, 1: Nat.SYMMETRIC}) as place:
        command, env = plain_command(place), plain_environment(place)
        done = box.run(*ASKED, "--debug", program=command, env=env, deadline_s=PATIENCE_S)
    assert done.expect(0).json["tokens"] == one_process()["tokens"]
    ring = {edge: path for edge, path in paths(done).items() if "orchestrator" not in edge}
    assert ring == {"stage 0 -> stage 1": "direct", "stage 1 -> stage 2": "relay", "stage 2 -> stage 0": "direct"}
    assert "warning: stage 1 -> stage 2 goes over a relay although others are direct" in done.err


@SLOW
@pytest.mark.parametrize(
    ("link", "trouble"),
    [
        (LinkSettings(delay_s=0.14), r"has a round trip of \d+ ms, more than 250 ms"),
        (LinkSettings(rate_bit_s=400e3), r"takes [\d.]+ s for one part of a prompt, more than 1 s"),
    ],
    ids=["far", "narrow"],
)
def test_one_slow_link_is_named_by_its_stages_and_costs_no_token(
    link: LinkSettings, trouble: str, relay_kind: str, box: Box, one_process: Callable[[], dict[str, Any]]
) -> None:
    with town(3, relay=relay_kind, nat=None, links={1: link}) as place:
        command, env = plain_command(place), plain_environment(place)
        done = box.run(*ASKED, program=command, env=env, deadline_s=PATIENCE_S)
    body = done.expect(0).json
    assert body["tokens"] == one_process()["tokens"]
    warned = {(edge["source"], edge["target"]): edge["warning"] for edge in body["edges"] if edge["warning"]}
    between = {ends: warning for ends, warning in warned.items() if None not in ends}
    assert set(between) == {(0, 1), (1, 2)}, warned
    for (source, target), warning in between.items():
        assert re.search(trouble, warning)
        assert f"warning: stage {source} -> stage {target} {warning}" in done.err


@SLOW
def test_rented_machines_read_the_callers_own_model_over_the_relay(relay_kind: str, box: Box, tmp_path: Path) -> None:
    own = write_tiny_gguf(tmp_path / "own model.gguf", blocks=6)
    asked = ("--model", str(own), "--prompt", "Say hello", "--max-tokens", "8", "--context", "256", "--json")
    with town(2, relay=relay_kind, nat=Nat.SYMMETRIC) as place:
        chain = rent(place, box, tmp_path / "run", *asked, cache=tmp_path / "cache")
    said = chain.done.expect(0).json
    assert chain.left == []
    local = box.run("--seed", "--num-stages", "2", *asked, deadline_s=PATIENCE_S)
    assert said["tokens"] == local.expect(0).json["tokens"]
