"""The links of a lab: packets go from one TUN device to another as a LinkModel of each direction says.

A program of its own, told what to do by lines of JSON on its standard input, each answered by a line. It ends, and its
devices with it, when standard input closes.

    {"do": "add", "link": NAME, "ends": [[NAMESPACE, DEVICE, ADDRESS], ...], "settings": [{..}, {..}], "seed": N}
    {"do": "set", "link": NAME, "direction": 0 or 1, "settings": {..}}
    {"do": "cut", "link": NAME, "direction": 0 or 1, "for_s": S}
    {"do": "count", "link": NAME, "direction": 0 or 1}

Direction 0 is from the first end to the second. An end's address is who says that a packet was too long for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from tests.netlab.icmp import too_long_notice
from tests.netlab.link_model import LinkModel, LinkSettings
from tests.netlab.namespaces import inside

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_LONGEST_PACKET = 65536
_BATCH = 64
_IDLE_S = 3600.0


class Shaper:
    """All links of one lab."""

    def __init__(self) -> None:
        self._links: dict[str, tuple[LinkModel, LinkModel]] = {}
        self._ways: dict[int, tuple[LinkModel, int]] = {}  # of a device: what it sends goes there, to that device
        self._beyond: dict[int, str] = {}  # of a device: the address of the other end

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do it and give the answer."""
        match order["do"]:
            case "add":
                ends = [_open_tun(namespace, device) for namespace, device, _ in order["ends"]]
                seed = int(order["seed"])
                models = [LinkModel(LinkSettings(**s), 2 * seed + i) for i, s in enumerate(order["settings"])]
                self._links[order["link"]] = (models[0], models[1])
                self._ways[ends[0]] = (models[0], ends[1])
                self._ways[ends[1]] = (models[1], ends[0])
                self._beyond |= {ends[0]: order["ends"][1][2], ends[1]: order["ends"][0][2]}
            case "set":
                self._model(order).settings = LinkSettings(**order["settings"])
            case "cut":
                self._model(order).cut(time.monotonic() + order["for_s"])
            case "count":
                return asdict(self._model(order).count)
            case other:
                raise ValueError(f"{other!r} is nothing to do")
        return {}

    def _model(self, order: dict[str, Any]) -> LinkModel:
        return self._links[order["link"]][order["direction"]]

    def run(self) -> None:
        """Until standard input closes."""
        orders = sys.stdin.buffer.raw
        devices: list[Any] = [orders]
        text = b""
        while True:
            ready, _, _ = select.select(devices, (), (), self._pause_s())
            for device in ready:
                if device is not orders:
                    self._take(device)
                    continue
                data = os.read(orders.fileno(), 65536)
                if not data:
                    return
                *lines, text = (text + data).split(b"\n")
                for line in lines:
                    print(json.dumps(self.obey(json.loads(line))), flush=True)
                devices = [orders, *self._ways]
            self._deliver()

    def _pause_s(self) -> float:
        moments = [at for model, _ in self._ways.values() if (at := model.next_at()) is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else _IDLE_S

    def _take(self, device: int) -> None:
        """What waits in the device goes onto its way; a bounded share, since others wait as well."""
        model, _ = self._ways[device]
        for _ in range(_BATCH):
            try:
                packet = os.read(device, _LONGEST_PACKET)
            except BlockingIOError:
                return
            if not model.send(time.monotonic(), packet):
                assert model.settings.mtu is not None
                self._put(device, too_long_notice(packet, model.settings.mtu, self._beyond[device]))

    def _deliver(self) -> None:
        now = time.monotonic()
        for model, to in self._ways.values():
            for packet in model.due(now):
                self._put(to, packet)

    def _put(self, device: int, packet: bytes | None) -> None:
        with suppress(OSError):  # the device is down, or its queue is full: lost, as on a wire
            if packet is not None:
                os.write(device, packet)


def _open_tun(namespace: str, device: str) -> int:
    with inside(namespace):
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return descriptor


if __name__ == "__main__":
    Shaper().run()
