"""The driver around the SWIM machine: performs its actions on connections, in the membership thread.

Nothing that the worker, the data plane or a busy main loop does delays a probe: the machine, its timer and the reading
of its messages have a thread and a loop of their own, and connections that are up need nobody else. Only a new
connection waits for the main loop, which owns the handshake.

Should the thread itself be starved (the process stopped, the machine overloaded), then the timer comes late. The
machine sees that by the clock, holds what it missed against nobody, and is more patient for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ppsmoke.membership.courier import Courier
from ppsmoke.membership.loop_thread import LoopThread
from ppsmoke.membership.swim import Action, Detour, MemberView, Note, Send, Swim
from ppsmoke.membership.table import MemberRow, PathKind
from ppsmoke.paths.watch import PathKind as WatchedKind
from ppsmoke.paths.watch import PathWatch
from ppsmoke.transport.path import Path

log = logging.getLogger(__name__)

MAX_KEPT = 8
KEPT_S = 3.0
"""How many messages wait for a link to be dialled, and for how long they are worth sending."""
MAX_DETOURS = 3
"""So many probes in a row that came back through others only mean that the link is broken. QUIC would notice after half
a minute; until then edges and control would go on using it."""
PATH_POLL_S = 1.0
_FLUSH_S = 0.2


class DriverEvents(Protocol):
    """What the driver tells; all calls are made in the membership thread."""

    def news(self, action: Action) -> None:
        """Every action of the machine that is no message."""

    def link_wanted(self, node_id: str) -> None:
        """There is something to send and no link."""

    def path_broken(self, node_id: str) -> None:
        """Nothing comes back on the link to a member that others reach."""

    def seen_at(self, node_id: str, address: str) -> None:
        """A peer's packets come from this "ip:port", no relay between; told once for each address."""

    def path_changed(self, node_id: str, before: WatchedKind, after: WatchedKind) -> None:
        """The link to a member goes another way now."""

    def name_of(self, node_id: str) -> str: ...

    def address(self) -> bytes:
        """One's own, as of now."""


@dataclass(slots=True)
class _Kept:
    at: float
    message: Send


class SwimDriver:
    """Made in any thread; everything else happens in `thread`, one call after the other."""

    def __init__(
        self,
        make_machine: Callable[[float], Swim],
        events: DriverEvents,
        thread: LoopThread,
        *,
        own_id: str,
    ) -> None:
        self._make_machine = make_machine
        self._events = events
        self._thread = thread
        self._own_id = own_id
        self._couriers: dict[str, Courier] = {}
        self._kept: dict[str, deque[_Kept]] = {}
        self._complained: set[tuple[str, str]] = set()
        self._seen_at: dict[str, str] = {}
        self._paths = PathWatch()
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[Callable[[Swim, float], list[Action]]] | None = None  # what waits for the end of a hold
        self.heard_at: dict[str, float] = {}  # when each peer last sent something; read by other threads
        # Set by `start`.
        self._loop: asyncio.AbstractEventLoop
        self.machine: Swim
        self._address: bytes

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.machine = self._make_machine(self._loop.time())
        self._address = self._events.address()
        self._thread.spawn(self._poll_paths(), "membership paths")

    def event(self, make: Callable[[Swim, float], list[Action]]) -> None:
        """Hand an event to the machine and perform what it answers. Raises what the machine raises (ValueError)."""
        if self._held is not None:
            self._held.append(make)
            return
        try:
            self._perform(make(self.machine, self._loop.time()))
        finally:
            self._arm()

    def attach(self, peer: str, connection: Any) -> None:
        """The link to `peer` is up, or has been replaced by this connection."""
        if old := self._couriers.pop(peer, None):
            old.stop()
        courier = Courier(
            peer, connection, received=self._received, complained=self._complain, ended=self._connection_closed
        )
        self._couriers[peer] = courier
        courier.start(self._thread.spawn, self._events.name_of(peer))
        fresh = self._loop.time() - KEPT_S
        for kept in self._kept.pop(peer, ()):
            if kept.at >= fresh:
                courier.send(kept.message.data, reliable=kept.message.reliable)
        self.event(lambda machine, now: machine.link_up(peer, now))
        self._look(courier)

    def detach(self, peer: str, *, left: bool) -> None:
        """The link to `peer` is down."""
        if courier := self._couriers.pop(peer, None):
            courier.stop()
        self.event(lambda machine, now: machine.link_down(peer, now, left=left))

    def hold(self) -> None:
        """Judge nobody from now on, as if this process were stopped; nothing is sent, and what comes is not heard."""
        if self._held is None:
            self._held = []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def go_on(self) -> None:
        """End a hold. The machine sees by the clock that it was away and holds against nobody what it missed."""
        held, self._held = self._held, None
        for make in held or ():
            self.event(make)
        if held is not None:
            self._tick()

    def rows(self) -> list[MemberRow]:
        """The table as it is now."""
        return [self._row(view) for view in self.machine.members().values()]

    async def leave(self) -> None:
        """Say goodbye, and return when the transport has it."""
        self.go_on()
        self.event(lambda machine, now: machine.leave(now))
        await asyncio.gather(*(courier.flush(_FLUSH_S) for courier in self._couriers.values()))

    def _row(self, view: MemberView) -> MemberRow:
        courier = self._couriers.get(view.node_id)
        path = courier.path() if courier else None
        kind: PathKind | None = "self" if view.node_id == self._own_id else None
        rtt_s = view.rtt_s
        if path is not None:
            kind = "relay" if path.relay else "direct"
            rtt_s = rtt_s if rtt_s is not None else path.rtt_s
        return MemberRow(view.node_id, view.stage_index, view.state, view.incarnation, rtt_s, kind, view.names)

    # ---- what comes in

    def _received(self, courier: Courier, data: bytes) -> None:
        if self._couriers.get(courier.peer) is not courier:
            return
        self.heard_at[courier.peer] = time.monotonic()
        if self._held is not None:
            return
        self.event(lambda machine, now: machine.receive(courier.peer, data, now))

    def _connection_closed(self, courier: Courier, left: bool) -> None:
        """Seen here before the main loop gets to it; that one will say it again, with the reason."""
        if self._couriers.get(courier.peer) is courier:
            self.detach(courier.peer, left=left)

    def _complain(self, courier: Courier, reason: str, text: str) -> None:
        if (courier.peer, reason) not in self._complained:
            self._complained.add((courier.peer, reason))
            log.warning("membership from %s: %s", self._events.name_of(courier.peer), text)

    # ---- what goes out

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._send(action)
                case Detour(peer, in_a_row):
                    if in_a_row >= MAX_DETOURS:
                        self._events.path_broken(peer)
                case Note(peer, reason, text):
                    expected = {"expected": reason == "replaced"}
                    log.warning("membership from %s: %s", self._events.name_of(peer), text, extra=expected)
                case _:
                    self._events.news(action)

    def _send(self, message: Send) -> None:
        courier = self._couriers.get(message.to)
        if courier is None:
            kept = self._kept.setdefault(message.to, deque(maxlen=MAX_KEPT))
            kept.append(_Kept(self._loop.time(), message))
            self._events.link_wanted(message.to)
            return
        courier.send(message.data, reliable=message.reliable)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.machine.deadline()
        self._timer = self._loop.call_at(due, self._tick) if due != float("inf") else None

    def _tick(self) -> None:
        self.event(lambda machine, now: machine.tick(now))

    async def _poll_paths(self) -> None:
        """The paths' own round trips, and an own address that has changed."""
        while True:
            await asyncio.sleep(PATH_POLL_S)
            for courier in list(self._couriers.values()):
                if (path := self._look(courier)) is not None and path.rtt_s is not None:
                    self._round_trip(courier.peer, path.rtt_s)
            self.check_address()

    def check_address(self) -> None:
        """Publish one's own address if it is another one by now."""
        if (address := self._events.address()) != self._address:
            self._address = address
            self._moved(address)

    def _look(self, courier: Courier) -> Path | None:
        """The path in use, and what follows from it."""
        path = courier.path()
        if path is not None:
            after: WatchedKind = "relay" if path.relay else "direct"
            if (before := self._paths.saw(courier.peer, after)) is not None:
                self._events.path_changed(courier.peer, before, after)
        if path is not None and not path.relay and self._seen_at.get(courier.peer) != path.address:
            self._seen_at[courier.peer] = path.address
            self._events.seen_at(courier.peer, path.address)
        return path

    def _round_trip(self, peer: str, rtt_s: float) -> None:
        if self._held is not None:
            return
        self.event(lambda machine, now: machine.round_trip(peer, rtt_s, now))

    def _moved(self, address: bytes) -> None:
        self.event(lambda machine, now: machine.update_address(address, now))
