"""Machines of a cluster, by small numbers, and messages to and from them, for tests that set one another up by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from ppsmoke.membership.swim import (
    LOCAL,
    Action,
    Identity,
    MemberChanged,
    NameChanged,
    Note,
    Send,
    Swim,
    SwimConfig,
    wire,
)
from ppsmoke.membership.swim.wire import Claim, Kind, Message

CLUSTER = b"cluster1"
CONFIG = replace(LOCAL, cluster=CLUSTER)


def node(number: int) -> str:
    """The node id of member `number`."""
    return f"{number:02x}" * 32


def identity(number: int, *, life: int | None = None, address: bytes | None = None) -> Identity:
    """Member 0 is the orchestrator, member i has stage i - 1."""
    return Identity(
        node(number),
        100 + number if life is None else life,
        None if number == 0 else number - 1,
        b"address %d" % number if address is None else address,
    )


def machine(number: int = 0, config: SwimConfig = CONFIG, *, now: float = 0.0, life: int | None = None) -> Swim:
    """A member that has joined without seeds."""
    swim = Swim(identity(number, life=life), config, random.Random(number), now)
    swim.join([], now)
    return swim


def claim(number: int, state: str = "alive", incarnation: int = 0, **fields: object) -> Claim:
    """What is said of member `number`; with its address when it is alive."""
    who = identity(number)
    address = who.address if state == "alive" else None
    made = Claim(who.node_id, state, incarnation, who.life, who.stage_index, address)  # type: ignore[arg-type]
    return made._replace(**fields)


def message(
    number: int,
    kind: Kind = Kind.NEWS,
    body: bytes = b"",
    claims: Sequence[Claim] = (),
    *,
    incarnation: int = 0,
    life: int | None = None,
    version: int = 1,
    cluster: bytes = CLUSTER,
) -> bytes:
    """A message as member `number` would send it."""
    head = wire.encode_head(version, cluster, kind, incarnation, 100 + number if life is None else life)
    return head + body + b"".join(map(wire.encode_claim, claims))


def meet(swim: Swim, *numbers: int, now: float = 0.0) -> None:
    """Let `swim` know these members as alive, and have heard from each."""
    for number in numbers:
        swim.receive(node(number), message(number, claims=[claim(number)]), now)


def decoded(send: Send) -> Message:
    return wire.decode(send.data, 1, CLUSTER)


def sent(actions: Sequence[Action], kind: Kind | None = None, to: int | None = None) -> list[tuple[Send, Message]]:
    """What was sent, of one kind and to one member if asked."""
    found = [(action, decoded(action)) for action in actions if isinstance(action, Send)]
    return [
        (action, got) for action, got in found if kind in (None, got.kind) and (to is None or action.to == node(to))
    ]


def changes(actions: Sequence[Action], number: int | None = None) -> list[tuple[str | None, str]]:
    """(state before, state after) of every member changed, or of one."""
    return [
        (action.before and action.before.state, action.after.state)
        for action in actions
        if isinstance(action, MemberChanged) and (number is None or action.after.node_id == node(number))
    ]


def name_changes(actions: Sequence[Action]) -> list[tuple[str, str | None, str | None]]:
    return [(action.name, action.before, action.after) for action in actions if isinstance(action, NameChanged)]


def notes(actions: Sequence[Action]) -> list[tuple[str, str]]:
    """(peer, reason) of every note."""
    return [(action.peer, action.reason) for action in actions if isinstance(action, Note)]


def state(swim: Swim, number: int) -> tuple[str, int]:
    """(state, incarnation) of a member."""
    view = swim.view(node(number))
    assert view is not None
    return view.state, view.incarnation


def run_until(
    swim: Swim, end: float, answer: Callable[[Send, Message, float], list[tuple[int, bytes]]] | None = None
) -> list[Action]:
    """Tick `swim` at its deadlines up to `end`, and return all actions. `answer` gives (member, message) pairs that
    come back at once for a message sent."""
    happened: list[Action] = []
    while swim.deadline() <= end:
        now = swim.deadline()
        actions = swim.tick(now)
        happened += actions
        while answer is not None and actions:
            replies = [
                reply
                for action in actions
                if isinstance(action, Send)
                for reply in answer(action, decoded(action), now)
            ]
            actions = [done for number, data in replies for done in swim.receive(node(number), data, now)]
            happened += actions
    return happened


def acks(*alive: int) -> Callable[[Send, Message, float], list[tuple[int, bytes]]]:
    """For `run_until`: the members `alive` answer every ping."""

    def answer(send: Send, got: Message, now: float) -> list[tuple[int, bytes]]:
        for number in alive:
            if send.to == node(number) and got.kind == Kind.PING:
                ping = got.body
                assert isinstance(ping, wire.Ping)
                return [(number, message(number, Kind.ACK, wire.encode_ping(ping.seq, ping.attempt)))]
        return []

    return answer


class Cluster:
    """Members that hear each other at once, in the order in which they speak, on one clock."""

    def __init__(self, count: int, config: SwimConfig = CONFIG) -> None:
        self.now = 0.0
        self.config = config
        self.swims: dict[str, Swim] = {}
        self.deaf: set[str] = set()
        self.actions: dict[str, list[Action]] = {}
        self.sends: list[tuple[str, Send]] = []
        for number in range(count):
            self.start(number)

    def start(self, number: int, *, life: int | None = None, address: bytes | None = None) -> None:
        """A process of member `number` starts and joins member 0."""
        swim = Swim(identity(number, life=life, address=address), self.config, random.Random(number), self.now)
        self.swims[node(number)] = swim
        self.actions.setdefault(node(number), [])
        self.deaf.discard(node(number))
        self.do(number, swim.join([] if number == 0 else [node(0)], self.now))

    def __getitem__(self, number: int) -> Swim:
        return self.swims[node(number)]

    def do(self, number: int, actions: Sequence[Action]) -> None:
        """Perform what member `number` wants, and all that follows."""
        pending = [(node(number), action) for action in actions]
        while pending:
            sender, action = pending.pop(0)
            self.actions[sender].append(action)
            if not isinstance(action, Send):
                continue
            self.sends.append((sender, action))
            if action.to in self.swims and not {sender, action.to} & self.deaf:
                answers = self.swims[action.to].receive(sender, action.data, self.now)
                pending += [(action.to, answer) for answer in answers]

    def run(self, duration: float) -> None:
        """Let time pass; the deaf are stopped processes."""
        end = self.now + duration
        while True:
            due = [(swim.deadline(), name) for name, swim in self.swims.items() if name not in self.deaf]
            when, name = min(due, default=(end + 1, ""))
            if when > end:
                break
            self.now = max(self.now, when)
            self.do(int(name[:2], 16), self.swims[name].tick(self.now))
        self.now = end

    def stop(self, *numbers: int) -> None:
        self.deaf |= {node(number) for number in numbers}

    def resume(self, *numbers: int) -> None:
        self.deaf -= {node(number) for number in numbers}

    def states(self, number: int) -> dict[int, str]:
        """What every running member thinks of member `number`."""
        return {int(name[:2], 16): state(swim, number)[0] for name, swim in self.swims.items() if name not in self.deaf}
