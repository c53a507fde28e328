"""One member's view of the cluster: the SWIM machine. Events in, actions out; no sockets, no clock, no asyncio.

The times given to successive events must not go back. Every event returns the actions to perform, in their order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ppsmoke.membership.swim.api import Action, Identity, MemberView
from ppsmoke.membership.swim.config import SwimConfig


class Swim:
    """Create it, `join`, and from then on hand in what comes and `tick` when `deadline` is reached.

    rng: the only source of chance; one per machine, so that a run can be replayed.
    now: seconds on any clock that never goes back (but stands still for nobody: a paused process must see that time
    has passed, or it will not know that it was away).
    """

    def __init__(self, me: Identity, config: SwimConfig, rng: random.Random, now: float) -> None:
        raise NotImplementedError

    # ---- events

    def join(self, seeds: Sequence[str], now: float) -> list[Action]:
        """Ask the members `seeds` (node ids that can be sent to already) for their view, until one answers.

        Ends with `Joined` or `JoinRefused`, from this or a later event; never gives up by itself. With no seeds one
        is the first member, and joined at once.
        """
        raise NotImplementedError

    def receive(self, sender: str, data: bytes, now: float) -> list[Action]:
        """One message from a peer whose node id the transport has verified. Never raises, whatever `data` is."""
        raise NotImplementedError

    def tick(self, now: float) -> list[Action]:
        """Do what is due. Call it at `deadline` or as soon after as possible; too early is harmless.

        Any event that comes more than `late_s` after the deadline shows that this process was starved or stopped: what
        others seem to have missed meanwhile is not held against them (all waits are prolonged by the delay), and the
        own health score rises.
        """
        raise NotImplementedError

    def deadline(self) -> float:
        """When `tick` wants to be called next; changes with every event. Infinite after `leave`."""
        raise NotImplementedError

    def link_up(self, peer: str, now: float) -> list[Action]:
        """A connection with `peer` came up, whoever opened it. One thought dead is probed at once."""
        raise NotImplementedError

    def link_down(self, peer: str, now: float, *, left: bool) -> list[Action]:
        """The connection with `peer` closed. A hint: it is probed at once. With `left` it said goodbye: it has left."""
        raise NotImplementedError

    def round_trip(self, peer: str, rtt_s: float, now: float) -> list[Action]:
        """A round trip to `peer` measured elsewhere, such as the path's in QUIC."""
        raise NotImplementedError

    def register(self, name: str, now: float) -> list[Action]:
        """Hold `name` from now on. Its value is the own address, which others find in the own member record.

        Raises ValueError when it is no name (`[a-z0-9-]`, 1 to 64 bytes), when the rule forbids it, or when these are
        too many. Holding it already is fine.
        """
        raise NotImplementedError

    def unregister(self, name: str, now: float) -> list[Action]:
        """Give `name` up. Not holding it is fine."""
        raise NotImplementedError

    def update_address(self, address: bytes, now: float) -> list[Action]:
        """The own address has changed. Raises ValueError when it is over MAX_ADDRESS_BYTES."""
        raise NotImplementedError

    def leave(self, now: float) -> list[Action]:
        """Say goodbye to all; nothing but these messages comes out of the machine any more."""
        raise NotImplementedError

    # ---- reading

    def members(self) -> Mapping[str, MemberView]:
        """The table as of the last event, oneself and the remembered dead included. Made anew by each call."""
        raise NotImplementedError

    def view(self, node_id: str) -> MemberView | None:
        """One row of the table."""
        raise NotImplementedError

    def resolve(self, name: str) -> MemberView | None:
        """Who holds `name`: alive or suspect, None when nobody does."""
        raise NotImplementedError

    def names(self) -> Mapping[str, str]:
        """Every name that is held, and the node id of its holder."""
        raise NotImplementedError

    def health(self) -> int:
        """The local health score: 0 is healthy, `max_awareness` is the worst."""
        raise NotImplementedError
