"""What a local node is told: its whole environment."""

from __future__ import annotations

from collections.abc import Mapping

from ppsmoke.orchestrator.options import Deadlines, RunOptions
from ppsmoke.stage.settings import PEER_VARIABLE

# A little less than the orchestrator's own, so that the stage that is stuck is the one that says so.
_STEP_SHARE = 0.8


def node_environment(
    options: RunOptions,
    stage_index: int,
    *,
    inherited: Mapping[str, str],
    seed_ticket: str,
    node_key: bytes,
    join_token: str,
) -> dict[str, str]:
    """Peers' addresses are not in it: the nodes start at one time, and each is told when its peers are known."""
    return {
        # Each of the network library's threads would keep a heap of its own; two for all are 2 MB less a node.
        "MALLOC_ARENA_MAX": "2",
        **inherited,
        "STAGE": str(stage_index),
        "NUM_STAGES": str(options.num_stages),
        "SEED_ADDR": seed_ticket,
        PEER_VARIABLE: "",
        "PP_RUN_ID": options.run_id,
        "PP_JOIN_TOKEN": join_token,
        "PP_NODE_KEY": node_key.hex(),
        "PP_MODEL": options.model.path,
        "PP_CONTEXT": str(options.context),
        "PP_DEVICE": options.device,
        "PP_WORKER_STUB": "1" if options.model.stub else "0",
        "PP_LIFELINE": "1",
        **node_deadlines(options.deadlines),
        **_relays(options),
    }


def _relays(options: RunOptions) -> dict[str, str]:
    """Nothing of a relay for nodes that meet on loopback, whatever this process inherited."""
    if not options.relay_urls:
        return {"SEED_RELAY": "", "PP_RELAY_TOKEN": "", "PP_FAR": "0"}
    return {"SEED_RELAY": ",".join(options.relay_urls), "PP_RELAY_TOKEN": options.relay_token, "PP_FAR": "1"}


def node_deadlines(deadlines: Deadlines) -> dict[str, str]:
    """How long a node waits, whatever machine it is on."""
    return {
        "PP_JOIN_TIMEOUT": str(deadlines.join),
        "PP_READY_TIMEOUT": str(deadlines.ready),
        "PP_PREFILL_TIMEOUT": str(deadlines.response * _STEP_SHARE),
        "PP_STEP_TIMEOUT": str(deadlines.token * _STEP_SHARE),
        "PP_STOP_TIMEOUT": str(deadlines.kill),
        "PP_SILENCE_LIMIT": str(deadlines.silence),
    }
