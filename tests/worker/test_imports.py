"""The worker runs where the tool's own dependencies are absent, and the stub even without tinygrad."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOOL_ONLY = ("iroh", "typer", "rich", "httpx")
BLOCK = """
import sys
for name in {names!r}:
    sys.modules[name] = None  # importing it now raises ImportError
"""
RUN_STUB = """
import io, os
from ppsmoke_worker.__main__ import main
sys.exit(main(["--stub", "--stage", "0", "--num-stages", "2", "--model", "stub:"]))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", code], input='{"op": "shutdown"}\n', capture_output=True, text=True, check=False
    )


def test_every_module_imports_without_the_tools_dependencies() -> None:
    code = BLOCK.format(names=TOOL_ONLY) + (
        "import importlib, os, pkgutil, ppsmoke_worker\n"
        "names = [module.name for module in pkgutil.iter_modules(ppsmoke_worker.__path__)]\n"
        "assert len(names) > 10, names\n"
        "for name in names:\n"
        "    importlib.import_module('ppsmoke_worker.' + name)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_the_stub_runs_without_tinygrad_and_gguf() -> None:
    done = run(BLOCK.format(names=(*TOOL_ONLY, "tinygrad", "gguf", "tokenizers", "jinja2")) + RUN_STUB)
    assert done.returncode == 0, done.stderr
    assert '"status":"stopped"' in done.stdout


@pytest.mark.parametrize("module", ["__main__", "stub", "server", "reference"])
def test_tinygrad_is_imported_only_by_the_engine(module: str) -> None:
    done = run(f"import sys, ppsmoke_worker.{module}; assert 'tinygrad' not in sys.modules")
    assert done.returncode == 0, done.stderr
