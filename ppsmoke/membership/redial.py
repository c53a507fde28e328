"""When membership may dial a member it has something to say to. Pure.

A message to a member without a link must not start a dial each time; and a dial to a process that is gone takes its
whole budget and holds up the closing of the endpoint, so those are tried rarely.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_AT_ONCE = 16
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
DEAD_PAUSE_S = 5.0


@dataclass(slots=True)
class _Pause:
    until: float
    length: float


class Redial:
    def __init__(self) -> None:
        self._dialling: set[str] = set()
        self._pauses: dict[str, _Pause] = {}

    def begin(self, peer: str, now: float) -> bool:
        """Whether to dial `peer` now; if so, `linked` or `failed` must follow."""
        pause = self._pauses.get(peer)
        if peer in self._dialling or len(self._dialling) >= MAX_AT_ONCE or (pause and now < pause.until):
            return False
        self._dialling.add(peer)
        return True

    def linked(self, peer: str) -> None:
        """A link is up, whoever dialled."""
        self._dialling.discard(peer)
        self._pauses.pop(peer, None)

    def failed(self, peer: str, now: float) -> None:
        """The dial ended without a link: each time the pause is twice as long."""
        self._dialling.discard(peer)
        before = self._pauses.get(peer)
        length = min(2 * before.length, LONGEST_PAUSE_S) if before else FIRST_PAUSE_S
        self._pauses[peer] = _Pause(now + length, length)

    def died(self, peer: str, now: float) -> None:
        """It counts as dead. When it is not, it will dial us."""
        self._pauses[peer] = _Pause(now + DEAD_PAUSE_S, DEAD_PAUSE_S)
