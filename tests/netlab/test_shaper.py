"""The shaper carries what links are asked to carry."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.netlab.lab import Host, Lab
from tests.netlab.link_model import LinkSettings
from tests.netlab.nat import Nat

_WAIT_S = 60.0


@pytest.mark.parametrize("nat", [None, Nat.SYMMETRIC], ids=["in public", "behind a router"])
@pytest.mark.parametrize("upwards", [True, False], ids=["up", "down"])
def test_a_sender_is_told_the_size_limit_of_a_link_and_keeps_to_it(lab: Lab, upwards: bool, nat: Nat | None) -> None:
    narrow, other = lab.host("narrow", nat=nat, link=LinkSettings(mtu=700)), lab.host("other")
    assert push(narrow, other, bytes(100_000), backwards=not upwards) == bytes(100_000)
    count = narrow.link.counts()[0 if upwards else 1]
    assert 1 <= count.too_big < 30
    assert count.carried >= 100_000 // 700


def test_bytes_that_pass_a_limited_link_arrive_whole_and_no_faster_than_its_rate(lab: Lab) -> None:
    rate = 40e6
    sender = lab.host("sender", link=LinkSettings(delay_s=0.01, rate_bit_s=rate))
    receiver = lab.host("receiver", link=LinkSettings(delay_s=0.01))
    sent = bytes(range(256)) * 8192  # 2 MiB
    began = time.monotonic()
    assert push(sender, receiver, sent) == sent
    assert time.monotonic() - began >= len(sent) * 8 / rate


def push(caller: Host, called: Host, sent: bytes, *, backwards: bool = False) -> bytes:
    """What arrives of `sent` over TCP, at the one that was called or, `backwards`, at the caller."""
    with called.inside():
        door = socket.create_server((called.address, 4000))
    with caller.inside():
        line = socket.socket()
    got = bytearray()
    with door, line:
        line.settimeout(_WAIT_S)
        line.connect((called.public_address, 4000))
        connection, _ = door.accept()
        with connection:
            connection.settimeout(_WAIT_S)
            source, sink = (connection, line) if backwards else (line, connection)

            def send() -> None:
                source.sendall(sent)
                source.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=send)
            thread.start()
            while data := sink.recv(1 << 20):
                got += data
            thread.join(_WAIT_S)
    return bytes(got)
