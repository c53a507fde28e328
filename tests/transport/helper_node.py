"""A node in a process of its own, to be stopped or killed.

It links with the ticket it is given and prints `linked`; a line on stdin is the reason it leaves with. When the link
goes down it prints how many messages it got and why.
"""

from __future__ import annotations

import asyncio
import sys

from ppsmoke.transport.endpoint import parse_ticket
from tests.transport.kit import peer


async def main(name: str, ticket: str) -> None:
    async with peer(name) as own:
        other, _ = parse_ticket(ticket)
        own.mesh.learn_address(other, ticket)
        await own.mesh.link(other)
        print("linked", flush=True)
        loop = asyncio.get_running_loop()
        told = loop.run_in_executor(None, sys.stdin.readline)
        lost = asyncio.create_task(own.events.until(lambda: bool(own.events.down), 600))
        await asyncio.wait([told, lost], return_when=asyncio.FIRST_COMPLETED)
        if own.events.down:
            print(len(own.events.messages), own.events.down[0][1], flush=True)
        lost.cancel()
        await own.mesh.close((await told).strip() or "stdin closed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
