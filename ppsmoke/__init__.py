"""pp-smoke-run: cut a GGUF model into N stages, serve a prompt through them, leave nothing behind.

`run_local` is what the command line's `--seed` does, for Python.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppsmoke.api import run_local
    from ppsmoke.errors import PpError
    from ppsmoke.orchestrator.options import Deadlines
    from ppsmoke.orchestrator.result import RunResult

__version__ = "0.1.0"

__all__ = ["Deadlines", "PpError", "RunResult", "__version__", "run_local"]

# Every node and worker begins by importing this package, and needs none of these.
_LOADED_WHEN_USED = {
    "run_local": "api",
    "PpError": "errors",
    "Deadlines": "orchestrator.options",
    "RunResult": "orchestrator.result",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_WHEN_USED[name]}"), name)
