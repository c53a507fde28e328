"""Options that make no sense together are refused with one sentence."""

from __future__ import annotations

import pytest

from ppsmoke.errors import UsageError
from ppsmoke.vast.command_options import RentalCommand, check_combination, is_loopback
from ppsmoke.vast.stage_request import DEFAULT_IMAGE


def given(*names: str) -> dict[str, str]:
    return {name: f"--{name.replace('_', '-')}" for name in names}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "say where to run"),
        (("num_stages", "prompt"), "say where to run"),
        (("seed", "vastai"), "--seed and --vastai exclude each other"),
        (("seed", "teardown"), "--seed and --teardown exclude each other"),
        (("vastai", "teardown"), "--vastai and --teardown exclude each other"),
        (("seed", "gpu"), "--gpu is about renting"),
        (("api_key", "seed"), "--api-key is about renting"),
        (("seed", "yes"), "--yes is about renting"),
        (("seed", "vast_url"), "--vast-url is about renting"),
        (("seed", "relay_token"), "--relay-token is for relays of your own"),
        (("vastai", "relay_token"), "--relay-token is for relays of your own"),
        (("seed", "label"), "--label belongs to --teardown and --redeploy"),
        (("vastai", "everything"), "--everything belongs to --teardown"),
        (("vastai", "verify"), "--verify has no place beside --vastai"),
        (("vastai", "boot_timeout"), "--boot-timeout has no place beside --vastai"),
        (("vastai", "ship", "package"), "--ship and --package exclude each other"),
        (("teardown", "prompt"), "--prompt has no place beside --teardown"),
        (("teardown", "max_spend"), "--max-spend has no place beside --teardown"),
        (("teardown", "plan"), "--plan has no place beside --teardown"),
        (("teardown", "label", "everything"), "--label and --everything exclude each other"),
        (("seed", "hold", "verify"), "--hold and --verify exclude each other"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_makes_no_sense_is_refused(names: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_combination(given(*names))
    assert says in caught.value.what


@pytest.mark.parametrize(
    "names",
    [
        ("seed", "num_stages", "verify", "boot_timeout", "as_json", "members", "budget"),
        ("seed", "relay_url", "relay_token"),
        ("vastai", "num_stages", "api_key", "gpu", "max_price", "max_spend", "yes", "plan", "budget", "relay_url"),
        ("teardown", "label", "yes", "api_key", "vast_url", "time_scale", "as_json", "quiet", "debug"),
        ("teardown", "everything"),
    ],
)
def test_what_makes_sense_passes(names: tuple[str, ...]) -> None:
    check_combination(given(*names))


def test_wishes_are_as_given_and_no_machine_costs_more_than_all_may() -> None:
    wishes = RentalCommand(
        *(None, "", False, 1.0),
        gpus=("RTX_4090",),
        max_price=0.5,
        countries=("us,ca", "se"),
        not_countries=("CN",),
        min_cuda=0.0,
        unverified=True,
    ).wishes()
    assert wishes.gpu_names == ("RTX_4090",)
    assert wishes.max_price_per_hour_usd == 0.5
    assert (wishes.countries, wishes.not_countries) == (("US", "CA", "SE"), ("CN",))
    assert (wishes.min_cuda, wishes.verified) == (None, False)


@pytest.mark.parametrize("image", ["", " ", "a;b", "two words", "-x", "$(id)"])
def test_what_cannot_be_an_image_is_not_rented_for(image: str) -> None:
    with pytest.raises(UsageError, match="--image"):
        RentalCommand(None, "", False, 1.0, image=image).check()


@pytest.mark.parametrize("url", ["x", "-x", "file:///etc", "https://", "https://x/ --pre", "http://[", "$(id)"])
def test_what_cannot_be_an_index_is_not_rented_for(url: str) -> None:
    with pytest.raises(UsageError, match="--index-url"):
        RentalCommand(None, "", False, 1.0, index_url=url).check()


@pytest.mark.parametrize(
    "image", ["mine:1", "ghcr.io/a/b-c_d:v1.2", "localhost:5000/x@sha256:" + "0a" * 32, DEFAULT_IMAGE]
)
def test_images_and_indexes_pass(image: str) -> None:
    RentalCommand(None, "", False, 1.0, image=image, index_url="https://user:word@pypi.example/simple/").check()
    RentalCommand(None, "", False, 1.0, image=image).check()


def test_a_wish_without_a_meaning_is_refused() -> None:
    with pytest.raises(UsageError, match="--gpu"):
        RentalCommand(None, "", False, 1.0, gpus=("RTX 4090", " ")).wishes()
    for version in ("x", "550.", "-1", "550 54"):
        with pytest.raises(UsageError, match="--min-driver"):
            RentalCommand(None, "", False, 1.0, min_driver=version).wishes()


def test_the_key_is_not_in_its_repr() -> None:
    assert "s3cret" not in repr(RentalCommand("s3cret", "", False, 1.0))


def test_an_address_of_this_machine_is_told_from_others() -> None:
    assert is_loopback("http://127.0.0.1:8080/x")
    assert is_loopback("http://localhost")
    assert is_loopback("http://[::1]:1")
    assert not is_loopback("https://console.vast.ai")
    assert not is_loopback("")
    assert not is_loopback("http://[")
