"""What both drivers share: reading the records, waiting for them to change, telling of changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from ppsmoke.errors import DeadlineExceeded, PpError
from ppsmoke.membership.api import Member, OnChange
from ppsmoke.membership.registry import Change
from ppsmoke.transport.events import MeshEvents

log = logging.getLogger(__name__)


class Records(Protocol):
    @property
    def members(self) -> Mapping[str, Member]: ...

    def holder(self, name: str) -> Member | None: ...


class MembershipBase(MeshEvents):
    """`lost` is set when waiting has become pointless; waiters raise it."""

    def __init__(self, own_id: str, records: Records, on_change: OnChange | None) -> None:
        self._own_id = own_id
        self._records = records
        self._on_change = on_change
        self._news = asyncio.Event()
        self._lost: PpError | None = None

    def members(self) -> Mapping[str, Member]:
        """Every record known, one's own included, by node id."""
        return self._records.members

    def resolve(self, name: str) -> str | None:
        """The node id of the alive member that holds `name`."""
        holder = self._records.holder(name)
        return holder.node_id if holder else None

    async def wait_alive(self, count: int, deadline_s: float) -> None:
        """Return when `count` members other than oneself are alive. Raises DeadlineExceeded, PeerLost."""

        def alive() -> int:
            return sum(m.state == "alive" and m.node_id != self._own_id for m in self._records.members.values())

        await self._until(
            lambda: alive() >= count,
            deadline_s,
            lambda: f"{alive()} of {count} other members were alive after {deadline_s:g} s",
        )

    async def wait_name(self, name: str, deadline_s: float) -> str:
        """The node id of the alive member that holds `name`, waiting for one. Raises DeadlineExceeded, PeerLost."""
        await self._until(
            lambda: self.resolve(name) is not None,
            deadline_s,
            lambda: f"nobody had registered the name {name} after {deadline_s:g} s",
        )
        holder = self.resolve(name)
        assert holder is not None
        return holder

    async def _until(self, condition: Callable[[], bool], deadline_s: float, late: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while not condition():
                    if self._lost is not None:
                        raise self._lost
                    await self._news.wait()
        except TimeoutError:
            raise DeadlineExceeded(late(), phase="membership") from None

    def _publish(self, changes: list[Change]) -> None:
        self._wake()
        for old, new in changes:
            log.info("member %s", _describe(new))
            if self._on_change is not None:
                try:
                    self._on_change(old, new)
                except Exception:
                    log.exception("the membership listener failed")

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _describe(new: Member) -> str:
    who = "orchestrator" if new.stage_index is None else f"stage {new.stage_index}"
    names = f", names {', '.join(sorted(new.names))}" if new.names else ""
    why = f" ({new.reason})" if new.reason else ""
    return f"{who} [{new.node_id[:8]}]: {new.state}{why}{names}"
