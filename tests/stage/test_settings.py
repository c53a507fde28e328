"""The node's environment: each variable missing or wrong is named in the refusal."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ppsmoke.errors import BadNodeEnvironment
from ppsmoke.roles import Role
from ppsmoke.stage.settings import NodeSettings, describe_variables, parse_settings

REQUIRED = {
    "STAGE": "1",
    "NUM_STAGES": "3",
    "SEED_ADDR": "endpointabc",
    "PP_RUN_ID": "ab" * 16,
    "PP_JOIN_TOKEN": "0123",
    "PP_MODEL": "/models/tiny.gguf",
}
OPTIONAL = {
    "PP_NODE_KEY": ("0f" * 32, "node_key", "0f" * 32),
    "PEER_DIRECT": ("endpointx, endpointy,", "peer_direct", ("endpointx", "endpointy")),
    "PP_CONTEXT": ("512", "context", 512),
    "PP_DEVICE": ("CPU", "device", "CPU"),
    "PP_WORKER_STUB": ("1", "stub", True),
    "PP_LIFELINE": ("1", "lifeline", True),
    "PP_JOIN_TIMEOUT": ("1.5", "join_timeout", 1.5),
    "PP_READY_TIMEOUT": ("2", "ready_timeout", 2.0),
    "PP_PREFILL_TIMEOUT": ("3", "prefill_timeout", 3.0),
    "PP_STEP_TIMEOUT": ("4", "step_timeout", 4.0),
    "PP_STOP_TIMEOUT": ("5", "stop_timeout", 5.0),
    "PP_SILENCE_LIMIT": ("6", "silence_limit", 6.0),
    "SEED_RELAY": ("https://a.test/, https://b.test/", "seed_relay", ("https://a.test/", "https://b.test/")),
    "PP_RELAY_TOKEN": ("a-secret", "relay_token", "a-secret"),
    "PP_FAR": ("1", "far", True),
    "PP_UDP_PORT": ("4433", "udp_port", 4433),
    "PUBLIC_IPADDR": ("203.0.113.20", "public_host", "203.0.113.20"),
    "VAST_UDP_PORT_4433": ("40213", "public_udp_port", "40213"),
    "PP_HEARD_FILE": ("/root/heard", "heard_file", "/root/heard"),
}
NUMBERS = ["STAGE", "NUM_STAGES", "PP_CONTEXT", *(name for name in OPTIONAL if name.endswith(("TIMEOUT", "LIMIT")))]


def refusal(**changes: str) -> BadNodeEnvironment:
    with pytest.raises(BadNodeEnvironment) as caught:
        parse_settings(REQUIRED | changes)
    return caught.value


def test_the_required_variables_suffice() -> None:
    settings = parse_settings(REQUIRED | {"PATH": "/bin", "HOME": "/root"})
    assert (settings.stage, settings.num_stages, settings.role) == (1, 3, Role.MIDDLE)
    assert (settings.stub, settings.lifeline, settings.peer_direct, settings.device) == (False, False, (), "")


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_required_variable_missing_or_empty_is_named(name: str, value: str | None) -> None:
    environ = {key: text for key, text in REQUIRED.items() if key != name} | ({} if value is None else {name: value})
    with pytest.raises(BadNodeEnvironment, match=f"^{name} is not set: ") as caught:
        parse_settings(environ)
    assert "--help" in (caught.value.remedy or "")


@pytest.mark.parametrize(("name", "given"), OPTIONAL.items())
def test_an_optional_variable_is_read(name: str, given: tuple[str, str, object]) -> None:
    text, field, value = given
    assert getattr(parse_settings(REQUIRED | {name: f" {text} "}), field) == value


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["x", "-1", "1e400", "nan", "1,5", "0x10"])
def test_a_number_that_is_none_is_named_with_what_was_given(name: str, value: str) -> None:
    assert str(refusal(**{name: value})).startswith(f"{name}='{value}': ")


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "STAGE"])
def test_zero_is_no_count_and_no_time(name: str) -> None:
    assert str(refusal(**{name: "0"})).startswith(f"{name}='0': ")


def test_a_chain_of_one_is_refused() -> None:
    assert str(refusal(NUM_STAGES="1", STAGE="0")).startswith("NUM_STAGES='1': ")


@pytest.mark.parametrize("stage", ["3", "4"])
def test_a_stage_outside_the_chain_is_refused(stage: str) -> None:
    assert str(refusal(STAGE=stage)) == f"STAGE={stage} is not one of 0 .. 2"


@pytest.mark.parametrize("name", ["PP_WORKER_STUB", "PP_LIFELINE"])
@pytest.mark.parametrize("value", ["2", "maybe"])
def test_a_switch_that_is_neither_on_nor_off_is_named(name: str, value: str) -> None:
    assert str(refusal(**{name: value})).startswith(f"{name}='{value}': ")


@pytest.mark.parametrize("value", ["ab", "AB" * 16, "zz" * 16, "ab" * 17])
def test_a_run_id_that_is_none_is_named(value: str) -> None:
    assert str(refusal(PP_RUN_ID=value)).startswith(f"PP_RUN_ID='{value}': ")


@pytest.mark.parametrize(
    ("name", "secret"),
    [("PP_JOIN_TOKEN", "abc"), ("PP_JOIN_TOKEN", "secret"), ("PP_NODE_KEY", "ab" * 31), ("PP_NODE_KEY", "geheim")],
)
def test_a_wrong_secret_is_named_and_not_shown(name: str, secret: str) -> None:
    said = str(refusal(**{name: secret}))
    assert said.startswith(f"{name}: expected ")
    assert secret not in said


def test_no_secret_stands_in_what_is_written_of_the_settings() -> None:
    given = {"PP_NODE_KEY": "0f" * 32, "PP_JOIN_TOKEN": "beef" * 8, "PP_RELAY_TOKEN": "a-secret"}
    written = repr(parse_settings(REQUIRED | given))
    assert not [name for name, value in given.items() if value in written]


def test_the_variables_described_are_the_variables_read() -> None:
    described = {name: default for name, _, default in describe_variables()}
    assert set(described) == set(REQUIRED) | set(OPTIONAL)
    assert {name for name, default in described.items() if default == "required"} == set(REQUIRED)
    assert len(described) == len(fields(NodeSettings))
    assert all(about for _, about, _ in describe_variables())


def test_the_defaults_described_are_the_defaults() -> None:
    settings = parse_settings(REQUIRED)
    for name, _, default in describe_variables():
        if name in OPTIONAL and default != "-":
            value = getattr(settings, OPTIONAL[name][1])
            assert float(default) == float(value)


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("203.0.113.20", "40213", "203.0.113.20:40213"),
        ("", "40213", None),
        ("a.host.test", "40213", None),
        ("203.0.113.20", "", None),
        ("203.0.113.20", "0", None),
        ("203.0.113.20", "65536", None),
        ("203.0.113.20", "4e4", None),
    ],
)
def test_a_mapped_port_is_published_only_where_it_is_one(host: str, port: str, address: str | None) -> None:
    """What a host says of itself may be anything: it must not keep a node from starting."""
    given = {**REQUIRED, "PUBLIC_IPADDR": host, "VAST_UDP_PORT_4433": port}
    assert parse_settings({**given, "PP_UDP_PORT": "4433"}).mapped_address == address
    assert parse_settings(given).mapped_address is None
