"""The book of everything a run creates: entered before it is created, crossed out only when its end was verified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ppsmoke.errors import LeftBehind
from ppsmoke.waiting import wait_for

End = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Entry:
    """`end` ends the resource and verifies it; it may be called for a resource that never came to be."""

    kind: str
    label: str
    end: End
    deadline_s: float

    def describe(self) -> str:
        return f"{self.kind} {self.label}"


class ResourceBook:
    """Ends what it holds in reverse order of entry; one that fails does not keep the others from ending."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def enter(self, kind: str, label: str, end: End, *, deadline_s: float) -> Entry:
        entry = Entry(kind, label, end, deadline_s)
        self._entries.append(entry)
        return entry

    def left(self) -> list[str]:
        """What is still in the book, in words."""
        return [entry.describe() for entry in self._entries]

    async def end(self, entry: Entry) -> None:
        """End one resource and cross it out; raises LeftBehind when its end could not be verified."""
        if entry not in self._entries:
            return
        try:
            await wait_for(entry.end(), entry.deadline_s)
        except TimeoutError:
            raise LeftBehind(f"{entry.describe()} did not end within {entry.deadline_s:g} s") from None
        except LeftBehind:
            raise
        except Exception as error:  # whatever it was, the others must be ended
            raise LeftBehind(f"{entry.describe()} could not be ended: {error}") from error
        self._entries.remove(entry)

    async def end_all(self) -> None:
        """End everything; raises one LeftBehind that names all that could not be verified as ended."""
        problems = []
        for entry in reversed(self._entries.copy()):
            try:
                await self.end(entry)
            except LeftBehind as error:
                problems.append(str(error))
        if problems:
            raise LeftBehind("; ".join(problems))
