"""An orchestrator of a rented run as a process of its own, to be killed: `python -m tests.vast.rent_alone URL FOLDER`.

Prints `text ...` for each piece of text, and the exit status at the end.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx

from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.run import RentedRun
from tests.vast.emulated import KEY
from tests.vast.rented import SCALE, Watcher, rental_options, stub_options

ENDLESS = "stub:layers=6,step_ms=200"


async def run(url: str, folder: Path, orphan_s: int) -> int:
    client = VastClient(
        ApiKey(KEY, "a test"), base_url=url, transport=httpx.AsyncHTTPTransport(verify=False), time_scale=SCALE
    )
    options = stub_options(folder, 2, ENDLESS, max_tokens=200)
    watcher = Watcher(lambda text: print(text, flush=True))
    async with client:
        rental = await rental_options(url, SCALE, client, options, folder, orphan_timeout_s=orphan_s)
        return (await RentedRun(options, rental, watcher, client).execute()).exit_status


if __name__ == "__main__":
    print("status", asyncio.run(run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))), flush=True)
