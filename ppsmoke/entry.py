"""Where `pp-smoke-run` and `pp-gpu-node` begin: a dependency that cannot be loaded is a sentence, not a traceback."""

from __future__ import annotations

import importlib
import os
import signal
import sys

ENVIRONMENT = 3


def pp_smoke_run() -> None:
    """The console script `pp-smoke-run`."""
    if sys.argv[1:2] == ["doctor"] and not _loads("ppsmoke.cli"):
        # The doctor must be able to look at what the rest of the tool cannot even be loaded without.
        from ppsmoke.doctor import doctor_command

        os._exit(doctor_command(as_json="--json" in sys.argv))
    _begin("ppsmoke.cli")


def pp_gpu_node() -> None:
    """The console script `pp-gpu-node`."""
    _begin("ppsmoke.node_cli")


def _begin(module: str) -> None:
    # Ctrl-C while nothing but imports has happened: the end, without a traceback.
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        main = importlib.import_module(module).main
    except ImportError as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: {_missing(error)} cannot be loaded: {error}", file=sys.stderr)
        print("  fix: Install pp-smoke-run again, and see its README for platforms that lack wheels.", file=sys.stderr)
        sys.exit(ENVIRONMENT)
    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _loads(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _missing(error: ImportError) -> str:
    return f"the package {error.name.partition('.')[0]}" if error.name else "a package"
