"""`pp-gpu-node`: one stage of a chain, configured by its environment."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from ppsmoke.errors import BadNodeEnvironment, JoinRefused, OrchestratorLost, PpError
from ppsmoke.log_format import RedactingFormatter
from ppsmoke.parent_death import signalled_at_the_parents_death
from ppsmoke.redaction import Redactor, secret_values
from ppsmoke.stage.new_code import Successor
from ppsmoke.stage.node import StageNode
from ppsmoke.stage.reporting import ReportedLog
from ppsmoke.stage.settings import (
    ADDRESS_PREFIX,
    PEER_VARIABLE,
    NodeSettings,
    parse_settings,
    parse_tickets,
)
from ppsmoke.standard_streams import open_missing_streams
from ppsmoke.wording import describe_error

log = logging.getLogger("ppsmoke.node")

_LAST_RESORT_S = 1.5


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit statuses: 0 stopped, 1 fault, 2 bad environment, 3 join refused, 4 orchestrator lost."""
    open_missing_streams()
    given = sys.argv[1:] if arguments is None else arguments
    if given:
        # A node that is started by a run has none, and the parser is 2 MB of memory.
        from ppsmoke.node_arguments import parse_arguments

        parse_arguments(given)
    redactor = Redactor(secret_values(os.environ))
    _begin_log(redactor)
    try:
        successor = asyncio.run(_run(parse_settings(os.environ)))
        status = 0
        if successor is not None:
            status = _hand_over(successor)
    except PpError as error:
        with suppress(OSError):  # a full disk of the log must not change the exit status
            for line in describe_error(error):
                print(redactor.clean(line), file=sys.stderr)
        status = exit_status(error)
    except KeyboardInterrupt:
        status = 1
    with suppress(OSError):
        sys.stderr.flush()
    # The network library's threads must not meet an interpreter that is being taken down.
    os._exit(status)


def _begin_log(redactor: Redactor) -> None:
    """On standard error, without what the environment of this node holds of secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(redactor, "%(asctime)s.%(msecs)03d %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def exit_status(error: PpError) -> int:
    """The node's exit status for an error that ended it."""
    match error:
        case BadNodeEnvironment():
            return 2
        case JoinRefused():
            return 3
        case OrchestratorLost():
            return 4
        case _:
            return 1


async def _run(settings: NodeSettings) -> Successor | None:
    # Python code that computes in the main loop would else keep a data thread waiting for 5 ms. Beside a loop that is
    # busy, a round trip over the step socket takes 0.7 ms with an interval of 0.5 ms and 0.25 ms with this one.
    sys.setswitchinterval(0.00005)
    key = bytes.fromhex(settings.node_key) if settings.node_key else secrets.token_bytes(32)
    node = StageNode(settings, secret_key=key, announce=_announce)
    logging.getLogger().addHandler(ReportedLog(node.reporting))
    if settings.lifeline:
        # A node that is stopped, as by SIGSTOP, cannot see its lifeline close and would stay for ever.
        signalled_at_the_parents_death(signal.SIGCONT)
        threading.Thread(target=_watch_lifeline, args=(node, asyncio.get_running_loop()), daemon=True).start()
    await node.run()
    return node.successor


def _hand_over(successor: Successor) -> int:
    """The exit status where the successor could not begin; else this does not return."""
    log.info("the new code begins")
    with suppress(OSError):
        sys.stderr.flush()
    try:
        successor.begin()
    except OSError as error:
        log.error("the new code could not begin: %s", error)
        return 1


def _announce(ticket: str) -> None:
    try:
        print(f"{ADDRESS_PREFIX}{ticket}", flush=True)
    except OSError as error:
        raise OrchestratorLost(f"nobody reads this node's address: {error.strerror}") from None


def _watch_lifeline(node: StageNode, loop: asyncio.AbstractEventLoop) -> None:
    """The parent holds the other end of standard input: when it closes, the parent has gone or let go of this node.

    What it writes before are addresses of peers that it learnt after it started this node.
    """
    with os.fdopen(os.dup(0), "rb") as lines:
        for line in lines:
            name, _, value = line.decode(errors="replace").strip().partition("=")
            if name == PEER_VARIABLE:
                loop.call_soon_threadsafe(_learn_peers, node, parse_tickets(value))
    loop.call_soon_threadsafe(node.end, OrchestratorLost("the orchestrator's process is gone"))
    time.sleep(_LAST_RESORT_S)
    log.error("the node did not end in order; killing its worker")
    node.kill_worker()
    os._exit(4)


def _learn_peers(node: StageNode, tickets: Sequence[str]) -> None:
    try:
        node.learn_peers(tickets)
    except PpError as error:
        node.end(error)


if __name__ == "__main__":
    main()
