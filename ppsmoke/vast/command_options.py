"""The options of the command line that are about renting. Loads nothing that talks to anybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from ppsmoke.cli_options import flag, number, option
from ppsmoke.errors import UsageError
from ppsmoke.vast.offers import OfferWishes, Strategy
from ppsmoke.vast.stage_request import DEFAULT_IMAGE

RENTED_MODEL = "llama3.2:1b"
DEFAULT_MAX_SPEND = 1.0

_PANEL = "Renting"
RARE_PANEL = "Renting, rarely needed"
_WISHES = OfferWishes()
_MOST = 1e6
_IMAGE = re.compile(r"[A-Za-z0-9][\w.\-/:@]*", re.ASCII)
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

ApiKeyText = Annotated[
    str | None,
    option("--api-key", metavar="KEY", panel=_PANEL, text="Else VAST_API_KEY, or the vast CLI's key file."),
]
Gpus = Annotated[
    list[str] | None, option("--gpu", metavar="NAME", panel=_PANEL, text='As "RTX 4090"; repeatable; default: any.')
]
Offers = Annotated[
    Strategy,
    option("--offers", metavar="cheapest|median", panel=RARE_PANEL, text="Which of the fitting offers to take."),
]
MaxPrice = Annotated[
    float | None,
    number(
        "--max-price",
        kind=float,
        low=0.001,
        high=_MOST,
        metavar="USD",
        panel=_PANEL,
        text="Most per hour, of all machines together.",
    ),
]
MaxSpend = Annotated[
    float,
    number(
        "--max-spend",
        kind=float,
        low=0.001,
        high=_MOST,
        metavar="USD",
        panel=_PANEL,
        text="Most for the run, which then ends.",
    ),
]
Countries = Annotated[
    list[str] | None,
    option("--country", metavar="CC", panel=RARE_PANEL, text="Only there, as US or US,CA; repeatable."),
]
NotCountries = Annotated[
    list[str] | None, option("--not-country", metavar="CC", panel=RARE_PANEL, text="Not there; repeatable.")
]
MinReliability = Annotated[
    float,
    number("--min-reliability", kind=float, low=0, high=1, metavar="R", panel=RARE_PANEL, text="Of the host, 0 to 1."),
]
MinCuda = Annotated[
    float,
    number(
        "--min-cuda", kind=float, low=0, high=100, metavar="V", panel=RARE_PANEL, text="The newest its driver runs."
    ),
]
MinDriver = Annotated[str, option("--min-driver", metavar="V", panel=RARE_PANEL, text="NVIDIA driver, as 550.54.")]
MinDown = Annotated[
    float,
    number(
        "--min-download", kind=float, low=0, high=_MOST, metavar="MBIT", panel=RARE_PANEL, text="Mbit/s of the host."
    ),
]
MinUp = Annotated[
    float,
    number("--min-upload", kind=float, low=0, high=_MOST, metavar="MBIT", panel=RARE_PANEL, text="Mbit/s of the host."),
]
Unverified = Annotated[bool, flag("--unverified", panel=RARE_PANEL, text="Also hosts that vast.ai did not verify.")]
Datacenter = Annotated[bool, flag("--datacenter", panel=RARE_PANEL, text="Only hosts in datacenters.")]
Image = Annotated[str, option("--image", metavar="IMAGE", panel=RARE_PANEL, text="Container image of the machines.")]
ImageGb = Annotated[
    float | None,
    number(
        "--image-gb",
        kind=float,
        low=0,
        high=1000,
        metavar="GB",
        panel=RARE_PANEL,
        text="Its compressed size, with --image.",
    ),
]
Package = Annotated[
    str,
    option(
        "--package", metavar="SPEC", panel=RARE_PANEL, text="What they install: name==version or a wheel's address."
    ),
]
Ship = Annotated[bool, flag("--ship", panel=_PANEL, text="They install the code that runs here.")]
IndexUrl = Annotated[
    str, option("--index-url", metavar="URL", panel=RARE_PANEL, text="pip's index there, if not its own.")
]
Relays = Annotated[
    list[str] | None,
    option("--relay-url", metavar="URL", panel=RARE_PANEL, text="iroh relay; repeatable; default: the public ones."),
]
RelayToken = Annotated[
    str | None,
    option("--relay-token", metavar="TOKEN", panel=RARE_PANEL, text="What these relays ask for; else PP_RELAY_TOKEN."),
]
OrphanTimeout = Annotated[
    int,
    number(
        "--orphan-timeout",
        kind=int,
        low=60,
        high=86400,
        metavar="SECONDS",
        panel=RARE_PANEL,
        text="A machine that heard nothing of us ends itself.",
    ),
]
Replacements = Annotated[
    int,
    number(
        "--replacements",
        kind=int,
        low=0,
        high=20,
        metavar="N",
        panel=RARE_PANEL,
        text="Machines that may fail, a stage.",
    ),
]
Label = Annotated[
    str | None,
    option(
        "--label", metavar="L", panel=RARE_PANEL, text="With --teardown or --redeploy: this run only; its id will do."
    ),
]
Everything = Annotated[
    bool, flag("--all", panel=RARE_PANEL, text="With --teardown: also runs of other machines. Of this tool only.")
]
Yes = Annotated[bool, flag("--yes", "-y", panel=_PANEL, text="Rent, or destroy, without asking.")]
VastUrl = Annotated[
    str, option("--vast-url", metavar="URL", panel=RARE_PANEL, text="Another service, such as an emulator of it.")
]
TimeScale = Annotated[
    float,
    number(
        "--time-scale",
        kind=float,
        low=0.0001,
        high=1,
        metavar="F",
        panel=RARE_PANEL,
        text="Waits are so much shorter, as an emulator's.",
    ),
]


@dataclass(frozen=True, slots=True)
class RentalCommand:
    """The options about renting, as given. `time_scale` shrinks the waits between calls, for an emulator."""

    api_key: str | None = field(repr=False)
    vast_url: str
    yes: bool
    time_scale: float
    gpus: tuple[str, ...] = ()
    strategy: Strategy = Strategy.CHEAPEST
    max_price: float | None = None
    max_spend: float = DEFAULT_MAX_SPEND
    countries: tuple[str, ...] = ()
    not_countries: tuple[str, ...] = ()
    min_reliability: float = _WISHES.min_reliability
    min_cuda: float = _WISHES.min_cuda or 0.0
    min_driver: str = _WISHES.min_driver
    min_download: float = _WISHES.min_inet_down_mbps
    min_upload: float = _WISHES.min_inet_up_mbps
    unverified: bool = False
    datacenter: bool = False
    image: str = DEFAULT_IMAGE
    image_gb: float | None = None
    package: str = ""
    ship: bool = False
    index_url: str = ""
    relay_urls: tuple[str, ...] = ()
    relay_token: str = field(default="", repr=False)
    orphan_timeout: int = 600
    replacements: int = 3

    def check(self) -> None:
        """Raises UsageError for what cannot be meant: each machine would be paid for until it turned out."""
        if not _IMAGE.fullmatch(self.image):
            raise UsageError(f"--image {self.image!r} is not the name of an image", remedy="Give name:tag.")
        if self.index_url and not _is_web_address(self.index_url):
            raise UsageError(
                "--index-url is not the address of a web service", remedy="Give the https address of a package index."
            )

    def wishes(self) -> OfferWishes:
        """What every machine must have. No single one may cost more than all may together. Raises UsageError."""
        if not all(name.strip() for name in self.gpus):
            raise UsageError("--gpu has no name", remedy='Give one as vast.ai writes it, as "RTX 4090".')
        if self.min_driver and not _VERSION.fullmatch(self.min_driver):
            raise UsageError(
                f"--min-driver {self.min_driver!r} is not a driver's version", remedy="Give one such as 550.54."
            )
        return OfferWishes(
            gpu_names=self.gpus,
            min_cuda=self.min_cuda or None,
            min_driver=self.min_driver,
            min_inet_down_mbps=self.min_download,
            min_inet_up_mbps=self.min_upload,
            min_reliability=self.min_reliability,
            max_price_per_hour_usd=self.max_price,
            countries=_codes("--country", self.countries),
            not_countries=_codes("--not-country", self.not_countries),
            verified=not self.unverified,
            datacenter=self.datacenter,
        )


MODES = ("seed", "vastai", "teardown", "redeploy")
"""The options that say what is to be done and where: exactly one of them is given."""
EXCLUSIVE = (("ship", "package"), ("label", "everything"), ("hold", "verify"))
"""Pairs of options of which one at most is given."""
NEEDS = {"relay_token": "relay_url"}
"""Options that mean something only beside another one."""

_RENTING_ONLY = frozenset(
    {
        *(
            "gpu",
            "offers",
            "max_price",
            "max_spend",
            "country",
            "not_country",
            "min_reliability",
            "min_cuda",
            "min_driver",
        ),
        *(
            "min_download",
            "min_upload",
            "unverified",
            "datacenter",
            "image",
            "image_gb",
            "package",
            "ship",
            "index_url",
        ),
        *("orphan_timeout", "replacements"),
    }
)
_RENTING_AND_TEARDOWN = frozenset({"api_key", "yes", "vast_url", "time_scale"})
_TEARDOWN_ONLY = frozenset({"label", "everything"})
_LOCAL_ONLY = {
    "verify": "it compares with one process on this machine, which has not got the weights",
    "boot_timeout": "no process is started on this machine",
}
_OF_EVERY_COMMAND = frozenset({"as_json", "quiet", "debug", "config"})


def check_combination(given: Mapping[str, str]) -> None:
    """Refuses options that make no sense together: `given` maps the names of those that were given to how the user
    writes them. Raises UsageError for the first."""
    modes = [name for name in MODES if name in given]
    if len(modes) > 1:
        first, second = (given[name] for name in modes[:2])
        raise UsageError(f"{first} and {second} exclude each other", remedy="Give exactly one of them.")
    if not modes:
        raise UsageError(
            "say where to run: --seed or --vastai",
            remedy="--seed runs all stages on this machine, --vastai on rented GPUs. To begin with: "
            "pp-smoke-run --seed --prompt 'Say hello'. See pp-smoke-run --help.",
        )
    (mode,) = modes
    if "relay_token" in given and "relay_url" not in given:
        raise UsageError(
            "--relay-token is for relays of your own, and none is named", remedy="Name them with --relay-url."
        )
    for name, written in given.items():
        if not has_place(name, mode):
            raise UsageError(f"{written} {_why_not(name, mode)}", remedy="Leave it out.")
    for first, second in EXCLUSIVE:
        if first in given and second in given:
            raise UsageError(
                f"{given[first]} and {given[second]} exclude each other", remedy="Give one of them, or none."
            )


def has_place(name: str, mode: str) -> bool:
    """Whether an option means anything in a mode."""
    match mode:
        case "seed":
            return name not in _RENTING_ONLY | _RENTING_AND_TEARDOWN | _TEARDOWN_ONLY
        case "vastai":
            return name not in _TEARDOWN_ONLY and name not in _LOCAL_ONLY
        case "redeploy":
            return name in _OF_EVERY_COMMAND | {"label", "redeploy"}
        case _:
            return name in _RENTING_AND_TEARDOWN | _TEARDOWN_ONLY | _OF_EVERY_COMMAND | {"teardown"}


def _why_not(name: str, mode: str) -> str:
    if mode == "teardown":
        return "has no place beside --teardown: nothing is run"
    if mode == "redeploy":
        return "has no place beside --redeploy: no run is begun"
    if name in _TEARDOWN_ONLY:
        return "belongs to --teardown" + (" and --redeploy" if name == "label" else "")
    if mode == "seed":
        return "is about renting, and --seed rents nothing"
    return f"has no place beside --vastai: {_LOCAL_ONLY[name]}"


def is_loopback(url: str) -> bool:
    """Whether the address is one of this machine alone."""
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable() and " " not in text


def _codes(option_name: str, given: tuple[str, ...]) -> tuple[str, ...]:
    codes = [code.strip() for text in given for code in text.split(",")]
    for code in codes:
        if len(code) != 2 or not (code.isascii() and code.isalpha()):
            raise UsageError(f"{option_name} {code!r} is not a country's code", remedy="Give two letters, as US.")
    return tuple(code.upper() for code in codes)
