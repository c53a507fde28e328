"""The resource book: what was entered is ended, in reverse, and what could not be verified is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ppsmoke.errors import LeftBehind, PeerLost
from ppsmoke.resources import ResourceBook


def ending(order: list[str], name: str) -> Callable[[], Awaitable[None]]:
    async def end() -> None:
        order.append(name)

    return end


def failing(error: Exception) -> Callable[[], Awaitable[None]]:
    async def end() -> None:
        raise error

    return end


async def never() -> None:
    await asyncio.Event().wait()


def test_resources_end_in_reverse_and_leave_the_book() -> None:
    order: list[str] = []
    book = ResourceBook()
    for name in ("endpoint", "stage 0", "stage 1"):
        book.enter("process", name, ending(order, name), deadline_s=1)
    asyncio.run(book.end_all())
    assert order == ["stage 1", "stage 0", "endpoint"]
    assert book.left() == []


def test_a_resource_is_ended_once() -> None:
    order: list[str] = []
    book = ResourceBook()
    entry = book.enter("process", "stage 0", ending(order, "stage 0"), deadline_s=1)

    async def twice() -> None:
        await book.end(entry)
        await book.end(entry)
        await book.end_all()

    asyncio.run(twice())
    assert order == ["stage 0"]


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (failing(PeerLost("the link is gone")), "endpoint b could not be ended: the link is gone"),
        (failing(OSError(5, "I/O error")), "endpoint b could not be ended"),
        (failing(RuntimeError("surprise")), "endpoint b could not be ended: surprise"),
        (failing(LeftBehind("pid 7 lives on")), "pid 7 lives on"),
        (never, "endpoint b did not end within 0.05 s"),
    ],
)
def test_what_cannot_be_ended_is_named_stays_and_does_not_keep_the_others(
    end: Callable[[], Awaitable[None]], says: str
) -> None:
    order: list[str] = []
    book = ResourceBook()
    book.enter("process", "a", ending(order, "a"), deadline_s=1)
    book.enter("endpoint", "b", end, deadline_s=0.05)
    book.enter("process", "c", ending(order, "c"), deadline_s=1)
    with pytest.raises(LeftBehind, match=says):
        asyncio.run(book.end_all())
    assert order == ["c", "a"]
    assert book.left() == ["endpoint b"]


def test_all_problems_are_in_one_error() -> None:
    book = ResourceBook()
    book.enter("process", "a", failing(OSError("one")), deadline_s=1)
    book.enter("process", "b", failing(OSError("two")), deadline_s=1)
    with pytest.raises(LeftBehind, match="process b could not be ended: two; process a could not be ended: one"):
        asyncio.run(book.end_all())
