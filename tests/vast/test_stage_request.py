"""The create requests of a run: each stage its own, and nothing in them that must not be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ppsmoke.errors import UsageError
from ppsmoke.stage.settings import parse_settings
from ppsmoke.vast.lease_labels import stage_label
from ppsmoke.vast.prices import Traffic
from ppsmoke.vast.records import CreateRequest
from ppsmoke.vast.stage_need import StageNeed
from ppsmoke.vast.stage_request import NodeTerms, create_request, in_short_entries, is_pinned, stage_environment
from ppsmoke.vast.start_script import LONG_ENTRIES, start_script

TERMS = NodeTerms(
    run_id="7f3c9a1e04b2" + "0" * 20,
    num_stages=5,
    seed_addr="endpointaexample",
    seed_relay="https://relay.test/",
    join_token="aa" * 32,
    model="https://models.test/llama.gguf",
    context=2048,
    version="1.2.3",
    package="pp-smoke-run==1.2.3",
    settings={"PP_JOIN_TIMEOUT": "180"},
)


def need(stage: int) -> StageNeed:
    return StageNeed(stage, 8000, 10 + stage, Traffic(0.5))


def requests(count: int = 5) -> list[CreateRequest]:
    terms = replace(TERMS, num_stages=count)
    return [
        create_request(
            terms, need(stage), label=stage_label(terms.run_id, stage, f"n{stage}"), node_key=bytes([stage]) * 32
        )
        for stage in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_n_creates_have_distinct_stages(count: int) -> None:
    made = requests(count)
    assert [request.body()["env"]["STAGE"] for request in made] == [str(stage) for stage in range(count)]
    assert {request.body()["env"]["NUM_STAGES"] for request in made} == {str(count)}


def test_a_udp_port_is_asked_for_as_the_service_wants_it_and_the_node_told() -> None:
    asked = create_request(TERMS, need(1), label="x", node_key=bytes(32), udp_port=True).body()["env"]
    assert (asked["-p 4433:4433/udp"], asked["PP_UDP_PORT"]) == ("1", "4433")
    given = {**asked, "PUBLIC_IPADDR": " 203.0.113.20 ", "VAST_UDP_PORT_4433": "40213"}
    settings = parse_settings({name: value for name, value in given.items() if not name.startswith("-")})
    assert (settings.udp_port, settings.mapped_address) == (4433, "203.0.113.20:40213")
    plain = requests()[1].body()["env"]
    assert not [name for name in plain if name.startswith("-p") or "UDP" in name]


def test_every_stage_has_its_own_key_label_and_disk() -> None:
    made = requests()
    assert len({request.env["PP_NODE_KEY"] for request in made}) == 5
    assert [request.label for request in made] == [f"pp-smoke-7f3c9a1e04b2-{stage}-n{stage}" for stage in range(5)]
    assert [request.disk_gb for request in made] == [10, 11, 12, 13, 14]


def test_all_stages_are_told_the_same_of_the_run() -> None:
    common = ("SEED_ADDR", "SEED_RELAY", "PP_RUN_ID", "PP_JOIN_TOKEN", "PP_MODEL", "PP_CONTEXT", "PP_JOIN_TIMEOUT")
    made = requests()
    for name in common:
        assert len({request.env[name] for request in made}) == 1
    assert (made[0].env["SEED_RELAY"], made[0].env["PP_JOIN_TIMEOUT"]) == ("https://relay.test/", "180")


def test_a_node_can_read_the_environment_it_is_given() -> None:
    settings = parse_settings(requests()[3].env)
    assert (settings.stage, settings.num_stages, settings.context) == (3, 5, 2048)
    assert (settings.run_id, settings.join_token) == (TERMS.run_id, TERMS.join_token)
    assert (settings.model, settings.seed_addr) == (TERMS.model, TERMS.seed_addr)
    assert settings.node_key == "03" * 32
    assert settings.peer_direct == ()


def test_there_is_no_direct_peer_no_lifeline_and_no_key_of_the_account() -> None:
    for request in requests():
        assert {"PEER_DIRECT", "PP_LIFELINE", "VAST_API_KEY"}.isdisjoint(request.env)


@pytest.mark.parametrize("name", ["PEER_DIRECT", "PP_LIFELINE", "VAST_API_KEY", "STAGE", "PP_NODE_KEY", LONG_ENTRIES])
def test_settings_cannot_bring_in_what_must_not_be_there_or_is_set_here(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        stage_environment(replace(TERMS, settings={name: "x"}), 0, b"k")


@pytest.mark.parametrize("stage", [-1, 5])
def test_there_is_no_request_for_a_stage_outside_the_chain(stage: int) -> None:
    with pytest.raises(ValueError, match="no stage"):
        stage_environment(TERMS, stage, b"k")


def test_the_script_is_the_same_for_all_and_secrets_are_not_in_it() -> None:
    made = requests()
    assert {request.script for request in made} == {start_script()}
    assert "aa" * 32 not in repr(made) + repr(TERMS)


def test_what_is_empty_is_left_out() -> None:
    environ = stage_environment(replace(TERMS, seed_relay=""), 0, b"k" * 32)
    assert {"SEED_RELAY", "PP_INDEX_URL", "PP_VAST_URL"}.isdisjoint(environ)


def test_the_image_and_the_source_of_the_package_can_be_chosen() -> None:
    terms = replace(TERMS, image="me/mine:1", index_url="https://index.test/simple", orphan_timeout_s=120)
    request = create_request(terms, need(0), label="l", node_key=b"k" * 32)
    assert request.body()["image"] == "me/mine:1"
    assert (request.env["PP_INDEX_URL"], request.env["PP_ORPHAN_TIMEOUT"]) == ("https://index.test/simple", "120")


def test_long_values_travel_in_parts_and_short_ones_do_not() -> None:
    long = "".join(chr(33 + i % 90) for i in range(1000))
    short = in_short_entries({"SEED_ADDR": long, "STAGE": "0", "PP_MODEL": "m" * 300})
    assert all(len(name) + 1 + len(value) <= 256 for name, value in short.items())
    assert short["STAGE"] == "0"
    counts = dict(entry.split(":") for entry in short[LONG_ENTRIES].split())
    assert set(counts) == {"SEED_ADDR", "PP_MODEL"}
    assert "".join(short[f"SEED_ADDR_{i}"] for i in range(int(counts["SEED_ADDR"]))) == long
    assert "".join(short[f"PP_MODEL_{i}"] for i in range(int(counts["PP_MODEL"]))) == "m" * 300
    assert in_short_entries({"STAGE": "0"}) == {"STAGE": "0"}


@pytest.mark.parametrize(
    ("package", "pinned"),
    [
        ("pp-smoke-run==1.2.3", True),
        ("pp_smoke_run==1.2.3.dev4", True),
        ("https://files.test/pp_smoke_run-1.2.3-py3-none-any.whl", True),
        ("https://files.test/pp_smoke_run-1.2.3-py3-none-any.whl#sha256=00", True),
        ("pp-smoke-run", False),
        ("pp-smoke-run>=1.2", False),
        ("pp-smoke-run==1.*", False),
        ("pp-smoke-run==1.2; rm -rf /", False),
        ("-e .", False),
        ("https://files.test/main.zip", False),
        ("==1.2", False),
        ("", False),
    ],
)
def test_only_one_version_can_be_installed(package: str, pinned: bool) -> None:
    assert is_pinned(package) is pinned
    if not pinned:
        with pytest.raises(UsageError):
            create_request(replace(TERMS, package=package), need(0), label="l", node_key=b"k")


def test_a_request_has_everything_within_the_services_limits() -> None:
    for request in requests():
        body: dict[str, Any] = request.body()
        assert len(body["label"]) <= 60
        assert len(body["onstart"]) + sum(map(len, body["args"])) < 4000
        assert all(isinstance(value, str) for value in body["env"].values())
