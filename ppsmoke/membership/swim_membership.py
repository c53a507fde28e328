"""Membership as the rest of the process has it: the table in the main loop, the machine in a thread beside it."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from ppsmoke.errors import DeadlineExceeded, JoinRefused, PeerLeft, PeerLost, PpError
from ppsmoke.membership import swim
from ppsmoke.membership.address import pack_address, unpack_address
from ppsmoke.membership.api import Member, OnChange, OnPath, describe_member
from ppsmoke.membership.driver import SwimDriver
from ppsmoke.membership.loop_thread import LoopThread
from ppsmoke.membership.outside import OutsideView
from ppsmoke.membership.redial import Redial
from ppsmoke.membership.rules import admit_rule, name_rule
from ppsmoke.membership.table import MemberRow
from ppsmoke.paths.watch import PathKind
from ppsmoke.transport.events import MeshEvents
from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)

DIAL_S = 10.0
"""Of one dial that membership asks for: a handshake over a relay has bursts of seconds."""
_ASK_S = 5.0
_LEAVE_S = 0.5


class SwimMembership(MeshEvents):
    """One member of a run. `start` it inside the event loop, `join`, and `close` it before the mesh.

    orchestrator_id: the one member that is no stage, through which the others join.
    planned: the stage index of every planned node id; None trusts what nodes say.
    config: the protocol's numbers; the cluster and the rules are filled in here.

    Addresses in the table are taught to the mesh, so that any pair links from the table alone. A member that is
    declared dead loses its link, which ends what waits on it. When the orchestrator has gone, every wait here
    raises that.
    """

    def __init__(
        self,
        mesh: Mesh,
        *,
        orchestrator_id: str,
        stage_index: int | None,
        stage_count: int,
        config: swim.SwimConfig,
        planned: Mapping[str, int] | None = None,
        on_change: OnChange | None = None,
        on_path: OnPath | None = None,
    ) -> None:
        self._mesh = mesh
        self._own_id = mesh.node_id
        self._orchestrator_id = orchestrator_id
        self._on_change = on_change
        self._on_path = on_path
        own = Member(mesh.node_id, "alive", mesh.endpoint.ticket(), stage_index)
        self._records: dict[str, Member] = {own.node_id: own}
        self._holders: dict[str, str] = {}
        self._goodbyes: dict[str, PeerLeft] = {}
        self._redial = Redial()
        self._news_came = asyncio.Event()
        self._joined = False
        self._refused: str | None = None
        self._lost: PpError | None = None
        self._closing = False
        self._held = False
        self._thread = LoopThread("membership")
        identity = swim.Identity(mesh.node_id, secrets.randbits(63), stage_index, pack_address(own.ticket))
        config = replace(
            config,
            cluster=swim.cluster_tag(mesh.identity.run_id.encode(), mesh.identity.join_token),
            admit=admit_rule(orchestrator_id, stage_count, planned),
            may_hold=name_rule(stage_count),
        )
        self._bridge = _Bridge(self, mesh)
        self._driver = SwimDriver(
            lambda now: swim.Swim(identity, config, random.Random(secrets.randbits(64)), now),
            self._bridge,
            self._thread,
            own_id=mesh.node_id,
        )
        self._outside = OutsideView(mesh, lambda: self._thread.post(self._driver.check_address))
        mesh.add_listener(self)
        mesh.add_listener(self._outside)

    def start(self) -> None:
        """Begin to take part: from now on every link of the mesh carries membership."""
        self._bridge.loop = asyncio.get_running_loop()
        self._thread.start()
        self._thread.post(self._driver.start)
        for node_id in self._mesh.linked():
            self.link_up(node_id)

    async def join(self, deadline_s: float = 10.0) -> None:
        """Return when the orchestrator has answered with its table; at once at the orchestrator itself.

        Raises JoinRefused with the reason, PeerLost, DeadlineExceeded; all name the orchestrator.
        """
        seeds: list[str] = []
        clock = asyncio.get_running_loop().time
        ends = clock() + deadline_s
        seed_name = self._mesh.name_of(self._orchestrator_id)
        if self._own_id != self._orchestrator_id:
            seeds = [self._orchestrator_id]
            await self._mesh.link(self._orchestrator_id, deadline_s=deadline_s)
        self._event(lambda machine, now: machine.join(seeds, now))
        await self._until(
            lambda: self._joined or self._refused is not None,
            ends - clock(),
            lambda: f"{seed_name} did not answer the join within {deadline_s:g} s",
        )
        if self._refused is not None:
            raise JoinRefused(f"{seed_name} refused the join: {self._refused}", peer=seed_name, phase="join")

    def members(self) -> Mapping[str, Member]:
        """Every record known, one's own included, by node id."""
        return MappingProxyType(self._records)

    def resolve(self, name: str) -> str | None:
        """The node id of the member that holds `name`."""
        return self._holders.get(name)

    async def register(self, name: str, deadline_s: float = 10.0) -> None:
        """Take `name`; returns when our own table says so, the others follow.

        Raises JoinRefused with the reason when it is not ours to take, DeadlineExceeded while another one holds it.
        """
        try:
            await self._thread.ask(
                lambda: self._driver.event(lambda machine, now: machine.register(name, now)), deadline_s
            )
        except ValueError as error:
            raise JoinRefused(f"the name {name} was refused: {error}", phase="register") from None
        except TimeoutError:
            raise DeadlineExceeded(
                f"the name {name} was not registered within {deadline_s:g} s", phase="register"
            ) from None
        await self._until(
            lambda: self.resolve(name) == self._own_id,
            deadline_s,
            lambda: f"the name {name} is {self._holder_text(name)} after {deadline_s:g} s",
        )

    async def wait_alive(self, count: int, deadline_s: float) -> None:
        """Return when `count` members other than oneself are alive. Raises DeadlineExceeded, PeerLost."""

        def alive() -> int:
            return sum(m.state == "alive" and m.node_id != self._own_id for m in self._records.values())

        await self._until(
            lambda: alive() >= count,
            deadline_s,
            lambda: f"{alive()} of {count} other members were alive after {deadline_s:g} s",
        )

    async def wait_name(self, name: str, deadline_s: float) -> str:
        """The node id of the member that holds `name`, waiting for one. Raises DeadlineExceeded, PeerLost."""
        await self._until(
            lambda: self.resolve(name) is not None,
            deadline_s,
            lambda: f"nobody had registered the name {name} after {deadline_s:g} s",
        )
        return self._holders[name]

    def heard_within(self, node_id: str, seconds: float) -> bool:
        """Whether this member itself, and not others about it, has said something so lately."""
        at = self._driver.heard_at.get(node_id)
        return at is not None and time.monotonic() - at < seconds

    def hold(self) -> None:
        """Judge nobody from now on: the orchestrator's process is about to be stopped, and says so itself."""
        self._held = True
        self._thread.post(self._driver.hold)

    def go_on(self) -> None:
        """End a hold."""
        self._held = False
        self._thread.post(self._driver.go_on)

    @property
    def is_held(self) -> bool:
        """Whether the orchestrator's silence means nothing for now."""
        return self._held

    async def table(self) -> list[MemberRow]:
        """What an operator wants to know of every member, as of the moment of this call."""
        try:
            return await self._thread.ask(self._driver.rows, _ASK_S)
        except TimeoutError:
            return [
                MemberRow(m.node_id, m.stage_index, m.state, m.incarnation, names=m.names)
                for m in self._records.values()
            ]

    async def close(self) -> None:
        """Say goodbye to all and end the thread. Never raises; to be called before the mesh closes."""
        if self._closing:
            return
        self._closing = True
        self._lost = PeerLost("this process is leaving", phase="membership")
        self._wake()
        with suppress(TimeoutError):
            await self._thread.call(self._driver.leave(), _LEAVE_S)
        await self._thread.stop()

    # ---- MeshEvents

    def link_up(self, node_id: str) -> None:
        self._redial.linked(node_id)
        self._thread.post(self._driver.attach, node_id, self._mesh.connection_of(node_id))

    def link_down(self, node_id: str, reason: PpError) -> None:
        left = isinstance(reason, PeerLeft)
        if isinstance(reason, PeerLeft):
            self._goodbyes[node_id] = reason
        self._thread.post(lambda: self._driver.detach(node_id, left=left))

    # ---- from the thread, by way of the bridge

    def take(self, action: swim.Action) -> None:
        match action:
            case swim.MemberChanged(_, after):
                self._member_changed(after)
            case swim.NameChanged(name, before, after):
                self._name_changed(name, before, after)
            case swim.Joined():
                self._joined = True
            case swim.JoinRefused(_, reason):
                self._refused = reason
        self._wake()

    def link_wanted(self, node_id: str) -> None:
        if self._closing or self._mesh.is_linked(node_id) or not self._redial.begin(node_id, self._bridge.now()):
            return
        self._mesh.spawn(self._dial(node_id), f"dial {self._mesh.name_of(node_id)} for membership")

    def path_broken(self, node_id: str) -> None:
        if self._closing or not self._mesh.is_linked(node_id):
            return
        name = self._mesh.name_of(node_id)
        why = f"nothing comes back on it, although others reach {name}"
        log.warning("the link to %s is dialled anew: %s", name, why)
        self._mesh.break_link(node_id, why)
        self.link_wanted(node_id)

    def seen_at(self, node_id: str, address: str) -> None:
        """On loopback there is no outside."""
        if not (self._closing or self._mesh.endpoint.loopback_only):
            self._outside.tell(node_id, address)

    def path_changed(self, node_id: str, before: PathKind, after: PathKind) -> None:
        log.info("%s is reached another way: %s -> %s", self._mesh.name_of(node_id), before, after)
        if self._on_path is not None and not self._closing:
            self._on_path(node_id, before, after)

    # ---- the rest

    def _member_changed(self, view: swim.MemberView) -> None:
        node_id = view.node_id
        before = self._records.get(node_id)
        goodbye = self._goodbyes.pop(node_id, None) if view.state == "left" else None
        after = Member(
            node_id,
            view.state,
            unpack_address(view.address),
            view.stage_index,
            self._names_of(node_id) if view.is_present else frozenset(),
            goodbye.what if goodbye else view.reason,
            view.incarnation,
        )
        if view.is_present and node_id != self._own_id and (before is None or before.ticket != after.ticket):
            try:
                self._mesh.learn_address(node_id, after.ticket)
            except PpError as error:
                log.warning("in the membership table: %s", error)
        self._publish(before, after)
        if after.state == "alive" and node_id != self._own_id and not self._mesh.endpoint.loopback_only:
            # Whoever is seen from outside by somebody learns where; so far members know each other early.
            self.link_wanted(node_id)
        if node_id == self._orchestrator_id and not self._closing:
            self._lost = self._loss(after)
        if after.state == "dead":
            self._redial.died(node_id, self._bridge.now())
            self._mesh.give_up(node_id, after.reason)

    def _loss(self, orchestrator: Member) -> PpError | None:
        if orchestrator.state in ("alive", "suspect"):
            return None
        kind = PeerLeft if orchestrator.state == "left" else PeerLost
        return kind(orchestrator.reason, peer=self._mesh.name_of(orchestrator.node_id))

    def _name_changed(self, name: str, before: str | None, after: str | None) -> None:
        if after is None:
            self._holders.pop(name, None)
        else:
            self._holders[name] = after
        for node_id in (before, after):
            record = self._records.get(node_id or "")
            if record is not None:
                names = (record.names - {name}) | ({name} if node_id == after else frozenset())
                self._publish(record, replace(record, names=names))

    def _names_of(self, node_id: str) -> frozenset[str]:
        return frozenset(name for name, holder in self._holders.items() if holder == node_id)

    def _publish(self, before: Member | None, after: Member) -> None:
        self._records[after.node_id] = after
        if before == after:
            return
        log.info("member %s", describe_member(after))
        if self._on_change is not None:
            try:
                self._on_change(before, after)
            except Exception:
                log.exception("the membership listener failed")

    async def _dial(self, node_id: str) -> None:
        try:
            await self._mesh.link(node_id, deadline_s=DIAL_S)
        except PpError as error:
            self._redial.failed(node_id, self._bridge.now())
            log.debug("membership: %s", error)

    def _event(self, make: Callable[[swim.Swim, float], list[swim.Action]]) -> None:
        self._thread.post(self._driver.event, make)

    def _holder_text(self, name: str) -> str:
        holder = self.resolve(name)
        return "nobody's" if holder is None else f"held by {self._mesh.name_of(holder)}"

    async def _until(self, condition: Callable[[], bool], deadline_s: float, late: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while not condition():
                    if self._lost is not None:
                        raise self._lost
                    await self._news_came.wait()
        except TimeoutError:
            raise DeadlineExceeded(late(), phase="membership") from None

    def _wake(self) -> None:
        self._news_came.set()
        self._news_came = asyncio.Event()


class _Bridge:
    """Called in the membership thread; hands over to the main loop, in order."""

    def __init__(self, membership: SwimMembership, mesh: Mesh) -> None:
        self._membership = membership
        self._mesh = mesh
        self.loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> float:
        assert self.loop is not None
        return self.loop.time()

    def news(self, action: swim.Action) -> None:
        self._hand_over(self._membership.take, action)

    def link_wanted(self, node_id: str) -> None:
        self._hand_over(self._membership.link_wanted, node_id)

    def path_broken(self, node_id: str) -> None:
        self._hand_over(self._membership.path_broken, node_id)

    def seen_at(self, node_id: str, address: str) -> None:
        self._hand_over(self._membership.seen_at, node_id, address)

    def path_changed(self, node_id: str, before: PathKind, after: PathKind) -> None:
        self._hand_over(self._membership.path_changed, node_id, before, after)

    def name_of(self, node_id: str) -> str:
        return self._mesh.name_of(node_id)

    def address(self) -> bytes:
        return pack_address(self._mesh.endpoint.ticket())

    def _hand_over(self, call: Callable[..., None], *arguments: object) -> None:
        assert self.loop is not None
        with suppress(RuntimeError):  # the main loop is closed: nobody wants to know
            self.loop.call_soon_threadsafe(call, *arguments)
