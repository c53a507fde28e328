"""Peers tell each other how they see each other from outside, and each publishes where it is seen.

It travels over links alone, so between members that have proven the run's token. The links' own keep-alive holds the
mapping of the NAT.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ppsmoke.errors import PpError
from ppsmoke.transport.events import MeshEvents
from ppsmoke.transport.external_address import ExternalAddresses
from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)

CHANNEL = "seen"
_SEND_S = 5.0


class OutsideView(MeshEvents):
    """`published()` is called in the event loop when the endpoint's address has become another one."""

    def __init__(self, mesh: Mesh, published: Callable[[], object]) -> None:
        self._mesh = mesh
        self._published = published
        self._external = ExternalAddresses()
        self._applying = asyncio.Lock()

    def tell(self, node_id: str, address: str) -> None:
        """We see this peer at `address`. In the event loop."""
        self._mesh.spawn(self._tell(node_id, address), f"tell {self._mesh.name_of(node_id)} its address")

    async def _tell(self, node_id: str, address: str) -> None:
        if node_id not in self._mesh.linked():
            return
        try:
            await self._mesh.send(node_id, CHANNEL, {"address": address}, deadline_s=_SEND_S)
        except PpError as error:
            log.debug("%s was not told its address: %s", self._mesh.name_of(node_id), error)

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        if channel != CHANNEL:
            return
        address = body.get("address")
        if isinstance(address, str) and len(address) <= 64:
            self._mesh.spawn(self._told(node_id, address), "publish an address")

    async def _told(self, node_id: str, address: str) -> None:
        async with self._applying:  # what was told first is published first
            endpoint = self._mesh.endpoint
            own = set(endpoint.direct_addresses()) - set(self._external.published)
            change = self._external.told(node_id, address, own)
            for old in change.remove:
                await endpoint.remove_external(old)
            for new in change.add:
                log.info("%s sees us at %s", self._mesh.name_of(node_id), new)
                await endpoint.add_external(new)
        if change.add or change.remove:
            self._published()
