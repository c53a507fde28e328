"""The page of text: what stands on it, and that it fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsmoke.report.analysis import analyse
from ppsmoke.report.html import html_page
from ppsmoke.report.source import read_story
from ppsmoke.report.text import page
from ppsmoke.run_events import ErrorSeen, MemberSeen, MoneySpent, PathChanged, PhaseEntered
from tests.report.recipe import Made, Recipe, begin, fail, make, prepare, serve


def text(made: Made, directory: Path) -> str:
    return "\n".join(page(analyse(read_story(made.write(directory)))))


def failed() -> Made:
    recipe = Recipe()
    made = begin(recipe)
    at = serve(recipe, made, prepare(recipe, made), until=(5, 1))
    made.add(at + 1.0, MemberSeen(None, 2, "suspect", 0, "no answer to 3 probes"))
    made.add(at + 2.0, MemberSeen(None, 2, "dead", 0, "not heard from for 2.0 s"))
    made.logs[2] = "a line\n\x1b[31mred\x07 " + "x" * 300 + "\n"
    fail(recipe, made, at + 2.0, ErrorSeen("peer_lost", "stage 2 fell silent", "Look at its log.", 2, "decode"))
    return made


def test_a_whole_run_on_a_page(tmp_path: Path) -> None:
    made = make(Recipe(compute={2: 0.006}))
    made.add(1.2, PathChanged(1, 2, "relay", "direct", 0.0))
    made.add(1.3, MoneySpent(0.52, 0.0131))
    lines = text(made, tmp_path).splitlines()
    assert lines[0] == "run 01234567  smollm2:135m  4 stages  40 prompt tokens"
    assert lines[1] == "completed, by max_tokens, exit status 0, after 1.4 s"
    assert lines[2].startswith("12 tokens, first after 147 ms, then 65.8 tok/s")
    assert "0.0131 USD at most, at 0.520 USD an hour" in lines
    assert any(line.startswith("  tokens  Stage 2 computes 39 % of a token's time") for line in lines)
    assert any(line.split() == ["Running", "1.00", "0.32", "600", "s", "--response-timeout"] for line in lines)
    assert any(line.split()[:6] == ["2", "12-17", "CPU", "0.5", "0.2", "0.3"] for line in lines)
    assert any(line.split()[:4] == ["1", "->", "2", "direct"] and line.split()[-1] == "1" for line in lines)
    assert "  4 alive, first seen at 0.50 to 0.50 s" in lines
    assert not any("log" in line for line in lines)


def test_of_a_run_that_answered_many_prompts_not_every_phase_is_listed(tmp_path: Path) -> None:
    made = make(Recipe())
    for number in range(20):
        made.add(1.1 + number / 100, PhaseEntered("Idle"))
        made.add(1.105 + number / 100, PhaseEntered("Running", 600.0, "--response-timeout"))
    made.run["answers"] = 20
    lines = text(made, tmp_path).splitlines()
    assert lines[2].startswith("20 answers, 12 tokens, first after ")
    begin = next(index for index, line in enumerate(lines) if line.split()[:1] == ["phase"])
    table = lines[begin : lines.index("", begin)]
    assert len(table) == 15
    assert table[10].strip() == "(34 more)"
    assert table[-1].split()[0] == "Done"


def test_rented_machines_with_those_that_were_given_up(tmp_path: Path) -> None:
    made = make(Recipe(remote=True))
    row = {"id": 41, "stage": 1, "price_per_hour_usd": 0.0824, "state": "gone", "reason": "the host's disk is full"}
    rows = [row, row | {"id": 42, "reason": None}, {"id": "what", "stage": []}, 7]
    made.rental = {"price_per_hour_usd": 0.25, "spent_usd": 0.01, "instances": rows}
    lines = text(made, tmp_path).splitlines()
    assert lines[1].startswith("completed")
    assert "0.0100 USD at most, at 0.250 USD an hour" in lines
    place = lines.index("rented machines")
    found = [line.split(maxsplit=4) for line in lines[place + 2 : place + 5]]
    assert found == [
        ["1", "41", "0.082", "gone", "the host's disk is full"],
        ["1", "42", "0.082", "gone"],
        ["-", "-", "-", "-"],
    ]
    assert not any("offers" in line for line in lines)


def test_offers_are_counted_by_why_they_were_left_out(tmp_path: Path) -> None:
    made = make(Recipe(remote=True))
    made.rental = {"instances": [{"id": 41, "stage": 1}]}
    considered = [{"stage": 1}, {"stage": 0}, {"left_out": ["too dear"]}, {"left_out": ["too dear", "too slow"]}]
    made.offers = {"considered": considered}
    lines = text(made, tmp_path).splitlines()
    place = lines.index("rented machines")
    assert lines[place + 3 : place + 5] == [
        "  offers that were looked at, and why they were left out: chosen: 2; too dear:",
        "  2; too slow: 1",
    ]


def test_a_failed_run_on_a_page(tmp_path: Path) -> None:
    lines = text(failed(), tmp_path).splitlines()
    assert lines[1].startswith("failed, exit status 1, after ")
    assert "error peer_lost: Stage 2 fell silent (phase: decode)" in lines
    assert "  fix: Look at its log" in lines
    assert any(line.endswith("stage 2 dead (incarnation 0): not heard from for 2.0 s") for line in lines)
    assert "last log lines of stage 2" in lines
    assert "  | a line" in lines


@pytest.mark.parametrize("made", [failed(), make(Recipe(stages=12)), make(Recipe(stages=2, tokens=1))])
def test_nothing_is_wider_than_the_page_or_moves_the_cursor(made: Made, tmp_path: Path) -> None:
    found = text(made, tmp_path)
    assert max(len(line) for line in found.splitlines()) <= 80
    assert all(c == "\n" or c.isprintable() for c in found)


@pytest.mark.parametrize("kept", ["environment.json", "plan.json", "events.jsonl", "run.json"])
def test_one_file_of_a_bundle_is_enough_for_a_report(kept: str, tmp_path: Path) -> None:
    directory = make(Recipe()).write(tmp_path)
    for path in directory.iterdir():
        if path.name != kept:
            path.unlink()
    lines = page(analyse(read_story(directory)))
    assert lines[0].startswith("run ")
    assert len(lines) > 1


def test_a_file_that_is_not_there_is_named_at_the_top(tmp_path: Path) -> None:
    directory = make(Recipe()).write(tmp_path)
    assert not any("missing in" in line for line in page(analyse(read_story(directory))))
    (directory / "events.jsonl").unlink()
    story = read_story(directory)
    analysis = analyse(story)
    assert page(analysis)[1].startswith("events.jsonl missing in the run's directory")
    assert "events.jsonl missing in" in html_page(story, analysis)


def test_a_record_that_stops_in_the_middle_of_a_line(tmp_path: Path) -> None:
    directory = make(Recipe()).write(tmp_path)
    (directory / "run.json").unlink()
    for name in ("events.jsonl", "spans.jsonl"):
        data = (directory / name).read_bytes()
        (directory / name).write_bytes(data[: len(data) * 3 // 4 + 7])
    lines = page(analyse(read_story(directory)))
    assert lines[1].startswith("cut off, after ")
    assert "2 lines of the records could not be read" in lines


def test_a_path_is_never_broken(tmp_path: Path) -> None:
    path = "/home/ann/" + "a-long-folder-name/" * 6 + "stage-1.log"
    recipe = Recipe()
    made = begin(recipe)
    fail(recipe, made, 1.0, ErrorSeen("peer_lost", "stage 1 fell silent", f"See {path}.", 1, "decode"))
    assert path in text(made, tmp_path)


def test_a_start_with_new_code_rents_nothing(tmp_path: Path) -> None:
    made = make(Recipe(remote=True))
    for at, phase in ((50.0, "Redeploying"), (51.0, "Planning"), (52.0, "Provisioning")):
        made.add(at, PhaseEntered(phase))
    lines = text(made, tmp_path).splitlines()
    assert [line.split("  ")[1] for line in lines if line.startswith("  Boot")] == ["Boot (renting)", "Boot"]


def test_of_a_rented_run_the_time_that_renting_took_is_called_so(tmp_path: Path) -> None:
    lines = text(make(Recipe(remote=True)), tmp_path / "far").splitlines()
    assert any(line.startswith("  Boot (renting)") for line in lines)
    assert any("renting included" in line for line in lines)
    near = text(make(Recipe()), tmp_path / "near")
    assert "renting" not in near
    assert max(map(len, [*lines, *near.splitlines()])) <= 80
