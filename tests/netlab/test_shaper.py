"""The shaper carries what links are asked to carry."""

from __future__ import annotations

import socket
import threading
import time

from tests.netlab.lab import Host, Lab
from tests.netlab.link_model import LinkSettings

_WAIT_S = 60.0


def test_a_sender_is_told_the_size_limit_of_a_link_and_keeps_to_it(lab: Lab) -> None:
    sender = lab.host("sender", link=LinkSettings(mtu=700))
    receiver = lab.host("receiver")
    assert push(sender, receiver, bytes(100_000)) == bytes(100_000)
    up, _ = sender.link.counts()
    assert 1 <= up.too_big < 30
    assert up.carried >= 100_000 // 700


def test_bytes_that_pass_a_limited_link_arrive_whole_and_no_faster_than_its_rate(lab: Lab) -> None:
    rate = 40e6
    sender = lab.host("sender", link=LinkSettings(delay_s=0.01, rate_bit_s=rate))
    receiver = lab.host("receiver", link=LinkSettings(delay_s=0.01))
    sent = bytes(range(256)) * 8192  # 2 MiB
    began = time.monotonic()
    assert push(sender, receiver, sent) == sent
    assert time.monotonic() - began >= len(sent) * 8 / rate


def push(sender: Host, receiver: Host, sent: bytes) -> bytes:
    """What arrives of `sent` over TCP."""
    with receiver.inside():
        door = socket.create_server((receiver.address, 4000))
    with sender.inside():
        line = socket.socket()
    got = bytearray()
    with door, line:
        line.settimeout(_WAIT_S)
        line.connect((receiver.public_address, 4000))
        connection, _ = door.accept()
        with connection:
            connection.settimeout(_WAIT_S)

            def send() -> None:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=send)
            thread.start()
            while data := connection.recv(1 << 20):
                got += data
            thread.join(_WAIT_S)
    return bytes(got)
