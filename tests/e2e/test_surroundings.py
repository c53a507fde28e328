"""Places that a run must not mind: names with spaces, locales that are not UTF-8, users that may do little."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from tests.e2e.kit import CLI, Box, stub_text

MODEL = "stub:layers=4"
PROMPT = "Grüße, 你好"
ODD_NAME = "a folder with spaces, ünd more"
NOT_UTF8 = {"LC_ALL": "POSIX", "LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
AS_NOBODY = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
"""A user without any privilege to whom this user's files belong, so that the interpreter stays in reach."""


def can_be_nobody() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*AS_NOBODY, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def odd(box: Box) -> Path:
    folder = box.root / ODD_NAME
    folder.mkdir()
    return folder


def home_that_cannot_be_written(box: Box) -> dict[str, str]:
    home = box.root / "home of nobody"
    home.mkdir()
    home.chmod(0o555)
    return {"HOME": str(home), "XDG_STATE_HOME": "", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "", "PP_SMOKE_CACHE": ""}


@pytest.mark.skipif(not can_be_nobody(), reason="no user namespaces here")
def test_as_nobody_in_a_locale_that_is_not_utf8_with_odd_names_around(box: Box, odd: Path) -> None:
    logs = odd / "logs"
    done = box.run(
        *("--seed", "--model", MODEL, "--max-tokens", "16", "--prompt", PROMPT, "--log-dir", str(logs)),
        program=(*AS_NOBODY, *CLI),
        env={**NOT_UTF8, **home_that_cannot_be_written(box)},
        cwd=odd,
    ).expect(0)
    assert done.text == stub_text(PROMPT, 16, MODEL)
    assert str(logs) in done.err
    assert (logs / "stage-1.log").exists()


@pytest.mark.skipif(not can_be_nobody(), reason="no user namespaces here")
def test_a_home_that_cannot_be_written_to_sends_the_logs_elsewhere(box: Box) -> None:
    done = box.run(
        *("--seed", "--model", MODEL, "--max-tokens", "4"),
        program=(*AS_NOBODY, *CLI),
        env=home_that_cannot_be_written(box),
    ).expect(0)
    (kept,) = box.tmp.iterdir()
    assert f"run directory {kept}" in done.err
    assert "cannot be made: Permission denied; the run directory is among the temporary files" in done.err
    assert kept.name.startswith("pp-smoke-run-")
    shutil.rmtree(kept)  # else they are temporary files that nobody was told of


@pytest.mark.slow
@pytest.mark.parametrize(
    "locale", [NOT_UTF8, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "no_SUCH"}]
)
def test_the_text_is_utf8_in_every_locale(box: Box, odd: Path, locale: dict[str, str]) -> None:
    model = write_tiny_gguf(odd / "tiny model.gguf", architecture="llama", context_length=512)
    arguments = ("--seed", "--model", str(model), "--max-tokens", "24", "--prompt", PROMPT, "--context", "256")
    usual = box.run(*arguments, env={"LC_ALL": "C.UTF-8"}).expect(0)
    assert usual.out.decode()
    other = box.run(*arguments, env=locale, cwd=odd).expect(0)
    assert other.out == usual.out


def test_a_prompt_that_is_no_utf8_is_refused_in_every_locale(box: Box) -> None:
    for locale in (NOT_UTF8, {"LC_ALL": "C.UTF-8"}):
        box.run("--seed", "--model", MODEL, "--prompt", os.fsdecode(b"\xff\xfe"), env=locale).refused(2, "not UTF-8")
