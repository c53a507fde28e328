"""What vast.ai's answers hold that this tool uses, and the one body it sends to rent. Pure data and parsing.

An answer's rows carry secrets (environment values, tokens, keys). Only the fields below are ever taken out of one, so
nothing here can be logged by mistake but `CreateRequest.env`, which stays out of its repr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_SCRIPT_CHARS = 4000
"""Of `onstart` and `args` together; the service takes 4096."""
MAX_LABEL_CHARS = 60
LABEL_VARIABLE = "PP_INSTANCE_LABEL"
"""Repeats the label in the instance's environment: labels can be edited, environments cannot."""
_MAX_ENV_CHARS = 32768


class BadRow(ValueError):
    """A row without the numbers that identify it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One machine's share on the market. None: the answer did not say."""

    id: int
    machine_id: int
    host_id: int | None
    gpu_name: str
    num_gpus: int
    gpu_ram_mb: float  # of one GPU, usable
    price_per_hour_usd: float  # with the disk that the search asked for, without traffic
    cuda: float | None  # the newest CUDA its driver can run
    driver: str
    compute_cap: int | None  # 890 is sm_89
    disk_gb: float
    inet_down_mbps: float  # as the host measured it
    inet_up_mbps: float
    down_usd_per_gb: float
    up_usd_per_gb: float
    reliability: float  # 0 .. 1
    country: str  # two letters, empty when unknown
    location: str
    verified: bool
    datacenter: bool
    rentable: bool
    rented: bool
    seconds_left: float | None  # until the offer itself ends
    direct_ports: int = 0  # public ports that its containers may be given


@dataclass(frozen=True, slots=True)
class Instance:
    """One rented machine. Statuses are the service's own words, None where it gave none."""

    id: int
    label: str  # empty when it has none
    actual_status: str | None
    intended_status: str | None
    cur_state: str | None
    next_state: str | None
    status_msg: str
    machine_id: int | None
    host_id: int | None
    price_per_hour_usd: float | None
    started_at: float | None  # seconds since the epoch: when the contract began
    disk_gb: float | None  # what it really got
    gpu_name: str
    image: str
    location: str
    public_ip: str
    first_label: str = ""  # as its environment has it, empty for one that this tool did not make

    def age_s(self, now: float) -> float | None:
        """Seconds since its contract began, at `now` in seconds since the epoch."""
        return None if self.started_at is None else max(0.0, now - self.started_at)


@dataclass(frozen=True, slots=True)
class Account:
    """`credit_usd`, `id` None: the answer did not say, or the key may not ask."""

    credit_usd: float | None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """What is asked of one machine. `env` holds secrets; `script` runs as `bash -c script`."""

    label: str
    image: str
    disk_gb: float
    script: str = field(repr=False)
    env: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.label or len(self.label) > MAX_LABEL_CHARS:
            raise ValueError(f"a label has 1 to {MAX_LABEL_CHARS} characters, not {len(self.label)}")
        if len("bash") + len("-c") + len(self.script) > MAX_SCRIPT_CHARS:
            raise ValueError(f"the start script has {len(self.script)} characters, more than {MAX_SCRIPT_CHARS}")
        if sum(len(name) + len(value) for name, value in self.env.items()) > _MAX_ENV_CHARS:
            raise ValueError(f"the environment has more than {_MAX_ENV_CHARS} characters")

    def body(self) -> dict[str, Any]:
        """The JSON body of the create call.

        `onstart` is the executable and `args` its arguments: with this runtype a shell line there is taken for the
        name of a file. `cancel_unavail` makes a machine that cannot start now an error instead of a stopped instance
        that is billed and starts some day.
        """
        return {
            "client_id": "me",
            "image": self.image,
            "env": {**self.env, LABEL_VARIABLE: self.label},
            "disk": self.disk_gb,
            "label": self.label,
            "runtype": "args",
            "onstart": "bash",
            "args": ["-c", self.script],
            "target_state": "running",
            "cancel_unavail": True,
        }


def parse_offer(row: Mapping[str, Any]) -> Offer:
    """Raises BadRow without its ids or a price."""
    reliability = row.get("reliability2", row.get("reliability"))
    location = _text(row.get("geolocation"))
    price = _number(row.get("dph_total"))
    if price is None or price < 0:
        raise BadRow("the offer has no price")
    return Offer(
        id=_identity(row, "id"),
        machine_id=_identity(row, "machine_id"),
        host_id=_whole(row.get("host_id")),
        gpu_name=_text(row.get("gpu_name")),
        num_gpus=_whole(row.get("num_gpus")) or 0,
        gpu_ram_mb=_number(row.get("gpu_ram")) or 0.0,
        price_per_hour_usd=price,
        cuda=_number(row.get("cuda_max_good")),
        driver=_text(row.get("driver_version")),
        compute_cap=_whole(row.get("compute_cap")),
        disk_gb=_number(row.get("disk_space")) or 0.0,
        inet_down_mbps=_number(row.get("inet_down")) or 0.0,
        inet_up_mbps=_number(row.get("inet_up")) or 0.0,
        down_usd_per_gb=_number(row.get("inet_down_cost")) or 0.0,
        up_usd_per_gb=_number(row.get("inet_up_cost")) or 0.0,
        reliability=_number(reliability) or 0.0,
        country=country_of(location),
        location=location.strip(" ,"),
        verified=row.get("verification") == "verified" or row.get("verified") is True,
        datacenter=row.get("hosting_type") == 1,
        rentable=row.get("rentable") is not False,
        rented=row.get("rented") is True,
        seconds_left=_number(row.get("duration")),
        direct_ports=_whole(row.get("direct_port_count")) or 0,
    )


def parse_instance(row: Mapping[str, Any]) -> Instance:
    """Raises BadRow without an id; everything else may be missing or null."""
    return Instance(
        id=_identity(row, "id"),
        label=_text(row.get("label")),
        actual_status=_word(row.get("actual_status")),
        intended_status=_word(row.get("intended_status")),
        cur_state=_word(row.get("cur_state")),
        next_state=_word(row.get("next_state")),
        status_msg=_text(row.get("status_msg")).strip(),
        machine_id=_whole(row.get("machine_id")),
        host_id=_whole(row.get("host_id")),
        price_per_hour_usd=_number(row.get("dph_total")),
        started_at=_number(row.get("start_date")),
        disk_gb=_number(row.get("disk_space")),
        gpu_name=_text(row.get("gpu_name")),
        image=_text(row.get("image_uuid")),
        location=_text(row.get("geolocation")).strip(" ,"),
        public_ip=_text(row.get("public_ipaddr")).strip(),
        first_label=_first_label(row.get("extra_env")),
    )


def parse_account(body: Mapping[str, Any]) -> Account:
    """`credit` is what can be spent; `balance` is something else."""
    return Account(credit_usd=_number(body.get("credit")), id=_whole(body.get("id")))


def rows_of(value: object) -> Sequence[Mapping[str, Any]] | None:
    """The rows of a list, or of one row alone, as some answers have it; None for anything else."""
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
        return value
    return None


def country_of(location: str) -> str:
    """The two letters at the end of a location such as "Quebec, CA" or ", US"."""
    last = location.rpartition(",")[2].strip().upper()
    return last if len(last) == 2 and last.isalpha() else ""


def _first_label(extra_env: object) -> str:
    """The one value that is taken out of a row's environment."""
    pairs = extra_env if isinstance(extra_env, list) else []
    return next(
        (_text(pair[1]) for pair in pairs if isinstance(pair, list) and pair[:1] == [LABEL_VARIABLE] and pair[1:]), ""
    )


def _identity(row: Mapping[str, Any], name: str) -> int:
    number = _whole(row.get(name))
    if number is None or number <= 0:
        raise BadRow(f"the row has no {name}")
    return number


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: object) -> float | None:
    """A finite number, also one in text; truth values are none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < 1e15 else None


def _word(value: object) -> str | None:
    return value.strip().lower() if isinstance(value, str) and value.strip() else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
