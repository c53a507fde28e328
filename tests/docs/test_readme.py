"""What the README says is so: its example runs, its table of errors is current, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from docs.error_table import README, current, meaning
from ppsmoke import cli
from ppsmoke.cli_group import option_shapes
from ppsmoke.errors import PpError
from ppsmoke.orchestrator.result import RunResult
from tests.e2e.kit import stub_text

ROOT = README.parent
TEXT = README.read_text()
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))


def anchors(path: Path) -> set[str]:
    """What a heading of that file is linked as."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_table_of_error_codes_is_current() -> None:
    assert current(TEXT) == TEXT, "run python -m docs.error_table"


def test_every_error_says_in_one_sentence_what_it_means() -> None:
    def check(cls: type[PpError]) -> None:
        assert meaning(cls).endswith("."), cls
        for child in cls.__subclasses__():
            if child.__module__ == cls.__module__:
                check(child)

    check(PpError)


def test_every_option_is_in_the_readme() -> None:
    shapes = option_shapes(typer.main.get_command(cli.app).params)
    missing = [shape.name for shape in shapes if f"--{shape.name}" not in TEXT]
    assert missing == []


@pytest.mark.parametrize("name", PAGES)
def test_the_readme_leads_to_every_page(name: str) -> None:
    assert f"]({name})" in TEXT


def test_what_json_prints_is_on_its_page() -> None:
    text = (ROOT / "docs/json.md").read_text()
    result = RunResult(run_id="00", model_id="m", num_stages=2, prompt_tokens=1, answers=1).as_json()
    keys = [*result, *result["timings"]]
    assert [key for key in keys if f"`{key}`" not in text and f"`{key}[]`" not in text] == []


@pytest.mark.parametrize("name", ["README.md", "BEHAVIOR.md", "CONTRIBUTING.md", "CHANGELOG.md", *PAGES])
def test_links_within_the_documents_lead_somewhere(name: str) -> None:
    path = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        other = path.parent / file if file else path
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other), target


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    model = "stub:layers=6"
    code = code.replace("num_stages=3", f"num_stages=3, max_tokens=8, model={model!r}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=True)
    text = stub_text("Say hello", 8, model)
    assert done.stdout.startswith(f"{text}\n8 tokens, the first after 0.")
    assert done.stderr == ""
