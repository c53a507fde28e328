"""Where `pp-smoke-run` and `pp-gpu-node` begin: a dependency that cannot be loaded is a sentence, not a traceback."""

from __future__ import annotations

import importlib
import os
import signal
import sys

from ppsmoke.errors import EnvironmentFault
from ppsmoke.unloadable import unloadable
from ppsmoke.wording import describe_error


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
        print(*describe_error(unloadable(error)), sep="\n", file=sys.stderr)
        sys.exit(EnvironmentFault.exit_status)
    if handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _loads(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True
