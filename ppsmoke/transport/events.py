"""What a mesh tells the rest of the process."""

from __future__ import annotations

from typing import Any

from ppsmoke.errors import PpError


class MeshEvents:
    """Override what you need. Called in the event loop, never concurrently; what they raise is logged, not fatal."""

    def link_up(self, node_id: str) -> None:
        """Messages to and from `node_id` can flow now."""

    def link_down(self, node_id: str, reason: PpError) -> None:
        """PeerLeft when the peer said goodbye, any other PeerLost when it vanished, fell silent or misbehaved."""

    def message(self, node_id: str, channel: str, body: dict[str, Any]) -> None:
        """One control message, in the order `node_id` sent them."""
