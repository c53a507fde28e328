"""The links of one process, keyed by node id: dialling, accepting, messages, streams.

Whichever side dialled, one link serves both directions. A link ends when its connection does, when either side says
goodbye, or when it is given up: who is alive is not judged here but by membership, whose messages a link also carries.
QUIC itself gives up a silent peer after 30 s.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ppsmoke.errors import DeadlineExceeded, LinkBroken, MalformedRequest, PeerLeft, PeerLost, PpError
from ppsmoke.iroh_fix import IROH_ERRORS, iroh_text
from ppsmoke.transport import control, hello
from ppsmoke.transport.closing import CloseCode
from ppsmoke.transport.dial import Dialler
from ppsmoke.transport.endpoint import Endpoint, TicketInvalid, parse_ticket
from ppsmoke.transport.events import MeshEvents
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.hello import Hello, HelloMalformed, Refused, Welcome
from ppsmoke.transport.link import MAX_CONTROL_BYTES, Link, PathKind
from ppsmoke.transport.rendezvous import PeerStamp, Verdict, judge_incoming
from ppsmoke.transport.stall import LOOK_S
from ppsmoke.transport.stream import FrameStream
from ppsmoke.transport.tasks import stop_tasks

log = logging.getLogger(__name__)

_LOST: tuple[type[Exception], ...] = (PpError, *IROH_ERRORS)

_MAX_HANDSHAKES = 64
_LAST_S = 0.1


@dataclass(frozen=True, slots=True)
class MeshIdentity:
    """What every hello of this process states and every incoming one is held against."""

    run_id: str
    join_token: bytes
    tool_version: str


class Mesh:
    """One per process; call `start` inside the event loop, `close` at the end.

    name_of: what people call a node id ("stage 3", "orchestrator", "node 12ab34cd"), for logs and errors.
    admit: the last word on a peer whose hello is in order; None admits it.
    hello_deadline_s: how long an incoming connection may take to say who it is.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        run_id: str,
        join_token: bytes,
        tool_version: str,
        name_of: Callable[[str], str],
        admit: Callable[[str], Refused | None],
        events: MeshEvents,
        hello_deadline_s: float = 5.0,
    ) -> None:
        self.endpoint = endpoint
        self.node_id = endpoint.node_id
        self.name_of = name_of
        self.on_stream: Callable[[str, FrameStream], None] | None = None
        self.services: dict[bytes, Callable[[Any], Coroutine[Any, Any, None]]] = {}
        """What serves a connection of another protocol (ALPN), which is no link; each as a task of the mesh."""
        self.identity = MeshIdentity(run_id, join_token, tool_version)
        self._admit = admit
        self._listeners = [events]
        self._hello_deadline_s = hello_deadline_s
        self._links: dict[str, Link] = {}
        self._addresses: dict[str, Any] = {}
        self.stopped: set[str] = set()
        """Nodes whose process is known to be stopped: that they do not answer says nothing about the path."""
        self._path_kinds: dict[str, PathKind] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes = 0
        self._life = secrets.token_hex(8)
        self._stamp = 0
        self._closing: str | None = None
        self._dialler = Dialler(self)

    def start(self) -> None:
        """Begin to accept connections."""
        self.spawn(self._accept(), "accept connections")
        self.spawn(self._watch_paths(), "watch the paths")

    def add_listener(self, events: MeshEvents) -> None:
        """Also tell `events`, after those that were there before."""
        self._listeners.append(events)

    def learn_address(self, node_id: str, ticket: str) -> None:
        """Remember where `node_id` can be dialled; a newer address replaces the older one.

        Raises PeerLost when `ticket` is no address or belongs to another node.
        """
        name = self.name_of(node_id)
        try:
            owner, address = parse_ticket(ticket)
        except TicketInvalid as error:
            raise PeerLost(f"the address given for {name} is unusable: {error}", peer=name, phase="address") from None
        if owner != node_id:
            raise PeerLost(f"the address given for {name} belongs to another node", peer=name, phase="address")
        self._addresses[node_id] = address

    def linked(self) -> frozenset[str]:
        """The node ids with a live link."""
        return frozenset(self._links)

    def connection_of(self, node_id: str) -> Any:
        """The iroh connection of the link to `node_id`, None without one. Its bidirectional streams are the mesh's; its
        datagrams and unidirectional streams are free."""
        link = self._links.get(node_id)
        return link.connection if link else None

    async def link(self, node_id: str, *, deadline_s: float = 10.0) -> None:
        """Return when a link to `node_id` is up: the existing one, the peer's dial, or ours, retried with backoff.

        Raises JoinRefused with the peer's reason, DeadlineExceeded after `deadline_s` seconds, PeerLost when this mesh
        is closing; all name the peer and the phase "dial".
        """
        if node_id not in self._links:
            await self._dialler.link(node_id, deadline_s)

    async def send(self, node_id: str, channel: str, body: dict[str, Any], *, deadline_s: float = 10.0) -> None:
        """Send one message, dialling first when there is no link; messages to one peer arrive in order.

        Returns when the transport has taken it; should the connection break meanwhile it is sent again, on another one,
        and may come twice. Raises what `link` raises, PeerLost when the link ends for good,
        DeadlineExceeded when the peer does not take it in `deadline_s` seconds, MalformedRequest when it is too big.
        """
        frame = control.encode(control.Message(channel, body))
        name = self.name_of(node_id)
        if len(frame) > MAX_CONTROL_BYTES:
            raise MalformedRequest(f"a {channel} message of {len(frame)} bytes to {name} is over {MAX_CONTROL_BYTES}")
        clock = asyncio.get_running_loop().time
        ends = clock() + deadline_s
        while True:
            link = await self._need_link(node_id, max(0.0, ends - clock()))
            try:
                async with asyncio.timeout_at(ends):
                    await link.post(frame)
                return
            except LinkBroken:
                continue  # on another connection
            except TimeoutError:
                what = f"{name} did not take a {channel} message within {deadline_s:g} s"
                raise DeadlineExceeded(what, peer=name, phase="send") from None

    async def open_stream(self, node_id: str, *, max_frame: int, deadline_s: float = 10.0) -> FrameStream:
        """A new stream to `node_id`, dialling first when there is no link. Raises as `send` does."""
        ends = asyncio.get_running_loop().time() + deadline_s
        link = await self._need_link(node_id, deadline_s)
        try:
            async with asyncio.timeout_at(ends):
                return await link.open_stream(max_frame)
        except TimeoutError:
            what = f"no stream to {link.name} could be opened within {deadline_s:g} s"
            raise DeadlineExceeded(what, peer=link.name, phase="open stream") from None

    async def drop(self, node_id: str, reason: str) -> None:
        """Close the link to `node_id`, if any, telling it why."""
        if link := self._links.get(node_id):
            await link.leave(control.encode(control.Bye(reason)), reason, 1.0)

    def give_up(self, node_id: str, reason: str) -> None:
        """The node is gone: close the link to it and end a dial, at once. Nothing is sent that somebody must take."""
        name = self.name_of(node_id)
        lost = PeerLost(f"the link to {name} is lost: {reason}", peer=name)
        self._dialler.give_up(node_id, lost)
        if link := self._links.get(node_id):
            link.end(lost, CloseCode.SILENT, reason)

    def break_link(self, node_id: str, reason: str, *, stalled_s: float = 0.0) -> None:
        """The connection is of no use, and its node may live: close it, so that whoever needs one dials another.

        `stalled_s`: how long nothing has come on it, in seconds.
        """
        if link := self._links.get(node_id):
            broken = LinkBroken(f"the link to {link.name} is lost: {reason}", peer=link.name)
            broken.stalled_s = stalled_s
            link.end(broken, CloseCode.BROKEN, reason)

    async def close(self, reason: str, deadline_s: float = 3.0) -> None:
        """Tell every peer that we leave and why, then close links, tasks and endpoint. Never raises, never hangs."""
        if self._closing is not None:
            return
        self._closing = reason
        clock = asyncio.get_running_loop().time
        ends = clock() + deadline_s
        self._dialler.cancel_all()
        bye = control.encode(control.Bye(reason))
        links = list(self._links.values())
        known = await asyncio.gather(*(link.leave(bye, reason, deadline_s / 3) for link in links))
        await stop_tasks(self._tasks, deadline_s / 3)
        # The library now and then waits for connections whose peers have gone. Where all know that we leave, nothing is
        # left to wait for.
        await self.endpoint.close(_LAST_S if all(known) else max(_LAST_S, ends - clock()))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` until it ends or the mesh closes; what it raises is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def round_trip_s(self, node_id: str) -> float:
        """Of the path to `node_id` that is in use, as QUIC measures it; 0 where that is below 1 ms, or unknown."""
        link = self._links.get(node_id)
        counts = link.path_counts() if link else None
        return counts.round_trip_s if counts else 0.0

    def path_kind(self, node_id: str) -> PathKind:
        """What path the link to `node_id` takes; where there is none now, what the one before took."""
        if (link := self._links.get(node_id)) and link.path_counts():
            self._path_kinds[node_id] = link.path_kind
        return self._path_kinds.get(node_id, "none")

    # ---- what the dialler needs

    @property
    def closing(self) -> str | None:
        return self._closing

    def address_of(self, node_id: str) -> Any:
        return self._addresses.get(node_id)

    def is_linked(self, node_id: str) -> bool:
        return node_id in self._links

    def own_hello(self, peer: str) -> Hello:
        """A new hello to `peer`."""
        return Hello(
            run_id=self.identity.run_id,
            protocol=hello.PROTOCOL_VERSION,
            tool_version=self.identity.tool_version,
            proof=hello.make_proof(self.identity.join_token, self.identity.run_id, self.node_id, peer),
            ticket=self.endpoint.ticket(),
            life=self._life,
            stamp=self._next_stamp(),
        )

    def adopt(
        self, peer: str, connection: Any, stream: FrameStream, stamp: PeerStamp, *, greeting: bytes = b""
    ) -> None:
        """Make a connection whose handshake is done the link to `peer`; `greeting` goes out first."""
        link = Link(peer=peer, name=self.name_of(peer), connection=connection, control=stream, stamp=stamp)
        self._links[peer] = link
        link.start(self, self.spawn)
        if greeting:
            link.offer(greeting)
        self._dialler.linked(peer)
        log.info("linked with %s", link.name)
        self._tell("link_up", peer)

    # ---- LinkOwner

    def link_frame(self, link: Link, frame: bytes) -> None:
        match control.decode(frame):
            case control.Message(channel, body):
                self._tell("message", link.peer, channel, body)
            case control.Bye(reason):
                left = PeerLeft(f"{link.name} left: {reason}", peer=link.name)
                link.end(left, CloseCode.LEFT, "goodbye received")

    def link_stream(self, link: Link, stream: FrameStream) -> None:
        if self.on_stream is None:
            self.spawn(stream.abort(), f"refuse a stream from {link.name}")
            return
        try:
            self.on_stream(link.peer, stream)
        except Exception:
            log.exception("a stream from %s could not be handled", link.name)

    def link_ended(self, link: Link, error: PpError) -> None:
        if self._links.get(link.peer) is not link:
            return
        del self._links[link.peer]
        if self._closing is None:
            log.info("link down: %s", error)
            self._tell("link_down", link.peer, error)

    # ---- paths that die

    async def _watch_paths(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_S)
            for link in list(self._links.values()):
                counts = link.path_counts() if link.peer not in self.stopped else None
                stalled_s = link.stall.look(counts, clock())
                self._path_kinds[link.peer] = link.path_kind
                if stalled_s is not None:
                    log.warning("the link to %s is given up: no answer for %.1f s", link.name, stalled_s)
                    self.break_link(link.peer, f"no answer for {stalled_s:.1f} s", stalled_s=stalled_s)

    # ---- incoming connections

    async def _accept(self) -> None:
        while True:
            try:
                incoming = await self.endpoint.accept_next()
                if incoming is None:
                    return
                if self._closing is not None or self._handshakes >= _MAX_HANDSHAKES:
                    await incoming.refuse()
                    continue
            except IROH_ERRORS as error:
                log.warning("accepting connections: %s", iroh_text(error))
                await asyncio.sleep(0.1)
                continue
            self.spawn(self._greet(incoming), "greet an incoming connection")

    async def _greet(self, incoming: Any) -> None:
        connection: Any = None
        who = "an unknown node"
        self._handshakes += 1
        try:
            async with asyncio.timeout(self._hello_deadline_s):
                connection = await (await incoming.accept()).connect()
                if service := self.services.get(bytes(connection.alpn())):
                    self.spawn(service(connection), "serve a connection that is no link")
                    connection = None
                    return
                peer = str(connection.remote_id())
                who = self.name_of(peer)
                stream = FrameStream(
                    await connection.accept_bi(), max_frame=hello.MAX_HELLO_BYTES, explain=_greeting_lost
                )
                frame = await stream.read_frame()
                said = hello.decode_hello(frame or b"")
                verdict = self._judge(peer, said)
                if isinstance(verdict, Refused):
                    # Two dials at once are no news: one of them wins. Nor is one that comes too late.
                    is_news = verdict.code not in hello.MOMENTARY and self._closing is None
                    level = logging.WARNING if is_news else logging.DEBUG
                    log.log(level, "refused a link from %s: %s", who, verdict.reason)
                    await stream.write_frame(hello.encode(verdict))
                    await stream.finish()
                    await stream.wait_delivered(1.0)
                    why = f"{verdict.code}: {verdict.reason}".encode(errors="replace")[:512]
                    connection.close(int(CloseCode.REFUSED), why)
                    connection = None
                    return
                if old := self._links.get(peer):
                    replaced = LinkBroken(f"{old.name} linked anew, its old link is dead", peer=old.name)
                    old.end(replaced, CloseCode.REPLACED, "replaced by a new link")
                greeting = hello.encode(Welcome(self.endpoint.ticket(), self._life, self._next_stamp()))
                self.adopt(peer, connection, stream, PeerStamp(said.life, said.stamp), greeting=greeting)
                connection = None
        except TimeoutError:
            log.warning("%s connected and said nothing proper within %g s", who, self._hello_deadline_s)
        except (HelloMalformed, FrameError) as error:
            log.warning("%s connected and sent no hello: %s", who, error)
        except _LOST as error:
            log.debug("%s connected and went away: %s", who, error if isinstance(error, PpError) else iroh_text(error))
        finally:
            self._handshakes -= 1
            if connection is not None:
                connection.close(int(CloseCode.PROTOCOL), b"no proper hello")

    def _judge(self, peer: str, said: Hello) -> Verdict | Refused:
        refused = hello.judge_hello(
            said,
            run_id=self.identity.run_id,
            join_token=self.identity.join_token,
            tool_version=self.identity.tool_version,
            own_id=self.node_id,
            dialler_id=peer,
        )
        refused = refused or self._admit(peer)
        if refused is not None:
            return refused
        if self._closing is not None:
            return Refused("leaving", f"it is leaving: {self._closing}")
        try:
            self.learn_address(peer, said.ticket)
        except PpError as error:
            return Refused("wrong_address", str(error))
        link = self._links.get(peer)
        return judge_incoming(
            own_id=self.node_id,
            peer_id=peer,
            hello=PeerStamp(said.life, said.stamp),
            link=link.stamp if link else None,
            own_hello_sent=self._dialler.hello_sent(peer),
        )

    # ---- the rest

    async def _need_link(self, node_id: str, deadline_s: float) -> Link:
        await self.link(node_id, deadline_s=deadline_s)
        link = self._links.get(node_id)
        if link is None:
            name = self.name_of(node_id)
            raise LinkBroken(f"the link to {name} ended as soon as it was up", peer=name, phase="dial")
        return link

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def _tell(self, event: str, *arguments: Any) -> None:
        for listener in list(self._listeners):
            try:
                getattr(listener, event)(*arguments)
            except Exception:
                log.exception("a listener failed on %s", event)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)


async def _greeting_lost(error: BaseException) -> PpError:
    return PeerLost(iroh_text(error))
