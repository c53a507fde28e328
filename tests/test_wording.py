"""Error texts and tables as a person reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsmoke.command_steps import summary
from ppsmoke.errors import DeadlineExceeded, UsageError
from ppsmoke.orchestrator.hold import Answer
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.wording import (
    columns,
    counted,
    describe_error,
    one_line,
    printable,
    sentence,
    short_path,
    shown_model,
    wrap,
)


def test_an_error_says_what_happened_what_to_do_and_shows_the_log() -> None:
    error = DeadlineExceeded(
        "stage 3's worker did not answer within 5 s",
        stage=3,
        phase="decode",
        remedy="raise --token-timeout",
        log_tail=["first", "second"],
    )
    assert describe_error(error) == [
        "error: Stage 3's worker did not answer within 5 s (phase: decode) [deadline_exceeded]",
        "  fix: Raise --token-timeout",
        "  last log lines of stage 3:",
        "    | first",
        "    | second",
    ]


def test_a_phase_that_the_sentence_names_is_not_repeated() -> None:
    assert describe_error(UsageError("the first token took longer than 5 s", phase="the first token")) == [
        "error: The first token took longer than 5 s [usage]",
        "  fix: See pp-smoke-run --help",
    ]


def test_columns_align_and_end_without_spaces() -> None:
    rows = [("a", "bb", "1"), ("aaa", "b", "22")]
    assert columns(rows, right=lambda column: column == 2) == ["a    bb   1", "aaa  b   22"]
    assert columns([("x", ""), ("yy", "z")]) == ["x", "yy  z"]


def test_the_home_directory_is_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert short_path(Path("/home/ann/logs/x")) == "~/logs/x"
    assert short_path(Path("/var/log")) == "/var/log"


def test_long_errors_wrap_at_spaces_and_keep_paths_whole() -> None:
    path = "/var/lib/" + "x" * 40 + "/stage-0.log"
    lines = wrap(f"  fix: raise --ready-timeout, or see the log in {path} and try again", 40).splitlines()
    assert len(lines) > 1
    assert any(path in line for line in lines)
    assert all(len(line) <= 40 for line in lines if path not in line)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the prompt is empty.", "The prompt is empty"),
        ("stage 3's worker died", "Stage 3's worker died"),
        ("http://x/y is not an https:// address", "http://x/y is not an https:// address"),
        ("/tmp/m.gguf is empty", "/tmp/m.gguf is empty"),
        ("wait for it...", "Wait for it..."),
        ("pip install ziglang, or install clang", "pip install ziglang, or install clang"),
    ],
)
def test_sentences_begin_with_a_capital_unless_they_begin_with_a_name(text: str, shown: str) -> None:
    assert sentence(text) == shown


def test_a_home_that_is_the_root_shortens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    assert short_path(Path("/var/log")) == "/var/log"


def test_of_a_models_path_only_the_files_name_is_shown() -> None:
    assert shown_model("/home/ann/secret-customer/m.gguf") == "m.gguf"
    assert [shown_model(x) for x in ("smollm2:135m", "stub:layers=6", "https://x.y/m.gguf", "")] == [
        *("smollm2:135m", "stub:layers=6", "https://x.y/m.gguf", "")
    ]


def test_counts() -> None:
    assert [counted(n, "rented machine") for n in (0, 1, 2)] == [
        "0 rented machines",
        "1 rented machine",
        "2 rented machines",
    ]


def test_what_others_say_is_shown_and_not_obeyed() -> None:
    assert printable("a\x1b[31mb\nc\u202e") == "a [31mb c "
    assert printable("a\x07", "?") == "a?"
    assert one_line(" a\r\n\x1b b\t c ", 40) == "a b c"
    assert one_line("x" * 41, 40) == "x" * 37 + "..."
    assert one_line("Server disconnected without sending a response. ", 60) == (
        "Server disconnected without sending a response"
    )
    assert one_line("it waits...", 40) == "it waits..."


def test_one_token_is_one() -> None:
    result = RunResult(run_id="00", model_id="m", num_stages=2, prompt_tokens=1, tokens=[5])
    assert summary(result).startswith("done  1 token (")
    assert Answer(1, (5,), "x", "eos", 0.5, None).describe().startswith("1 token (eos)")
