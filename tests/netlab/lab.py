"""A small internet of network namespaces: hosts, routers with NAT before them, and links as bad as a test wants.

The middle is one namespace that routes: every host or router has an address of 203.0.113.0/24 and a link of its own to
the middle. A link is a pair of virtual Ethernet devices, or, with LinkSettings, two TUN devices with our shaper between
them. Nothing of it touches the network of this machine.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.netlab.link_model import LinkCount, LinkSettings
from tests.netlab.namespaces import check_usable, find_tool, inside, new_name, processes, remove, sweep, tool
from tests.netlab.nat import Nat, mapping_rules, nat_rules

_CHECKOUT = Path(__file__).parents[2]
_MIDDLE = "203.0.113.1"
_FIRST_HOST = 10
_ANSWER_S = 30.0
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Link:
    """A shaped link between a host (or its router) and the middle."""

    name: str
    lab: Lab

    def set(self, *, up: LinkSettings | None = None, down: LinkSettings | None = None) -> None:
        """From now on; `up` is from the host to the middle. None: as it is."""
        for direction, settings in enumerate((up, down)):
            if settings is not None:
                self._order("set", direction, settings=asdict(settings))

    def both(self, settings: LinkSettings) -> None:
        """The same in both directions."""
        self.set(up=settings, down=settings)

    def cut(self, for_s: float) -> None:
        """Nothing passes in either direction for so many seconds."""
        for direction in (0, 1):
            self._order("cut", direction, for_s=for_s)

    def counts(self) -> tuple[LinkCount, LinkCount]:
        """Of both directions, up first."""
        up, down = (LinkCount(**self._order("count", direction)) for direction in (0, 1))
        return up, down

    def _order(self, do: str, direction: int, **more: Any) -> dict[str, Any]:
        return self.lab.order({"do": do, "link": self.name, "direction": direction, **more})


@dataclass(frozen=True, slots=True)
class Router:
    """The NAT before a host."""

    namespace: str
    public_address: str

    def rules(self, nat: Nat, *, ports: tuple[int, int] | None = None) -> None:
        """Change what it does; flows it knows go on as they are, mapped ports are mapped no more."""
        self._load(nat_rules(nat, ports=ports))

    def map_port(self, public_port: int, address: str, port: int) -> None:
        """From now on UDP that comes to `public_port` goes to this address behind it, also what nobody asked for."""
        self._load(mapping_rules(public_port, address, port))

    def _load(self, rules: str) -> None:
        tool(find_tool("ip"), "netns", "exec", self.namespace, find_tool("nft"), "-f", "-", text=rules)

    def forget(self) -> None:
        """Lose the mapping of every flow, as a router that restarts."""
        code = (sys.executable, "-P", str(_CHECKOUT / "tests/netlab/flush_flows.py"))
        tool(find_tool("ip"), "netns", "exec", self.namespace, *code)


@dataclass(frozen=True, slots=True)
class Host:
    """`address`: its own; `public_address`: what others see. `router`: None on the open internet. `link`: if shaped."""

    name: str
    namespace: str
    address: str
    public_address: str
    router: Router | None
    lab: Lab
    shaped: Link | None

    @property
    def link(self) -> Link:
        """Only of a host that was made with LinkSettings."""
        assert self.shaped is not None, f"the link of {self.name} is a plain one"
        return self.shaped

    def command(self, *command: str) -> list[str]:
        """The command line that runs this one here; its process is the program itself."""
        return [find_tool("ip"), "netns", "exec", self.namespace, *command]

    def popen(self, command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        """As subprocess.Popen."""
        return subprocess.Popen(self.command(*command), **how)

    def run(self, *command: str, **how: Any) -> str:
        """To the end; its output. Raises ToolFailed."""
        return tool(*self.command(*command), **how)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes now are this host's, also afterwards."""
        with inside(self.namespace):
            yield

    def processes(self) -> list[int]:
        """The ids of all processes that live here."""
        return processes([self.namespace])


class Lab:
    """A context manager; at its end every process in it is killed and every namespace gone.

    What a test leaves that is killed itself is removed when the next lab begins.
    """

    def __init__(self, *, seed: int = 0) -> None:
        """`seed`: of what links lose and delay. Raises NoLab where there can be none."""
        self._seed = seed
        self._namespaces: list[str] = []
        self._hosts: dict[str, Host] = {}
        self._shaper: subprocess.Popen[bytes] | None = None
        self._middle = ""

    def __enter__(self) -> Lab:
        check_usable()
        sweep()
        try:
            self._middle = self._namespace("middle", f"address add {_MIDDLE}/32 dev lo")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def host(self, name: str, *, nat: Nat | None = None, link: LinkSettings | None = None) -> Host:
        """One more host. `nat`: behind a router of its own; `link`: that far from the middle of the internet."""
        number = len(self._hosts) + _FIRST_HOST
        public = f"203.0.113.{number}"
        edge = self._namespace(name if nat is None else f"{name}-nat", f"address add {public}/32 dev lo")
        shaped = self._connect(edge, public, number, name, link)
        router, namespace, address = None, edge, public
        if nat is not None:
            namespace, address = self._namespace(name), f"10.77.{number}.2"
            ways = [
                f"link add lan netns {edge} type veth peer name eth0 netns {namespace}",
                f"-n {edge} address add 10.77.{number}.1/24 dev lan",
                f"-n {edge} link set lan up",
                f"-n {namespace} address add {address}/24 dev eth0",
                f"-n {namespace} link set eth0 up",
                f"-n {namespace} route add default via 10.77.{number}.1",
            ]
            _configure(ways)
            router = Router(edge, public)
            router.rules(nat)
        self._hosts[name] = Host(name, namespace, address, public, router, self, shaped)
        return self._hosts[name]

    def _connect(self, edge: str, public: str, number: int, name: str, link: LinkSettings | None) -> Link | None:
        device = f"to{number}"
        if link is None:
            _configure([f"link add wan netns {edge} type veth peer name {device} netns {self._middle}"])
        else:
            ends = [[edge, "wan", public], [self._middle, device, _MIDDLE]]
            settings = [asdict(link)] * 2
            self.order({"do": "add", "link": name, "ends": ends, "settings": settings, "seed": self._seed + number})
        queue = "" if link is None else " txqueuelen 4000"
        # A host answers for its own address only, so the middle has a route to each, and each all routes to the middle.
        ways = [
            f"-n {edge} address add {public}/32 dev wan",
            f"-n {edge} link set wan up{queue}",
            f"-n {edge} route add {_MIDDLE}/32 dev wan",
            f"-n {edge} route add default via {_MIDDLE} dev wan src {public}",
            f"-n {self._middle} link set {device} up{queue}",
            f"-n {self._middle} route add {public}/32 dev {device}",
        ]
        _configure(ways)
        return None if link is None else Link(name, self)

    def _namespace(self, what: str, *more: str) -> str:
        name = new_name(what)
        tool(find_tool("ip"), "netns", "add", name)
        self._namespaces.append(name)
        # Devices that are made from now on have no IPv6, which would send packets of its own.
        settings = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"
        tool(find_tool("ip"), "netns", "exec", name, "sh", "-c", settings)
        _configure([f"-n {name} link set lo up", *(f"-n {name} {line}" for line in more)])
        return name

    def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Tell the shaper, and give its answer."""
        if self._shaper is None:
            self._shaper = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.netlab.shaper"],
                env={**os.environ, "PYTHONPATH": str(_CHECKOUT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        shaper = self._shaper
        assert shaper.stdin is not None
        assert shaper.stdout is not None
        shaper.stdin.write(json.dumps(dict(order)).encode() + b"\n")
        shaper.stdin.flush()
        ready, _, _ = select.select([shaper.stdout], (), (), _ANSWER_S)
        line = shaper.stdout.readline() if ready else b""
        assert line, f"the shaper did not answer {order}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def processes(self) -> list[int]:
        """The ids of all processes that live in any namespace of the lab."""
        return processes(self._namespaces)

    def close(self) -> None:
        """End and remove everything."""
        remove(self._namespaces)
        self._namespaces.clear()
        shaper, self._shaper = self._shaper, None
        if shaper is not None:
            with shaper:
                assert shaper.stdin is not None
                with suppress(OSError):
                    shaper.stdin.close()
                try:
                    shaper.wait(_END_S)
                except subprocess.TimeoutExpired:
                    shaper.kill()


def _configure(lines: Sequence[str]) -> None:
    """`ip` with these arguments, one call for all. Raises ToolFailed."""
    ip = find_tool("ip")
    for line in lines:
        tool(ip, *line.split())
