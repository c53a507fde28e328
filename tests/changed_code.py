"""For tests: this checkout's code in another folder, changed, and how a program is made to run it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

NEW_TOKEN = ord("n")
"""What every stub worker of the changed code answers, whatever was asked."""

_STUB = f"""

def token_after(state: int, generated: int, stub: StubModel, seed: int = 0) -> int:
    return {NEW_TOKEN}
"""
BROKEN = "\nthis is no Python\n"


def changed_code(folder: Path, *, stub: str = _STUB, **appended: str) -> dict[str, str]:
    """A copy of both packages whose stub workers answer with NEW_TOKEN alone; `appended`: behind modules of ppsmoke.

    The variables with which Python runs that copy.
    """
    for package in ("ppsmoke", "ppsmoke_worker"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(spec.submodule_search_locations[0]), folder / package, ignore=ignore)
    for name, text in {"stub_model": stub, **appended}.items():
        with (folder / "ppsmoke" / f"{name}.py").open("a") as module:
            module.write(text)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
