"""Sample answers of the service, a clock that only moves when somebody sleeps, and a client over both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import respx

from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.records import Offer, parse_offer

T = TypeVar("T")

URL = "https://vast.test"
KEY = "k3y-0123456789abcdef"
NOW = 1791381000.0
"""The samples' present, in seconds since the epoch."""

_FOLDER = Path(__file__).parents[2] / "fixtures" / "vast"


class Clock:
    """Seconds that pass only in `sleep`; `slept` is every pause in order."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


@cache
def samples() -> dict[str, dict[str, Any]]:
    """Every sample by its name, rows filled in."""
    rows = json.loads((_FOLDER / "rows.json").read_text())
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(_FOLDER.glob("*.json")):
        if path.name != "rows.json":
            found |= _filled(json.loads(path.read_text()), rows)
    return found


def sample_body(name: str) -> Any:
    return json.loads(json.dumps(samples()[name]["body"]))


def sample_content(name: str) -> bytes:
    sample = samples()[name]
    return sample["text"].encode() if "text" in sample else json.dumps(sample["body"]).encode()


def sample_response(name: str) -> httpx.Response:
    """The sample as a response; raises the sample's transport error in place of one."""
    sample = samples()[name]
    if "transport_error" in sample:
        raise getattr(httpx, sample["transport_error"])(f"sample {name}")
    return httpx.Response(sample["status"], headers=sample["headers"], content=sample_content(name))


def replies(*names: str) -> Callable[[httpx.Request], httpx.Response]:
    """For `side_effect`: one sample after another, the last one for ever."""
    left = list(names)
    return lambda _request: sample_response(left.pop(0) if len(left) > 1 else left[0])


def offer(**changes: Any) -> Offer:
    """One offer of the market; the fields of a row of the search's answer, changed."""
    return parse_offer({**json.loads((_FOLDER / "rows.json").read_text())["offer"], **changes})


def use_client(
    work: Callable[[VastClient], Coroutine[Any, Any, T]], *, clock: Clock | None = None, **options: Any
) -> T:
    """Run `work` with a client whose waits cost no time and whose requests go to the routes of `respx.mock`."""
    clock = clock or Clock()
    options.setdefault("transport", httpx.MockTransport(respx.mock.async_handler))

    async def run() -> T:
        key = options.pop("key", ApiKey(KEY, "test"))
        async with VastClient(key, base_url=URL, now=clock.now, sleep=clock.sleep, **options) as client:
            return await work(client)

    return asyncio.run(run())


def _filled(value: Any, rows: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        for kind in ("offer", "instance"):
            if set(value) == {f"${kind}"}:
                return {**rows[kind], **value[f"${kind}"]}
        return {name: _filled(item, rows) for name, item in value.items()}
    return [_filled(item, rows) for item in value] if isinstance(value, list) else value
