"""Logs are read and kept within a deadline, whatever the service does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ppsmoke.errors import VastUnavailable
from ppsmoke.redaction import Redactor
from ppsmoke.vast.instance_logs import InstanceLogs, as_text, read_logs, straightened, write_logs
from ppsmoke.vast.records import Instance, parse_instance

FIRST = parse_instance({"id": 1, "label": "pp-smoke-a", "actual_status": "exited", "status_msg": "exited (1)"})
SECOND = parse_instance({"id": 2, "label": "pp-smoke-b"})


class Source:
    """`texts` by (instance, daemon): a text, an error, or None for an answer that never comes."""

    def __init__(self, texts: dict[tuple[int, bool], str | Exception | None]) -> None:
        self.texts = texts
        self.open = 0
        self.all_open = asyncio.Event()

    async def instance_logs(self, instance_id: int, *, daemon: bool = False) -> str:
        self.open += 1
        if self.open == len(self.texts):
            self.all_open.set()
        try:
            text = self.texts[instance_id, daemon]
            if text is None:
                await asyncio.Event().wait()
            if isinstance(text, Exception):
                raise text
            assert text is not None
            return text
        finally:
            self.open -= 1


def read(source: Source, instances: list[Instance], deadline_s: float = 30.0) -> list[InstanceLogs]:
    return asyncio.run(read_logs(source, instances, deadline_s=deadline_s))


def test_both_logs_of_every_instance_are_read() -> None:
    source = Source({(1, False): "a", (1, True): "b", (2, False): "c", (2, True): ""})
    found = read(source, [FIRST, SECOND])
    assert [(log.instance.id, log.container, log.daemon, log.missing) for log in found] == [
        (1, "a", "b", ()),
        (2, "c", "", ()),
    ]


def test_no_instances_are_no_logs() -> None:
    assert read(Source({}), []) == []


def test_one_log_that_cannot_be_had_does_not_cost_the_others() -> None:
    source = Source({(1, False): VastUnavailable("no logs here"), (1, True): "b", (2, False): "c", (2, True): "d"})
    found = read(source, [FIRST, SECOND])
    assert (found[0].container, found[0].daemon, found[0].missing) == (None, "b", ("container: no logs here",))
    assert found[1].missing == ()


def test_a_service_that_hangs_is_left_at_the_deadline() -> None:
    source = Source({(1, False): "a", (1, True): None, (2, False): None, (2, True): "d"})
    found = read(source, [FIRST, SECOND], deadline_s=0.05)
    assert found[0].missing == ("daemon: not there after 0.05 s",)
    assert (found[1].container, found[1].daemon) == (None, "d")
    assert source.open == 0, "nothing goes on behind"


def test_being_cancelled_leaves_nothing_behind() -> None:
    source = Source({(1, False): None, (1, True): None})

    async def run() -> None:
        task = asyncio.create_task(read_logs(source, [FIRST], deadline_s=30))
        await source.all_open.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.open == 0

    asyncio.run(run())


def test_a_mistake_of_this_program_is_not_taken_for_a_missing_log() -> None:
    with pytest.raises(KeyError):
        read(Source({(1, True): "b"}), [FIRST])


def test_the_secrets_of_the_run_stand_in_no_file(tmp_path: Path) -> None:
    source = Source({(1, False): "it printed cafe2025 and\n", (1, True): "cafe2025"})
    write_logs(read(source, [FIRST]), tmp_path, Redactor(["cafe2025"]))
    text = (tmp_path / "instance-1.log").read_text()
    assert "it printed [secret] and\n" in text
    assert "cafe2025" not in text


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        ("10%\r50%\r", "50%"),
        ("", ""),
    ],
)
def test_line_ends_and_progress_bars_are_straightened(raw: str, kept: str) -> None:
    assert straightened(raw) == kept


def test_the_file_of_an_instance_says_how_it_ended(tmp_path: Path) -> None:
    log = InstanceLogs(FIRST, "out\n", None, ("daemon: host offline",))
    paths = write_logs([log, InstanceLogs(SECOND, "", "d", ())], tmp_path, Redactor())
    assert paths == {1: tmp_path / "instance-1.log", 2: tmp_path / "instance-2.log"}
    text = paths[1].read_text()
    assert text == as_text(log)
    for words in ("instance 1", "pp-smoke-a", "actual exited", "exited (1)", "daemon: host offline", "out\n"):
        assert words in text
    assert "--- daemon ---" not in text
    assert "(empty)" in paths[2].read_text()
