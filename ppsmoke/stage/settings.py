"""The environment of `pp-gpu-node`: one stage's whole configuration."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from ppsmoke.errors import BadNodeEnvironment
from ppsmoke.roles import Role, role_of

ADDRESS_PREFIX = "PP_GPU_NODE_ADDR="
"""What a node prints on standard output before its ticket."""

PEER_VARIABLE = "PEER_DIRECT"
"""The variable of peers' tickets; a parent may write it as a line on the lifeline when it learns them later."""

MAPPED_UDP_PORT = 4433
"""The port inside a rented machine's container for which a public one is asked."""

_REMEDY = "See pp-gpu-node --help for all variables."
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_LONGEST_S = 1e9


def _text(text: str) -> str:
    return text


def _whole(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < low:
            raise ValueError(f"expected a whole number, {low} or more")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < _LONGEST_S:
        raise ValueError("expected seconds, more than 0")
    return value


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError("expected 1 or 0")
    return _SWITCH[text.lower()]


def _hex(pattern: str, name: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {name}")
        return text

    return parse


def parse_tickets(text: str) -> tuple[str, ...]:
    """Tickets separated by commas."""
    return tuple(ticket.strip() for ticket in text.split(",") if ticket.strip())


def _variable(
    name: str, about: str, parse: Callable[[str], Any] = _text, *, default: Any = MISSING, secret: bool = False
) -> Any:
    """A field read from variable `name`; its value is shown to nobody where it is `secret`."""
    return field(
        default=default, repr=not secret, metadata={"name": name, "about": about, "parse": parse, "secret": secret}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Parsed and checked; each field's metadata name its variable. Times in seconds."""

    stage: int = _variable("STAGE", "index of this stage, 0 .. NUM_STAGES - 1", _whole(0))
    num_stages: int = _variable("NUM_STAGES", "stages of the chain, at least 2", _whole(2))
    seed_addr: str = _variable("SEED_ADDR", "ticket of the orchestrator's endpoint (endpointa...)")
    run_id: str = _variable("PP_RUN_ID", "the run's id, 32 hex digits", _hex(r"[0-9a-f]{32}", "32 hex digits"))
    join_token: str = _variable(
        "PP_JOIN_TOKEN",
        "the run's secret, hex; proven on every connection, never sent",
        _hex(r"([0-9a-f]{2})+", "an even number of hex digits"),
        secret=True,
    )
    model: str = _variable("PP_MODEL", "GGUF file, or a known name or address to fetch this stage's share of")
    node_key: str = _variable(
        "PP_NODE_KEY",
        "this node's secret key, 64 hex digits; drawn if not given",
        _hex(r"[0-9a-f]{64}", "64 hex digits"),
        default="",
        secret=True,
    )
    peer_direct: tuple[str, ...] = _variable(
        PEER_VARIABLE, "tickets of peers to know from the start, separated by commas", parse_tickets, default=()
    )
    seed_relay: tuple[str, ...] = _variable(
        "SEED_RELAY", "relays to be reached through, separated by commas", parse_tickets, default=()
    )
    relay_token: str = _variable("PP_RELAY_TOKEN", "what the relays ask of whom they serve", default="", secret=True)
    far: bool = _variable(
        "PP_FAR", "1: peers are on other machines; 0: loopback only, and quick to judge", _switch, default=False
    )
    udp_port: int = _variable(
        "PP_UDP_PORT", "UDP port to be reached at, which a public one is mapped to; 0: any", _whole(0), default=0
    )
    public_host: str = _variable("PUBLIC_IPADDR", "public address of this machine, with PP_UDP_PORT", default="")
    public_udp_port: str = _variable(
        f"VAST_UDP_PORT_{MAPPED_UDP_PORT}", "public port that is mapped to PP_UDP_PORT", default=""
    )
    context: int = _variable("PP_CONTEXT", "positions of the KV cache", _whole(1), default=2048)
    device: str = _variable("PP_DEVICE", "tinygrad device; empty: the first that works", default="")
    stub: bool = _variable(
        "PP_WORKER_STUB", "1: the deterministic test worker; no model is computed", _switch, default=False
    )
    lifeline: bool = _variable(
        "PP_LIFELINE", "1: end when standard input closes; until then it may bring PEER_DIRECT=", _switch, default=False
    )
    join_timeout: float = _variable("PP_JOIN_TIMEOUT", "to reach and join the orchestrator", _seconds, default=30)
    ready_timeout: float = _variable("PP_READY_TIMEOUT", "for the worker to load and compile", _seconds, default=600)
    prefill_timeout: float = _variable(
        "PP_PREFILL_TIMEOUT", "for one prefill step of the worker", _seconds, default=480
    )
    step_timeout: float = _variable("PP_STEP_TIMEOUT", "for one decode step of the worker", _seconds, default=48)
    stop_timeout: float = _variable("PP_STOP_TIMEOUT", "for the worker to end before it is killed", _seconds, default=2)
    silence_limit: float = _variable(
        "PP_SILENCE_LIMIT", "silence after which a peer counts as dead", _seconds, default=5
    )
    heard_file: str = _variable(
        "PP_HEARD_FILE", "file to touch while the orchestrator is heard from, for a dead-man switch", default=""
    )

    @property
    def role(self) -> Role:
        return role_of(self.stage, self.num_stages)

    @property
    def mapped_address(self) -> str | None:
        """The public "ip:port" that leads to `udp_port`; None where the machine's owner gave none, or no proper one."""
        with suppress(OSError):
            socket.inet_pton(socket.AF_INET, self.public_host)
            port = int(self.public_udp_port) if re.fullmatch("[0-9]{1,5}", self.public_udp_port) else 0
            if self.udp_port and 0 < port < 1 << 16:
                return f"{self.public_host}:{port}"
        return None


def describe_variables() -> list[tuple[str, str, str]]:
    """(variable, meaning, default or 'required'), in order, for `--help`."""
    return [(f.metadata["name"], f.metadata["about"], _show(f.default)) for f in fields(NodeSettings)]


def parse_settings(environ: Mapping[str, str]) -> NodeSettings:
    """Raises BadNodeEnvironment that names the variable and what it should be."""
    values = {}
    for item in fields(NodeSettings):
        text = environ.get(item.metadata["name"], "").strip()
        if text:
            values[item.name] = _parsed(item, text)
        elif item.default is MISSING:
            raise BadNodeEnvironment(f"{item.metadata['name']} is not set: {item.metadata['about']}", remedy=_REMEDY)
    settings = NodeSettings(**values)
    if settings.stage >= settings.num_stages:
        what = f"STAGE={settings.stage} is not one of 0 .. {settings.num_stages - 1}"
        raise BadNodeEnvironment(what, remedy=_REMEDY)
    return settings


def _parsed(item: Field[Any], text: str) -> Any:
    try:
        return item.metadata["parse"](text)
    except ValueError as reason:
        shown = item.metadata["name"] if item.metadata["secret"] else f"{item.metadata['name']}={text!r}"
        raise BadNodeEnvironment(f"{shown}: {reason}", remedy=_REMEDY) from None


def _show(default: object) -> str:
    if default is MISSING:
        return "required"
    if isinstance(default, bool):
        return "1" if default else "0"
    return str(default) if default not in ("", ()) else "-"
