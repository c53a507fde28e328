"""What a rented run is asked to do, beside what every run is asked. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ppsmoke.membership import WAN_SILENCE_S
from ppsmoke.orchestrator.options import Deadlines
from ppsmoke.vast.lease_book import OfferSource
from ppsmoke.vast.place import DEFAULT_URL
from ppsmoke.vast.records import Offer
from ppsmoke.vast.stage_need import StageNeed
from ppsmoke.vast.stage_request import DEFAULT_IMAGE, DEFAULT_IMAGE_GB

RENTED_DEADLINES = Deadlines(join=180.0, stop=15.0, silence=WAN_SILENCE_S)
"""What a run on rented machines waits for if nothing else is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalOptions:
    """Everything was chosen and confirmed before; the run only acts on it.

    Machines. `offers[i]` is tried first for stage i, whose need is `needs[i]`; `market` gives others when one was gone
    or its machine failed, `replacements` times a stage. `bad_machines`: the file that remembers machines that failed.

    What runs on them. `image`, `image_gb` (to pull, compressed); `package`: what pip installs where the image does not
    bring `version`, as NodeTerms has it, or with `ship` the caller's own code; `index_url` for pip, empty for its own.

    How they reach us. `files`: what they may read of this machine, by name, such as a model that is nowhere else.
    `relay_urls`: the relays of all endpoints, and `relay_token` what they ask for. `loopback_only`: the machines are
    processes of this one, as an emulator's are.

    Money, in USD. `max_price`: per hour, of all machines together, also after replacements. `max_spend`: of the run.

    `vast_url`, `account`: where and on whose account (None: unknown) is rented; both go to the journal in
    `journal_dir`. `orphan_timeout_s`: a machine that has heard nothing of this process for so long destroys itself.
    `time_scale` shrinks the waits between calls and polls, as the client's does, for an emulator whose time passes
    faster; money is counted in the emulator's time.
    """

    offers: tuple[Offer, ...]
    needs: tuple[StageNeed, ...]
    market: OfferSource
    package: str
    version: str
    journal_dir: Path
    bad_machines: Path | None = None
    replacements: int = 3
    image: str = DEFAULT_IMAGE
    image_gb: float = DEFAULT_IMAGE_GB
    ship: Mapping[str, str] = field(default_factory=dict)
    index_url: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    relay_urls: tuple[str, ...] = ()
    relay_token: str = field(default="", repr=False)
    loopback_only: bool = False
    max_price: float | None = None
    max_spend: float | None = None
    vast_url: str = DEFAULT_URL
    account: str | None = None
    orphan_timeout_s: int = 600
    time_scale: float = 1.0
