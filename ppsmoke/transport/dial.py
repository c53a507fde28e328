"""Dialling: one dial per peer at a time, shared by all who wait for it, retried with backoff inside a budget."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ppsmoke.errors import DeadlineExceeded, JoinRefused, PeerLost, PpError
from ppsmoke.iroh_fix import IROH_ERRORS, iroh_text
from ppsmoke.transport import hello
from ppsmoke.transport.closing import CloseCode, peer_close
from ppsmoke.transport.framing import FrameError
from ppsmoke.transport.hello import MOMENTARY, HelloMalformed, Refused, Welcome
from ppsmoke.transport.rendezvous import PeerStamp
from ppsmoke.transport.stream import FrameStream

if TYPE_CHECKING:
    from ppsmoke.transport.mesh import Mesh

log = logging.getLogger(__name__)

_LOST: tuple[type[Exception], ...] = (PpError, *IROH_ERRORS)

ATTEMPT_S = 5.0
FIRST_ATTEMPT_S = 1.5
"""Where there is another way to try as well; each gets so long at first."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
GRACE_S = 0.3
"""A waiter outlasts the dial's own budget by this, to learn what the last attempt met."""


class Dial:
    """`done` resolves to None when a link is up, else to the error to raise."""

    def __init__(self) -> None:
        self.done: asyncio.Future[PpError | None] = asyncio.get_running_loop().create_future()
        self.hello_sent = False
        self.task: asyncio.Task[None] | None = None

    def settle(self, error: PpError | None) -> None:
        if not self.done.done():
            self.done.set_result(error)


class Dialler:
    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._dials: dict[str, Dial] = {}

    async def link(self, peer: str, deadline_s: float) -> None:
        """Return when the mesh has a link to `peer`. Raises as Mesh.link says."""
        clock = asyncio.get_running_loop().time
        ends = clock() + deadline_s
        while not self._mesh.is_linked(peer):
            if self._mesh.closing is not None:
                raise self._closing_error(peer)
            dial = self._dials.get(peer) or self._begin(peer, ends)
            try:
                async with asyncio.timeout_at(ends + GRACE_S):
                    error = await asyncio.shield(dial.done)
            except TimeoutError:
                error = self._too_late(peer, deadline_s, "")
            if error is None:
                return
            if isinstance(error, DeadlineExceeded) and clock() < ends:
                continue  # it was the shorter budget of whoever began the dial
            raise error

    def hello_sent(self, peer: str) -> bool:
        """Whether our own hello to `peer` is under way."""
        dial = self._dials.get(peer)
        return dial is not None and dial.hello_sent

    def linked(self, peer: str) -> None:
        """A link is up, whoever dialled: whatever we still try is superseded."""
        dial = self._dials.pop(peer, None)
        if dial is None:
            return
        dial.settle(None)
        if dial.task is not None and dial.task is not asyncio.current_task():
            dial.task.cancel()

    def give_up(self, peer: str, error: PpError) -> None:
        """End the dial to `peer`, if any: who waits for it gets `error`."""
        dial = self._dials.pop(peer, None)
        if dial is not None:
            dial.settle(error)
            if dial.task is not None:
                dial.task.cancel()

    def cancel_all(self) -> None:
        for peer, dial in list(self._dials.items()):
            dial.settle(self._closing_error(peer))
            if dial.task is not None:
                dial.task.cancel()
        self._dials.clear()

    def _begin(self, peer: str, ends: float) -> Dial:
        dial = Dial()
        self._dials[peer] = dial
        dial.task = self._mesh.spawn(self._run(peer, dial, ends), f"dial {self._mesh.name_of(peer)}")
        return dial

    async def _run(self, peer: str, dial: Dial, ends: float) -> None:
        loop = asyncio.get_running_loop()
        budget_s = ends - loop.time()
        name = self._mesh.name_of(peer)
        pause_s = FIRST_PAUSE_S
        last = "its address is not known"
        attempts = 0
        try:
            while loop.time() < ends:
                address = self._mesh.address_of(peer)
                if address is not None:
                    ways = self._mesh.endpoint.ways_to(address)
                    limit_s = FIRST_ATTEMPT_S if attempts < len(ways) > 1 else ATTEMPT_S
                    way = ways[attempts % len(ways)]
                    attempts += 1
                    outcome = await self._attempt(peer, dial, way, min(limit_s, ends - loop.time()))
                    if outcome is None:
                        return
                    if isinstance(outcome, Refused):
                        last = f"it refused: {outcome.reason}"
                        if outcome.code not in MOMENTARY:
                            what = f"{name} refused the link: {outcome.reason}"
                            dial.settle(JoinRefused(what, peer=name, phase="dial", remedy=_REMEDIES.get(outcome.code)))
                            return
                    else:
                        last = outcome
                    log.debug("no link to %s yet: %s", name, last)
                await asyncio.sleep(min(pause_s, max(0.0, ends - loop.time())))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            dial.settle(self._too_late(peer, budget_s, last))
        finally:
            if self._dials.get(peer) is dial:
                del self._dials[peer]
            dial.settle(self._closing_error(peer))

    async def _attempt(self, peer: str, dial: Dial, address: Any, limit_s: float) -> str | Refused | None:
        """None: the link is up; a text: this attempt failed; Refused: the peer said no."""
        connection: Any = None
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._mesh.endpoint.connect(address)
                opened: Any = connection
                stream = FrameStream(await connection.open_bi(), max_frame=hello.MAX_HELLO_BYTES, explain=_as_peer_lost)
                dial.hello_sent = True
                await stream.write_frame(hello.encode(self._mesh.own_hello(peer)))
                frame = await stream.read_frame()
                answer = hello.decode_answer(frame or b"")
                if isinstance(answer, Welcome):
                    connection = None
                    self._mesh.adopt(peer, opened, stream, PeerStamp(answer.life, answer.stamp))
                    return None
                return answer
        except TimeoutError:
            return "it did not answer" if connection is not None else "nothing answers at its address"
        except (HelloMalformed, FrameError) as error:
            return f"its answer makes no sense: {error}"
        except _LOST as error:
            return _refusal_in(connection) or _failure(str(error) if isinstance(error, PpError) else iroh_text(error))
        finally:
            dial.hello_sent = False
            if connection is not None:
                connection.close(int(CloseCode.SUPERSEDED), b"this attempt is over")

    def _too_late(self, peer: str, budget_s: float, last: str) -> DeadlineExceeded:
        name = self._mesh.name_of(peer)
        why = f" ({last})" if last else ""
        return DeadlineExceeded(f"no link to {name} within {budget_s:.3g} s{why}", peer=name, phase="dial")

    def _closing_error(self, peer: str) -> PeerLost:
        name = self._mesh.name_of(peer)
        return PeerLost(f"no link to {name}: this process is leaving", peer=name, phase="dial")


_REMEDIES = {
    "wrong_version": "Install the same version of pp-smoke-run on every machine of the run.",
    "wrong_protocol": "Install the same version of pp-smoke-run on every machine of the run.",
    "bad_token": "Give every node the join token of its own run.",
    "wrong_run": "Give every node the run id and address of its own orchestrator.",
}


def _refusal_in(connection: Any) -> Refused | None:
    """The refusal a peer closed the connection with, when its frame was overtaken by the close."""
    closed = peer_close(connection.close_reason()) if connection is not None else None
    if closed is None or closed.code != CloseCode.REFUSED:
        return None
    code, _, reason = closed.reason.partition(": ")
    return Refused(code, reason or code)


def _failure(text: str) -> str | Refused:
    if "doesn't support any known protocol" in text:
        return Refused("wrong_protocol", "it speaks another protocol")
    if "UnknownIssuer" in text:
        return "another node answers at its address"
    return text


async def _as_peer_lost(error: BaseException) -> PpError:
    return PeerLost(iroh_text(error))
