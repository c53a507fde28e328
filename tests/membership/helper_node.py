"""A member in a process of its own, to be stopped, killed or kept busy.

    python -m tests.membership.helper_node NAME STAGES SILENCE_S [SEED_TICKET]

NAME is `orchestrator` (which prints its ticket) or `stage I`. It prints a JSON line for every change of its table, and
obeys lines on stdin: `busy SECONDS` computes in the main thread, `leave` goes in order, `rows` prints the table.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from ppsmoke.membership import Member, local_config
from ppsmoke.transport import parse_ticket
from tests.membership.kit import member
from tests.transport.kit import Peer, peer


def say(**what: Any) -> None:
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


def changed(_before: Member | None, after: Member) -> None:
    say(member=after.stage_index, state=after.state, incarnation=after.incarnation, reason=after.reason)


async def main(name: str, stages: int, silence_s: float, seed_ticket: str) -> None:
    async with peer(name) as own:
        stage = None if name == "orchestrator" else int(name.split()[1])
        if seed_ticket:
            own.mesh.learn_address(parse_ticket(seed_ticket)[0], seed_ticket)
        async with member(own, stage, stages, on_change=changed, config=local_config(silence_s)) as membership:
            say(started=True)
            await membership.join()
            say(joined=True, ticket=own.mesh.endpoint.ticket())
            await obey(own, membership)


async def obey(own: Peer, membership: Any) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        match line.split():
            case ["busy", seconds]:
                say(busy=True)
                ends = time.monotonic() + float(seconds)
                while time.monotonic() < ends:
                    pass
                say(busy=False)
            case ["rows"]:
                rows = await membership.table()
                say(rows=[[row.stage_index, row.state, row.incarnation, row.rtt_s, row.path] for row in rows])
            case ["leave"]:
                return


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else ""))
    sys.stdout.flush()
    os._exit(0)
