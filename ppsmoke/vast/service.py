"""Which service is rented from, with whose key: what the options say about it, checked before anything is asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ppsmoke.errors import VastKeyMissing
from ppsmoke.vast.api_key import ApiKey, find_api_key
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.command_options import RentalCommand, is_loopback
from ppsmoke.vast.place import DEFAULT_URL
from ppsmoke.vast.records import Instance


@dataclass(frozen=True, slots=True)
class VastService:
    """`key` None: only the market can be asked. `on_this_machine`: an emulator, whose machines are processes here."""

    url: str
    key: ApiKey | None
    time_scale: float

    @property
    def on_this_machine(self) -> bool:
        return is_loopback(self.url)

    def client(self) -> VastClient:
        """To be used as an async context manager. Raises UsageError for an address that would show the key."""
        return VastClient(self.key, base_url=self.url, time_scale=self.time_scale)

    def without_key(self) -> VastService:
        return VastService(self.url, None, self.time_scale)


def service_of(rental: RentalCommand, *, key_needed: bool) -> VastService:
    """Raises VastKeyMissing where a key is needed and there is none.

    The key leaves this process's environment, so that no child inherits it.
    """
    key: ApiKey | None = None
    try:
        key = find_api_key(rental.api_key, os.environ, Path.home())
    except VastKeyMissing:
        if key_needed or rental.api_key is not None:
            raise
    os.environ.pop("VAST_API_KEY", None)
    return VastService((rental.vast_url or DEFAULT_URL).rstrip("/"), key, rental.time_scale)


class SeenInstances:
    """A listing that was made already, for whoever wants one."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = list(instances)

    async def list_instances(self) -> list[Instance]:
        return self._instances
