"""`pp-smoke-run --seed` in a lab: the orchestrator on one host, each of its nodes on another.

`python -m tests.netlab.plain OPTIONS...` is the command. PP_LAB_STAGES names the namespace of each stage, PP_LAB_NODE
the module that runs there, PP_LAB_MORE what the environment of each has beside the usual.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from ppsmoke import run_command
from ppsmoke.cli import main
from ppsmoke.orchestrator.children import NODE, ChildNode
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.stage.settings import MAPPED_UDP_PORT
from tests.netlab.namespaces import find_tool
from tests.netlab.town import Town

_CHECKOUT = Path(__file__).parents[2]
_STAGES, _MODULE, _MORE = "PP_LAB_STAGES", "PP_LAB_NODE", "PP_LAB_MORE"


def plain_command(place: Town, *arguments: str) -> list[str]:
    """The command line, with the options every chain of this town needs."""
    stages = ("--seed", "--num-stages", str(len(place.stages)), "--relay-url", place.relay.url)
    return place.caller.command(sys.executable, "-P", "-m", "tests.netlab.plain", *stages, *arguments)


def plain_environment(place: Town, *, node_module: str = NODE[-1], mapped: Collection[int] = ()) -> Mapping[str, str]:
    """Beside the usual. `node_module`: what runs as a node. `mapped`: stages that a public UDP port leads to."""
    namespaces = ",".join(host.namespace for host in place.stages)
    more = [
        {"PP_UDP_PORT": str(MAPPED_UDP_PORT), **place.map_port(stage)} if stage in mapped else {}
        for stage in range(len(place.stages))
    ]
    return {_STAGES: namespaces, _MODULE: node_module, _MORE: json.dumps(more), "PYTHONPATH": str(_CHECKOUT)}


def _child(namespaces: list[str], module: str, more: list[dict[str, str]], stage: int, log: Path) -> ChildNode:
    there = (find_tool("ip"), "netns", "exec", namespaces[stage])
    own = (find_tool("env"), *(f"{name}={value}" for name, value in more[stage].items()))
    return ChildNode(stage, log, (*there, *own, *NODE[:-1], module))


if __name__ == "__main__":
    made = partial(_child, os.environ[_STAGES].split(","), os.environ[_MODULE], json.loads(os.environ[_MORE]))
    run_command.LocalRun = partial(LocalRun, make_child=made)  # type: ignore[misc, assignment]
    main()
