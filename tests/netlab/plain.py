"""`pp-smoke-run --seed` in a lab: the orchestrator on one host, each of its nodes on another.

`python -m tests.netlab.plain OPTIONS...` is the command. PP_LAB_STAGES names the namespace of each stage, PP_LAB_NODE
the module that runs there.
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
_STAGES, _MODULE = "PP_LAB_STAGES", "PP_LAB_NODE"


def plain_command(place: Town, *arguments: str) -> list[str]:
    """The command line, with the options every chain of this town needs."""
    stages = ("--seed", "--num-stages", str(len(place.stages)), "--relay-url", place.relay.url)
    return place.caller.command(sys.executable, "-P", "-m", "tests.netlab.plain", *stages, *arguments)


def plain_environment(place: Town, *, node_module: str = NODE[-1]) -> Mapping[str, str]:
    """Beside the usual. `node_module`: what runs as a node."""
    namespaces = ",".join(host.namespace for host in place.stages)
    return {_STAGES: namespaces, _MODULE: node_module, "PYTHONPATH": str(_CHECKOUT)}


def _child(namespaces: list[str], module: str, stage: int, log: Path) -> ChildNode:
    return ChildNode(stage, log, (find_tool("ip"), "netns", "exec", namespaces[stage], *NODE[:-1], module))


if __name__ == "__main__":
    made = partial(_child, os.environ[_STAGES].split(","), os.environ[_MODULE])
    run_command.LocalRun = partial(LocalRun, make_child=made)  # type: ignore[misc, assignment]
    main()
