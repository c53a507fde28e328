"""A simulated host: a real SWIM machine, its own clock, and a process that is stopped, starved, killed, restarted."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from ppsmoke.membership.swim import (
    Action,
    Identity,
    Joined,
    JoinRefused,
    MemberChanged,
    MemberView,
    NameChanged,
    Note,
    Send,
    Swim,
)

if TYPE_CHECKING:
    from tests.sim.swim.network import Network, Path

SOCKET_DATAGRAMS = 512
TIMER_S = 0.001
LINGER_S = 0.3


@dataclass(frozen=True, slots=True)
class Change:
    """What one host noticed about another. `before` is None for a member it did not know."""

    at: float
    observer: int
    subject: int
    before: str | None
    after: str
    incarnation: int


class Host:
    """`runs`: its process executes. `paused`: it exists and does not. `swim` is the machine of its present life."""

    def __init__(self, network: Network, index: int) -> None:
        self.network = network
        self.index = index
        self.node_id = f"{index + 1:064x}"
        self.stage_index = None if index == 0 else index - 1
        self.rng = random.Random(f"host {index} of {network.seed}")
        self.clock = self.rng.uniform(0.0, 100_000.0)
        self.paths: dict[str, Path] = {}
        self.seeds: tuple[str, ...] = ()
        self.own_names: set[str] = set()
        self.config = network.config
        self.moves = 0
        self.swim: Swim | None = None
        self.life = 0
        self.joined = False
        self.refused: str | None = None
        self.paused = 0
        self.changes: list[Change] = []
        self.notes: list[Note] = []
        self.name_changed_at = 0.0
        self._wake_at = inf
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def __repr__(self) -> str:
        return f"host {self.index}"

    @property
    def runs(self) -> bool:
        return self.swim is not None and not self.paused

    @property
    def address(self) -> bytes:
        return b"host %d, life %d, move %d" % (self.index, self.life, self.moves)

    def now(self) -> float:
        """What this host's clock shows."""
        return self.network.now + self.clock

    def table(self) -> dict[str, MemberView]:
        assert self.swim is not None
        return dict(self.swim.members())

    # ---- its life ----

    def start(self, seeds: Sequence[Host] = ()) -> None:
        """A process starts: the same key, a new life, a new address, a clock that counts from elsewhere."""
        if self.swim is not None:
            return
        for connection in self.network.connections_of(self):
            self.network.close(connection)
        self.life += 1
        self.clock = self.rng.uniform(0.0, 100_000.0)
        self.seeds = tuple(seed.node_id for seed in seeds)
        self.network.say(f"{self} starts, life {self.life}")
        self.joined, self.refused = not seeds, None
        machine_rng = random.Random(f"machine of {self}, life {self.life}, of {self.network.seed}")
        self.swim = Swim(self.identity(), self.config, machine_rng, self.now())
        self.perform(self.swim.join(self.seeds, self.now()))

    def identity(self) -> Identity:
        """As of this life; the machine is promised that lives differ, not that they grow."""
        return Identity(self.node_id, self.rng.getrandbits(63), self.stage_index, self.address)

    def crash(self, hint_within_s: float) -> None:
        """kill -9. The others' connections to it break within `hint_within_s`."""
        if self.swim is None:
            return
        self.network.say(f"{self} is killed")
        self._end()
        self.network.host_stopped(self, hint_within_s)

    def leave(self) -> None:
        """It says goodbye, lingers a moment for its messages to go out, and exits."""
        if self.swim is None:
            return
        self.network.say(f"{self} leaves")
        self.perform(self.swim.leave(self.now()))
        self.network.after(LINGER_S, self._left, self.life)

    def _left(self, life: int) -> None:
        if self.swim is None or self.life != life:
            return
        self._end()
        for connection in self.network.connections_of(self):
            self.network.close(connection, left=self)

    def _end(self) -> None:
        self.swim = None
        self.joined = False
        self.own_names = set()
        self.paused = 0
        self._wake_at = inf
        self._inbox.clear()

    def pause(self) -> None:
        """SIGSTOP; nests."""
        if self.swim is not None:
            self.paused += 1
            self.network.say(f"{self} is paused")

    def resume(self, life: int) -> None:
        """SIGCONT to the process of that life. Whether its loop looks at its timers or its socket first is chance."""
        if life != self.life or not self.paused:
            return
        self.paused -= 1
        if self.paused:
            return
        self.network.say(f"{self} is resumed")
        timer_first = self.rng.random() < 0.5
        if timer_first:
            self._tick()
        while self._inbox and self.swim is not None:
            do, arguments = self._inbox.popleft()
            do(*arguments)
        if not timer_first:
            self._tick()

    # ---- what happens to it ----

    def soon(self, do: Callable[..., None], *arguments: Any) -> None:
        """Now, or when it runs again; never if it does not exist."""
        if self.swim is None:
            return
        if not self.paused:
            do(*arguments)
        elif len(self._inbox) < SOCKET_DATAGRAMS:
            self._inbox.append((do, arguments))

    def arrive(self, sender: str, data: bytes) -> None:
        if self.paused or self.swim is None:
            self.soon(self.arrive, sender, data)
            return
        self.perform(self.swim.receive(sender, data, self.network.now + self.clock))

    def link_up(self, peer: str) -> None:
        if self.swim is not None:
            self.perform(self.swim.link_up(peer, self.now()))

    def link_down(self, peer: str, left: bool) -> None:
        if self.swim is not None:
            self.perform(self.swim.link_down(peer, self.now(), left=left))

    def register(self, name: str) -> None:
        if self.swim is not None and self.joined:
            self.own_names.add(name)
            self.perform(self.swim.register(name, self.now()))

    def unregister(self, name: str) -> None:
        if self.swim is not None and name in self.own_names:
            self.own_names.remove(name)
            self.perform(self.swim.unregister(name, self.now()))

    def move(self) -> None:
        """Its address has changed; what was connected breaks."""
        if self.swim is None or self.index == 0:
            return
        self.moves += 1
        self.perform(self.swim.update_address(self.address, self.now()))
        for connection in self.network.connections_of(self):
            self.network.close(connection)

    def knows_address_of(self, peer: Host) -> bool:
        if peer.node_id in self.seeds:
            return True
        view = self.swim.view(peer.node_id) if self.swim is not None else None
        return view is not None and view.address == peer.address

    # ---- its machine ----

    def perform(self, actions: Sequence[Action]) -> None:
        network = self.network
        for action in actions:
            match action:
                case Send(to, data, reliable):
                    network.send(self, to, data, reliable)
                case MemberChanged(before, after):
                    self._member_changed(before, after)
                case NameChanged(name, old, new):
                    self.name_changed_at = network.now
                    network.say(f"{self}: {name} {network.label(old)} -> {network.label(new)}")
                case Joined():
                    self.joined = True
                    network.say(f"{self} has joined")
                case JoinRefused(by, reason):
                    self.refused = reason
                    network.say(f"{self} is refused by {by[-4:]}: {reason}")
                case Note():
                    self.notes.append(action)
                    network.say(f"{self} notes of {network.label(action.peer)}: {action.reason}: {action.text}")
        self._arm()

    def _member_changed(self, before: MemberView | None, after: MemberView) -> None:
        was = None if before is None else before.state
        subject = self.network.by_id.get(after.node_id)
        index = -1 if subject is None else subject.index
        self.changes.append(Change(self.network.now, self.index, index, was, after.state, after.incarnation))
        self.network.say(f"{self}: host {index} {was} -> {after.state}, incarnation {after.incarnation} {after.reason}")

    def _arm(self) -> None:
        if self.swim is None:
            return
        deadline = max(self.swim.deadline() - self.clock, self.network.now) + TIMER_S
        if deadline < self._wake_at:
            self._wake_at = deadline
            self.network.at(deadline, self._wake, deadline)

    def _wake(self, at: float) -> None:
        # An older alarm than the earliest one set is of no interest any more.
        if at == self._wake_at:
            self._wake_at = inf
            if not self.paused:
                self._tick()

    def _tick(self) -> None:
        if self.swim is None:
            return
        if self.swim.deadline() <= self.now():
            self.perform(self.swim.tick(self.now()))
        else:
            self._arm()
