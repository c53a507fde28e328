"""Records in and out of JSON: what is accepted, and how a refusal names the place."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, field
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest

from ppsmoke.record import Between, Matching, Record, RecordRefused, one_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Wheel(Record):
    kind: Literal["wheel"] = "wheel"
    spokes: Annotated[int, Between(3, 40)]


class Sail(Record):
    kind: Literal["sail"] = "sail"
    cloth: str = "linen"


class Cart(Record):
    name: Annotated[str, Matching(re.compile("[a-z]+"), "lower case letters")]
    width: Annotated[float, Between(0.5, 3)] = 1.0
    colour: Colour = Colour.RED
    parts: tuple[Wheel | Sail, ...] = ()
    loads: dict[str, float] = field(default_factory=dict)
    axles: Literal[1, 2] = 1


FULL = Cart(
    name="cart",
    width=2.5,
    colour=Colour.BLUE,
    parts=(Wheel(spokes=12), Sail(cloth="wool")),
    loads={"hay": 0.25},
    axles=2,
)


def test_a_record_comes_back_from_its_json() -> None:
    assert FULL.to_json() == {
        "name": "cart",
        "width": 2.5,
        "colour": "blue",
        "parts": [{"kind": "wheel", "spokes": 12}, {"kind": "sail", "cloth": "wool"}],
        "loads": {"hay": 0.25},
        "axles": 2,
    }
    assert Cart.from_json(FULL.to_json()) == FULL
    assert Cart.from_json({"name": "cart"}) == Cart(name="cart")


def test_a_whole_number_is_a_number_too() -> None:
    width = Cart.from_json({"name": "cart", "width": 2}).width
    assert (width, type(width)) == (2.0, float)


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ({"name": "Cart"}, "name", "must be lower case letters"),
        ({"name": "cart\n"}, "name", "must be lower case letters"),
        ({"name": "\ud800"}, "name", "must be text"),
        ({"width": 0.4}, "width", "must be from 0.5 to 3"),
        ({"width": True}, "width", "must be a number"),
        ({"width": float("nan")}, "width", "must be a finite number"),
        ({"width": 10**400}, "width", "must be a finite number"),
        ({"colour": "green"}, "colour", "must be 'red' or 'blue'"),
        ({"axles": True}, "axles", "must be 1 or 2"),
        ({"axles": 1.0}, "axles", "must be 1 or 2"),
        ({"parts": {}}, "parts", "must be a list"),
        ({"parts": [{"kind": "wheel", "spokes": 2}]}, "parts.0.wheel.spokes", "must be from 3 to 40"),
        ({"parts": [{"kind": "sail"}, {"kind": "wheel"}]}, "parts.1.wheel.spokes", "is missing"),
        ({"parts": [{"kind": "oar"}]}, "parts.0.kind", "must be 'wheel' or 'sail'"),
        ({"parts": [7]}, "parts.0", "must be an object"),
        ({"loads": {"hay": "much"}}, "loads.hay", "must be a number"),
        ({"loads": {3: 1.0}}, "loads.3", "must be text"),
        ({"loads": []}, "loads", "must be an object"),
        ({"oars": 2}, "oars", "is no known field"),
    ],
)
def test_the_first_wrong_field_is_named_with_what_it_must_be(changes: dict[str, Any], place: str, reason: str) -> None:
    with pytest.raises(RecordRefused) as refused:
        Cart.from_json(FULL.to_json() | changes)
    assert (refused.value.place, refused.value.reason) == (place, reason)


def test_what_is_no_object_is_refused_at_no_place() -> None:
    with pytest.raises(RecordRefused) as refused:
        Cart.from_json([])
    assert (refused.value.place, str(refused.value)) == ("", "must be an object")


def test_a_union_is_told_apart_by_the_field_its_records_share() -> None:
    assert one_of(Wheel | Sail, {"kind": "sail"}) == Sail()
    with pytest.raises(RecordRefused, match="kind: must be 'wheel' or 'sail'"):
        one_of(Wheel | Sail, {})
    with pytest.raises(TypeError, match="apart"):
        one_of(Wheel | Cart, {"kind": "wheel", "spokes": 3})


def test_a_record_is_changed_only_by_making_another() -> None:
    wheel = Wheel(spokes=5)
    with pytest.raises(FrozenInstanceError):
        wheel.spokes = 6  # type: ignore[misc]
    assert wheel.replace(spokes=6) == Wheel(spokes=6)
    assert wheel == Wheel(spokes=5)
