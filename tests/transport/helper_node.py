"""A node in a process of its own, to be stopped or killed: prints its ticket, links with the ticket it is given."""

from __future__ import annotations

import asyncio
import sys

from ppsmoke.transport.endpoint import parse_ticket
from tests.transport.kit import peer


async def main(name: str, silence_limit_s: float, ticket: str) -> None:
    async with peer(name, silence_limit_s=silence_limit_s) as own:
        other, _ = parse_ticket(ticket)
        own.mesh.learn_address(other, ticket)
        await own.mesh.link(other)
        print("linked", flush=True)
        loop = asyncio.get_running_loop()
        line = await loop.run_in_executor(None, sys.stdin.readline)
        await own.mesh.close(line.strip() or "stdin closed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
