"""The JSON that rows of the market and of the account have: the fixtures' rows with other values."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

_ROWS = json.loads((Path(__file__).parents[2] / "fixtures" / "vast" / "rows.json").read_text())
_GPUS = (("RTX 3060", 12288, 0.08), ("RTX 3090", 24576, 0.19), ("RTX 4090", 24564, 0.31), ("A100 SXM4", 81920, 0.85))
_PLACES = ("Quebec, CA", "Texas, US", ", US", "Czechia, CZ", "Iceland, IS", "Sichuan, CN")


def make_offers(count: int, seed: int) -> list[dict[str, Any]]:
    """A market: machines of many hosts, good and bad for a smoke test, some with several offers."""
    rng = random.Random(seed)
    offers = []
    for index in range(count):
        name, ram, price = rng.choice(_GPUS)
        price = round(price * rng.uniform(0.9, 1.6), 4)
        machine = 40000 + index - (index % 7 == 6)  # every seventh offer is a second one of the machine before it
        offers.append(
            {
                **_ROWS["offer"],
                "id": 31200000 + index,
                "ask_contract_id": 31200000 + index,
                "machine_id": machine,
                "host_id": 70000 + machine // 2,
                "gpu_name": name,
                "gpu_ram": ram,
                "gpu_total_ram": ram,
                "dph_base": price,
                "dph_total": round(price + 0.0089, 4),
                "reliability": 0.999 - 0.01 * rng.random(),
                "reliability2": 0.999 - 0.01 * rng.random(),
                "inet_down": round(rng.uniform(300, 4000), 1),
                "inet_up": round(rng.uniform(150, 2000), 1),
                "geolocation": rng.choice(_PLACES),
            }
        )
    return offers


def instance_row(**changes: Any) -> dict[str, Any]:
    """A row of a listing; what is not changed is as on a running instance."""
    return {**_ROWS["instance"], **changes}
