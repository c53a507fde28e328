"""Prompts as lines of an input: whatever the pieces in which they come, each is read when it is asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppsmoke.errors import ChatTemplateFailed, EnvironmentFault, PpError, UsageError
from ppsmoke.prompt_lines import MOST_BYTES, PromptLines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def all_of(data: bytes, pipe: tuple[int, int]) -> list[object]:
    """What comes of an input that ends: the texts, and the sentences of what was refused."""
    reading, writing = pipe

    async def read() -> list[object]:
        lines = PromptLines(parse, file=reading)
        found: list[object] = []
        while (item := await asyncio.wait_for(lines.next(), 30)) is not None:
            found.append(f"refused: {item}" if isinstance(item, PpError) else item)
        return found

    async def write() -> list[object]:
        done = asyncio.get_running_loop().run_in_executor(None, _write_all, writing, data)
        found = await read()
        await done
        return found

    return asyncio.run(write())


def _write_all(writing: int, data: bytes) -> None:
    with open(writing, "wb") as file:
        file.write(data)


def parse(text: str) -> str:
    if not text:
        raise UsageError("the prompt is empty")
    if text == "template":
        raise ChatTemplateFailed("it does not render")
    return text


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\nno end", ["one", "no end"]),
        (b"one\n\ntwo\n", ["one", "refused: the prompt is empty", "two"]),
        (b"template\none\n", ["refused: it does not render", "one"]),
        (f"{'Über' * 500}\n".encode() * 60, ["Über" * 500] * 60),
        (b"caf\xe9\none\n", ["refused: the line is not UTF-8 text: unexpected end of data at byte 3", "one"]),
        (b" \none\n", [" ", "one"]),
    ],
)
def test_each_line_is_a_prompt_or_refused(data: bytes, found: list[object], pipe: tuple[int, int]) -> None:
    assert all_of(data, pipe) == found


@pytest.mark.parametrize("size", [MOST_BYTES + 1, 3 * MOST_BYTES])
@pytest.mark.parametrize("end", [b"\none\n", b""])
def test_a_line_that_never_ends_fills_no_memory(size: int, end: bytes, pipe: tuple[int, int]) -> None:
    found = all_of(b"x" * size + end, pipe)
    assert found == [f"refused: the line has more than {MOST_BYTES} bytes", *(["one"] if end else [])]


def test_the_longest_line_is_read(pipe: tuple[int, int]) -> None:
    assert all_of(b"x" * MOST_BYTES + b"\n", pipe) == ["x" * MOST_BYTES]


def test_nothing_is_read_before_it_is_asked_for_and_what_comes_later_is_waited_for(pipe: tuple[int, int]) -> None:
    """Also where somebody made the input non-blocking."""
    reading, writing = pipe
    os.set_blocking(reading, False)

    async def talk() -> None:
        lines = PromptLines(parse, file=reading)
        asked = asyncio.ensure_future(lines.next())
        await asyncio.sleep(0)
        os.write(writing, b"on")
        assert not asked.done()
        os.write(writing, b"e\ntwo\n")
        assert await asyncio.wait_for(asked, 30) == "one"
        assert await asyncio.wait_for(lines.next(), 30) == "two"
        os.close(writing)
        assert await asyncio.wait_for(lines.next(), 30) is None
        assert await asyncio.wait_for(lines.next(), 30) is None

    asyncio.run(talk())


def test_an_input_that_cannot_be_read_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)

    async def read() -> None:
        with pytest.raises(EnvironmentFault, match="standard input cannot be read: Is a directory"):
            await asyncio.wait_for(PromptLines(parse, file=folder).next(), 30)

    asyncio.run(read())
    os.close(folder)
