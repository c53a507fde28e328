"""A simulated network in virtual time. What it models is what the real driver meets:

* Datagrams are lost, duplicated, overtaken. Reliable messages wait for retransmissions, stay in order per direction,
  and are lost only with their connection.
* A connection is dialled towards an address the sender knows (its seed's, or one it was told); that takes a round trip
  and fails while the address is out of date. A connection breaks after `IDLE_TIMEOUT_S` without a way through.
* A paused host runs nothing; what arrives waits in its socket, and its timers are late when it wakes up.

One heap of events and one seeded generator: the same seed is the same run, message by message (`Network.digest`).
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ppsmoke.membership.swim import MAX_MESSAGE_BYTES, SwimConfig
from tests.sim.swim.host import Host

IDLE_TIMEOUT_S = 15.0
DIAL_BUDGET_S = 10.0
DIAL_RETRY_S = 1.0
QUEUED_WHILE_DIALLING = 64
STRAGGLER_S = 1.0
MOST_RETRANSMISSION_S = 5.0


@dataclass(frozen=True, slots=True)
class Quality:
    """One direction of a path: seconds one way (uniform in `latency_s` +- `jitter_s`), chances per datagram."""

    latency_s: float = 0.0005
    jitter_s: float = 0.0003
    loss: float = 0.0
    duplicate: float = 0.0
    straggle: float = 0.0  # arrives up to STRAGGLER_S late, behind younger ones


LOOPBACK = Quality()
INTERCONTINENTAL = Quality(latency_s=0.2, jitter_s=0.05, loss=0.05)
"""200 ms +- 50 ms one way, which is a round trip of 300 to 500 ms, and one datagram in twenty lost."""


class Path:
    """One direction between two hosts. Each end dials for itself, and queues what it has to say meanwhile."""

    __slots__ = (
        "blocked",
        "blocked_since",
        "connection",
        "dialling",
        "held",
        "last_reliable",
        "quality",
        "queue",
        "receiver",
        "sender",
    )

    def __init__(self, connection: Connection, sender: Host, receiver: Host, quality: Quality) -> None:
        self.connection = connection
        self.sender = sender
        self.receiver = receiver
        self.quality = quality
        self.blocked = 0
        self.blocked_since = 0.0
        self.dialling = False
        self.queue: deque[tuple[bytes, bool]] = deque(maxlen=QUEUED_WHILE_DIALLING)
        self.last_reliable = 0.0
        self.held: list[bytes] = []  # reliable messages that wait for the way to open

    def forget(self) -> None:
        """Drop what is not on its way yet."""
        self.dialling = False
        self.queue.clear()
        self.held.clear()


class Connection:
    """What two hosts share, whoever dialled. `epoch` grows when it opens or closes; what is in flight then is lost."""

    __slots__ = ("epoch", "open", "paths")

    def __init__(self, one: Host, other: Host, quality: Quality) -> None:
        self.paths = (Path(self, one, other, quality), Path(self, other, one, quality))
        self.open = False
        self.epoch = 0


class Network:
    """`hosts[0]` is the orchestrator: the one without a stage index, and everybody's seed.

    With `hints` hosts are told of connections that come and go (`link_up`, `link_down`), without they are not.
    """

    def __init__(
        self, seed: object, count: int, config: SwimConfig, *, quality: Quality = LOOPBACK, hints: bool = True
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"network {seed}")
        self.config = config
        self.quality = quality
        self.hints = hints
        self.now = 0.0
        self.digest = 0
        self.sent = [0] * count
        self.sent_bytes = [0] * count
        self.largest = 0
        self.trace: Callable[[str], None] | None = None
        self.tap: Callable[[Host, str, bytes], None] | None = None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._pushed = 0
        self.hosts = [Host(self, index) for index in range(count)]
        self.by_id = {host.node_id: host for host in self.hosts}
        self.connections: dict[tuple[int, int], Connection] = {}
        for one in self.hosts:
            for other in self.hosts[one.index + 1 :]:
                self.connections[one.index, other.index] = connection = Connection(one, other, quality)
                one.paths[other.node_id], other.paths[one.node_id] = connection.paths

    # ---- time ----

    def at(self, when: float, do: Callable[..., None], *arguments: Any) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (when, self._pushed, do, arguments))

    def after(self, delay_s: float, do: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + delay_s, do, *arguments)

    def run(self, until: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, do, arguments = heapq.heappop(heap)
            do(*arguments)
        self.now = until

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now:9.3f}  {line}")

    def label(self, node_id: str | None) -> str:
        return "nobody" if node_id is None else str(self.by_id.get(node_id, node_id))

    # ---- messages ----

    def send(self, sender: Host, to: str, data: bytes, reliable: bool) -> None:
        self.sent[sender.index] += 1
        self.sent_bytes[sender.index] += len(data)
        if len(data) > self.largest:
            self.largest = len(data)
            assert self.largest <= MAX_MESSAGE_BYTES, f"{sender} sent a message of {len(data)} bytes"
        if self.tap is not None:
            self.tap(sender, to, data)
        path = sender.paths.get(to)
        if path is None:
            return
        if path.connection.open:
            self._carry(path, data, reliable)
        else:
            path.queue.append((data, reliable))
            self._dial(path)

    def _carry(self, path: Path, data: bytes, reliable: bool) -> None:
        random_ = self.rng.random
        quality = path.quality
        when = self.now + quality.latency_s + quality.jitter_s * (2.0 * random_() - 1.0)
        if reliable:
            if path.blocked:
                path.held.append(data)
                return
            timeout = 3.0 * quality.latency_s + 0.025
            while quality.loss and random_() < quality.loss and when < self.now + MOST_RETRANSMISSION_S:
                when += timeout
                timeout = min(2.0 * timeout, 1.0)
            path.last_reliable = when = max(when, path.last_reliable)
        else:
            if path.blocked or (quality.loss and random_() < quality.loss):
                return
            if quality.straggle and random_() < quality.straggle:
                when += STRAGGLER_S * random_()
            if quality.duplicate and random_() < quality.duplicate:
                self.at(when + STRAGGLER_S * random_() ** 4, self._arrive, path, data, path.connection.epoch)
        self.at(when, self._arrive, path, data, path.connection.epoch)

    def _arrive(self, path: Path, data: bytes, epoch: int) -> None:
        if path.connection.epoch != epoch:
            return
        self.digest = zlib.crc32(data, (self.digest + path.receiver.index + int(self.now * 1e6)) & 0xFFFFFFFF)
        path.receiver.arrive(path.sender.node_id, data)

    # ---- connections ----

    def _dial(self, path: Path) -> None:
        if not path.dialling:
            path.dialling = True
            self._attempt(path, self.now + DIAL_BUDGET_S, path.connection.epoch)

    def _attempt(self, path: Path, until: float, epoch: int) -> None:
        connection = path.connection
        if connection.epoch != epoch or not path.dialling:
            return
        sender, receiver = path.sender, path.receiver
        if sender.knows_address_of(receiver) and not self._is_cut(connection):
            receiver.soon(self._answer, path, epoch)
            if receiver.runs:
                return
        if self.now + DIAL_RETRY_S <= until and sender.runs:
            self.after(DIAL_RETRY_S, self._attempt, path, until, epoch)
        else:
            path.forget()
            self._hint_down(sender, receiver)

    def _answer(self, path: Path, epoch: int) -> None:
        """The other end has the handshake; one that was paused, as soon as it runs again."""
        if path.connection.epoch == epoch and path.dialling and path.sender.swim and not self._is_cut(path.connection):
            self.after(3.0 * path.quality.latency_s, self._opened, path.connection, epoch)

    def _is_cut(self, connection: Connection) -> bool:
        return bool(connection.paths[0].blocked or connection.paths[1].blocked)

    def _opened(self, connection: Connection, epoch: int) -> None:
        if connection.epoch != epoch:
            return
        connection.epoch += 1
        connection.open = True
        for path in connection.paths:
            path.dialling = False
            path.last_reliable = self.now
            if self.hints:
                path.sender.soon(path.sender.link_up, path.receiver.node_id)
            while path.queue:
                self._carry(path, *path.queue.popleft())

    def close(self, connection: Connection, *, left: Host | None = None) -> None:
        """The connection is gone, with all that was on its way. `left` said goodbye first."""
        was_open = connection.open
        connection.epoch += 1
        connection.open = False
        for path in connection.paths:
            path.forget()
            if was_open:
                self._hint_down(path.sender, path.receiver, left=path.receiver is left)

    def _hint_down(self, host: Host, peer: Host, *, left: bool = False) -> None:
        if self.hints:
            host.soon(host.link_down, peer.node_id, left)

    def connections_of(self, host: Host) -> list[Connection]:
        return [path.connection for path in host.paths.values()]

    def host_stopped(self, host: Host, within_s: float) -> None:
        """A process that ended says nothing; the others' connections to it break one after another."""
        for connection in self.connections_of(host):
            self.after(within_s * self.rng.random(), self._broke, connection, connection.epoch)

    def _broke(self, connection: Connection, epoch: int) -> None:
        if connection.epoch == epoch:
            self.close(connection)

    # ---- what goes wrong with paths ----

    def block(self, path: Path) -> None:
        path.blocked += 1
        if path.blocked == 1:
            path.blocked_since = self.now
            self.after(IDLE_TIMEOUT_S, self._idle, path, self.now)

    def unblock(self, path: Path) -> None:
        path.blocked -= 1
        if path.blocked == 0:
            held, path.held = path.held, []
            path.last_reliable = max(path.last_reliable, self.now + self.rng.random())
            for data in held:
                self._carry(path, data, True)

    def _idle(self, path: Path, since: float) -> None:
        if path.blocked and path.blocked_since == since:
            self.close(path.connection)

    def paths_between(self, senders: Sequence[Host], receivers: Sequence[Host]) -> list[Path]:
        return [s.paths[r.node_id] for s in senders for r in receivers if s is not r]
