"""The command line of `pp-gpu-node`, which takes everything from its environment: a help, a version, and refusals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ppsmoke import __version__
from ppsmoke.stage.settings import ADDRESS_PREFIX, describe_variables
from ppsmoke.wording import columns


def parse_arguments(arguments: Sequence[str]) -> None:
    """Print the help or the version, or refuse what is given; ends the process."""
    rows = [(name, default, about) for name, about, default in describe_variables()]
    table = "\n".join("  " + line for line in columns([("variable", "default", "meaning"), *rows]))
    return_codes = "0 stopped, 1 fault, 2 bad environment, 3 join refused, 4 orchestrator lost"
    parser = argparse.ArgumentParser(
        prog="pp-gpu-node",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Host one stage of a pp-smoke-run chain. Everything is set by environment variables; times are\n"
        f"in seconds. Prints {ADDRESS_PREFIX}<ticket> on standard output once it can be reached.",
        epilog=f"{table}\n\nexit statuses: {return_codes}",
    )
    parser.add_argument("--version", action="version", version=f"pp-gpu-node {__version__}")
    parser.parse_args(arguments)
