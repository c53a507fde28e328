"""The help: short by default, whole when asked for, and quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ppsmoke import __version__, cli
from ppsmoke.cli_group import Invocation
from ppsmoke.errors import UsageError
from tests.cli.kit import environment, run_cli


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    cli.app(args=list(arguments), prog_name="pp-smoke-run", standalone_mode=False, obj=Invocation({}))
    return capsys.readouterr().out


def test_the_help_is_short_and_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(capsys, monkeypatch, "--help")
    lines = text.splitlines()
    assert len(lines) < 75
    assert max(map(len, lines)) <= 80
    for option in ("--seed", "--vastai", "--num-stages", "--prompt", "--model", "--json", "--help-all", "--config"):
        assert option in text
    assert "--min-cuda" not in text


def test_the_whole_help_has_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(capsys, monkeypatch, "--help-all")
    for parameter in typer.main.get_command(cli.app).params:
        assert max(parameter.opts, key=len) in text


def test_the_version_is_told(tmp_path: Path) -> None:
    done = run_cli(environment(tmp_path), "--version")
    assert (done.returncode, done.stdout) == (0, f"pp-smoke-run {__version__}\n")


def test_help_works_beside_settings_that_do_not(tmp_path: Path) -> None:
    done = run_cli(environment(tmp_path, PP_CONFIG="/no/such/file", PP_SEED="perhaps", COLUMNS="80"), "--help")
    assert done.returncode == 0
    assert "--num-stages" in done.stdout


def test_help_loads_neither_the_network_nor_a_model_reader() -> None:
    code = "import sys, ppsmoke.cli; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(("iroh", "asyncio", "numpy", "httpx", "tokenizers", "jinja2"))


@pytest.mark.parametrize("command", [(), ("doctor",), ("report",), ("models",), ("models", "list")])
def test_a_flag_has_no_type(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    text = shown(capsys, monkeypatch, *command, "--help")
    assert "--help" in text
    assert "<bool>" not in text


def test_completion_says_what_it_edits_and_takes_no_shells_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "startup file" in shown(capsys, monkeypatch, "--help-all")
    with pytest.raises(UsageError, match="--show-completion takes no value"):
        shown(capsys, monkeypatch, "--show-completion", "csh")
