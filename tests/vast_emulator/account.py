"""The emulated account: its instances, their rows, and the ledger."""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.vast_emulator.clock import ServiceClock
from tests.vast_emulator.fates import FATES, Fate
from tests.vast_emulator.ledger import Ledger, Life
from tests.vast_emulator.nodes import Nodes
from tests.vast_emulator.rows import instance_row

_MOST_LAG_S = 3.0
_PORT = re.compile(r"-p \d+:(?P<inside>\d+)(?:/(?P<kind>tcp|udp))?")
_OF_THE_OFFER = ("machine_id", "host_id", "gpu_name", "geolocation", "dph_base", "dph_total")


@dataclass(slots=True)
class Rental:
    """One contract. Times are seconds of the service. `key`: what the container may destroy itself with."""

    instance_id: int
    offer: Mapping[str, Any]
    wish: Mapping[str, Any]
    fate: Fate
    born: float
    shown_from: float
    label: str | None
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    died: float | None = None
    shown_until: float = float("inf")


class Account:
    """Not thread-safe; the service holds its lock."""

    def __init__(self, clock: ServiceClock, seed: int, nodes: Nodes | None = None) -> None:
        """Without `nodes` instances are scripted."""
        self._clock = clock
        self._rng = random.Random(seed)
        self._nodes = nodes
        self._next_id = 41870000
        self.rentals: dict[int, Rental] = {}
        self.ledger = Ledger()

    def set_nodes(self, nodes: Nodes | None) -> None:
        """For the instances from now on."""
        self._nodes = nodes

    def rent(self, offer: Mapping[str, Any], wish: Mapping[str, Any], fate_name: str, moment: float) -> Rental:
        """A new contract that began at `moment`."""
        self._next_id += self._rng.randint(1, 9)
        fate = FATES[fate_name]
        lag = self._rng.uniform(0.0, _MOST_LAG_S) + fate.listed_after_s
        rental = Rental(self._next_id, offer, wish, fate, moment, moment + lag, wish.get("label"))
        self.rentals[rental.instance_id] = rental
        self.ledger.open(Life(rental.instance_id, rental.label, float(offer["dph_total"]), moment))
        if self._nodes is not None:
            self._nodes.start(rental.instance_id, _command(wish), self._environment(rental))
        return rental

    def destroy(self, instance_id: int, moment: float) -> bool:
        """False when there is no such instance (any more)."""
        rental = self.rentals.get(instance_id)
        if rental is None or rental.died is not None:
            return False
        rental.died = moment
        rental.shown_until = moment + self._rng.uniform(0.0, _MOST_LAG_S)
        self.ledger.close(instance_id, moment)
        if self._nodes is not None:
            self._nodes.stop(instance_id)
        return True

    def age(self, now: float) -> None:
        """Let what ends by itself end."""
        for rental in list(self.rentals.values()):
            lives = rental.fate.lives_s
            if rental.died is None and lives is not None and now >= rental.born + lives:
                self.destroy(rental.instance_id, rental.born + lives)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """What a listing shows, by id."""
        shown = [x for x in self.rentals.values() if x.shown_from <= now < x.shown_until]
        return [self.row(x, now) for x in sorted(shown, key=lambda x: x.instance_id)]

    def row(self, rental: Rental, now: float) -> dict[str, Any]:
        """One rental as the service shows it."""
        values = rental.fate.values(now - rental.born)
        if self._nodes is not None and values.get("actual_status") == "running":
            status = self._nodes.exit_status(rental.instance_id)
            if status is not None:
                values |= {"actual_status": "exited", "status_msg": f"success, exited ({status})"}
        if "label" not in values:
            values["label"] = rental.label
        offer = {name: rental.offer[name] for name in _OF_THE_OFFER}
        contract = {
            "id": rental.instance_id,
            "image_uuid": rental.wish.get("image"),
            "extra_env": [[name, value] for name, value in dict(rental.wish.get("env") or {}).items()],
            "disk_space": float(rental.wish.get("disk") or 8),
            "start_date": self._clock.date(rental.born),
        }
        return instance_row(**offer | contract | values)

    def output(self, rental: Rental) -> str:
        """What its container wrote."""
        if self._nodes is not None:
            return self._nodes.output(rental.instance_id)
        return f"instance {rental.instance_id} started\n"

    def taken_machines(self) -> set[Any]:
        return {x.offer["machine_id"] for x in self.rentals.values() if x.died is None}

    def _environment(self, rental: Rental) -> dict[str, str]:
        wished = {str(name): str(value) for name, value in dict(rental.wish.get("env") or {}).items()}
        # A wish such as "-p 4433:4433/udp" gets some public port, whose number the container is told.
        ports = {
            f"VAST_{asked['kind'].upper() if asked['kind'] else 'TCP'}_PORT_{asked['inside']}": str(
                self._rng.randint(40000, 49999)
            )
            for asked in filter(None, (_PORT.fullmatch(name) for name in wished))
        }
        return {
            **wished,
            **ports,
            "CONTAINER_ID": str(rental.instance_id),
            "CONTAINER_API_KEY": rental.key,
            "VAST_CONTAINERLABEL": f"C.{rental.instance_id}",
            "PUBLIC_IPADDR": str(rental.offer.get("public_ipaddr") or ""),
        }


def _command(wish: Mapping[str, Any]) -> list[str]:
    return [str(wish.get("onstart") or "true"), *(str(part) for part in wish.get("args") or ())]
