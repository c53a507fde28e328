"""A node carries bytes and judges order: it loads nothing that computes, parses models or paints a terminal.

What a process loads, it pays for at every start and keeps in memory, five nodes and five workers at a time.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

_OF_THE_COMMAND = ("typer", "click", "rich", "pygments", "httpx", "jinja2", "tokenizers")
_OF_THE_WORKER = ("numpy", "gguf", "tinygrad", "sqlite3")


def loaded(module: str) -> set[str]:
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_node_loads_only_what_it_needs() -> None:
    found = loaded("ppsmoke.node_cli")
    assert "iroh" in found
    assert found.isdisjoint(("argparse", "ppsmoke.run_events", *_OF_THE_COMMAND, *_OF_THE_WORKER))


def test_a_run_reads_the_model_without_arrays_and_fetches_nothing_unasked() -> None:
    found = loaded("ppsmoke.cli, ppsmoke.run_command, ppsmoke.doctor")
    assert "typer" in found
    assert found.isdisjoint((*_OF_THE_WORKER, "httpx"))


@pytest.mark.parametrize("module", ["ppsmoke_worker.__main__", "ppsmoke_worker.kernel_engine"])
def test_a_worker_does_not_load_what_only_some_models_need(module: str) -> None:
    assert loaded(module).isdisjoint((*_OF_THE_COMMAND, "gguf", "iroh", "asyncio"))
