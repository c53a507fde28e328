"""The lab itself: who reaches whom, what routers let through, what links do, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.kit import wait_until
from tests.netlab.lab import Host, Lab
from tests.netlab.link_model import LinkSettings
from tests.netlab.namespaces import sweep
from tests.netlab.nat import Nat

pytestmark = pytest.mark.usefixtures("lab_possible")
_PORT = 4000
_WAIT_S = 10.0
_CHECKOUT = Path(__file__).parents[2]
STAYS = ["sh", "-c", "echo here; exec sleep 600"]
"""Says so when it runs in its namespace, where `ip` is not at once."""


@contextmanager
def mirror(host: Host) -> Iterator[None]:
    """A host that answers every datagram with the address it came from, twice as long as it was."""
    with host.inside():
        door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("0.0.0.0", _PORT))

    def answer() -> None:
        with suppress(OSError):
            while True:
                data, sender = door.recvfrom(65536)
                if not data:
                    return
                door.sendto(f"{sender[0]}:{sender[1]} ".encode().ljust(len(data), b"."), sender)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with host.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", _PORT))
        thread.join(_WAIT_S)
        door.close()


class Caller:
    """A UDP socket on a host. `seen_by`: what address another sees of it, None when no answer comes."""

    def __init__(self, host: Host, port: int = 5000) -> None:
        with host.inside():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("0.0.0.0", port))

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def seen_by(self, host: Host, size: int = 32, wait_s: float = _WAIT_S) -> str | None:
        self.socket.settimeout(wait_s)
        self.socket.sendto(b"?" * size, (host.public_address, _PORT))
        try:
            return self.socket.recv(65536).split(b" ")[0].decode()
        except TimeoutError:
            return None


def test_a_port_preserving_router_shows_the_same_port_to_all_and_a_symmetric_one_never(lab: Lab) -> None:
    first, second = lab.host("first"), lab.host("second")
    preserving = lab.host("preserving", nat=Nat.PORT_PRESERVING)
    symmetric = lab.host("symmetric", nat=Nat.SYMMETRIC)
    with mirror(first), mirror(second), Caller(preserving) as one, Caller(symmetric) as other:
        assert one.seen_by(first) == one.seen_by(second) == f"{preserving.public_address}:5000"
        seen = [other.seen_by(first), other.seen_by(second)]
        assert seen[0] != seen[1]
        assert all(address is not None and address.startswith(f"{symmetric.public_address}:") for address in seen)


def test_a_router_lets_in_those_who_were_called_and_nobody_else(lab: Lab) -> None:
    friend, stranger = lab.host("friend"), lab.host("stranger")
    within = lab.host("within", nat=Nat.PORT_PRESERVING)
    with mirror(friend), Caller(within) as caller, Caller(stranger) as unknown:
        seen = caller.seen_by(friend)
        assert seen == f"{within.public_address}:5000"
        unknown.socket.sendto(b"let me in", (within.public_address, 5000))
        caller.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            caller.socket.recv(100)


def test_a_mapped_port_leads_a_stranger_to_the_host_behind_a_router(lab: Lab) -> None:
    stranger = lab.host("stranger")
    within = lab.host("within", nat=Nat.SYMMETRIC)
    assert within.router is not None
    within.router.map_port(40213, within.address, 5000)
    with Caller(within) as inside, Caller(stranger) as unknown:
        inside.socket.settimeout(_WAIT_S)
        unknown.socket.settimeout(_WAIT_S)
        unknown.socket.sendto(b"let me in", (within.public_address, 40213))
        data, sender = inside.socket.recvfrom(100)
        assert (data, sender) == (b"let me in", (stranger.address, 5000))
        inside.socket.sendto(b"welcome", sender)
        assert unknown.socket.recvfrom(100) == (b"welcome", (within.public_address, 40213))


def test_without_udp_only_tcp_passes(lab: Lab) -> None:
    outside, within = lab.host("outside"), lab.host("within", nat=Nat.NO_UDP)
    with mirror(outside), Caller(within) as caller:
        assert caller.seen_by(outside, wait_s=0.3) is None
    with outside.inside():
        door = socket.create_server((outside.address, _PORT))
    with within.inside():
        calling = socket.socket()
    with door, calling:
        calling.settimeout(_WAIT_S)
        calling.connect((outside.public_address, _PORT))
        connection, sender = door.accept()
        connection.close()
        assert sender[0] == within.public_address


def test_a_router_that_forgets_gives_a_flow_another_mapping(lab: Lab) -> None:
    outside, within = lab.host("outside"), lab.host("within", nat=Nat.PORT_PRESERVING)
    assert within.router is not None
    with mirror(outside), Caller(within) as caller:
        assert caller.seen_by(outside) == f"{within.public_address}:5000"
        within.router.rules(Nat.PORT_PRESERVING, ports=(40000, 40999))
        assert caller.seen_by(outside) == f"{within.public_address}:5000"
        within.router.forget()
        seen = caller.seen_by(outside)
        assert seen is not None
        assert 40000 <= int(seen.rpartition(":")[2]) < 41000


def test_a_shaped_link_delays_cuts_and_limits_while_it_runs(lab: Lab) -> None:
    outside, far = lab.host("outside"), lab.host("far", link=LinkSettings(delay_s=0.1))
    with mirror(outside), Caller(far) as caller:
        began = time.monotonic()
        assert caller.seen_by(outside) == f"{far.public_address}:5000"
        assert time.monotonic() - began >= 0.2
        far.link.both(LinkSettings(mtu=600, mtu_silent=True))
        assert caller.seen_by(outside, size=1200, wait_s=0.3) is None
        assert caller.seen_by(outside, size=500) is not None
        far.link.cut(60.0)
        assert caller.seen_by(outside, wait_s=0.3) is None
        up, down = far.link.counts()
        assert (up.carried, up.too_big, up.cut) == (2, 1, 1)
        assert (down.carried, down.too_big, down.cut) == (2, 0, 0)


def test_two_labs_at_once_have_the_same_addresses_and_do_not_meet(lab: Lab) -> None:
    with Lab() as other:
        hosts = [place.host("only") for place in (lab, other)]
        assert hosts[0].address == hosts[1].address
        with mirror(hosts[0]), Caller(other.host("caller")) as stranger, Caller(lab.host("caller")) as friend:
            assert friend.seen_by(hosts[0]) is not None
            with suppress(ConnectionRefusedError):  # nobody is there
                assert stranger.seen_by(hosts[1], wait_s=0.3) is None


def test_what_a_killed_test_leaves_is_gone_when_the_next_lab_begins() -> None:
    code = (
        "import subprocess, sys, time\n"
        "from tests.netlab.lab import Lab\n"
        "from tests.netlab.link_model import LinkSettings\n"
        "lab = Lab().__enter__()\n"
        "host = lab.host('victim', link=LinkSettings())\n"
        f"child = host.popen({STAYS}, start_new_session=True, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(host.namespace, child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    where = {**os.environ, "PYTHONPATH": str(_CHECKOUT)}
    with subprocess.Popen([sys.executable, "-P", "-c", code], env=where, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        namespace, child = test.stdout.readline().split()
        sweep()
        assert namespace in os.listdir("/run/netns")
        test.send_signal(signal.SIGKILL)
    assert namespace in sweep()
    assert namespace not in os.listdir("/run/netns")
    wait_until("the end of the child", lambda: not psutil.pid_exists(int(child)))


def test_at_the_end_of_a_lab_its_processes_are_gone_too() -> None:
    with Lab() as lab:
        host = lab.host("busy")
        child = host.popen(STAYS, stdout=subprocess.PIPE)
        assert child.stdout is not None
        with child.stdout:
            assert child.stdout.readline() == b"here\n"
        assert lab.processes() == [child.pid]
    assert child.wait(_WAIT_S) == -signal.SIGKILL
    assert host.namespace not in os.listdir("/run/netns")
