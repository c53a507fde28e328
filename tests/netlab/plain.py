"""`pp-smoke-run --seed` in a lab: the orchestrator on one host, each of its nodes on another.

`python -m tests.netlab.plain OPTIONS...` is the command, with PP_LAB_STAGES naming the namespace of each stage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ppsmoke import run_command
from ppsmoke.cli import main
from ppsmoke.orchestrator.children import NODE, ChildNode
from ppsmoke.orchestrator.run import LocalRun
from tests.netlab.namespaces import find_tool
from tests.netlab.town import Town

_CHECKOUT = Path(__file__).parents[2]
_STAGES = "PP_LAB_STAGES"


def plain_command(place: Town, *arguments: str) -> list[str]:
    """The command line, with the options every chain of this town needs."""
    stages = ("--seed", "--num-stages", str(len(place.stages)), "--relay-url", place.relay.url)
    return place.caller.command(sys.executable, "-P", "-m", "tests.netlab.plain", *stages, *arguments)


def plain_environment(place: Town) -> Mapping[str, str]:
    """Beside the usual."""
    return {_STAGES: ",".join(host.namespace for host in place.stages), "PYTHONPATH": str(_CHECKOUT)}


def _child(namespaces: list[str], stage: int, log: Path) -> ChildNode:
    return ChildNode(stage, log, (find_tool("ip"), "netns", "exec", namespaces[stage], *NODE))


if __name__ == "__main__":
    made = partial(_child, os.environ[_STAGES].split(","))
    run_command.LocalRun = partial(LocalRun, make_child=made)  # type: ignore[misc, assignment]
    main()
