"""Frozen records, and the JSON they travel as: whatever arrives is checked field by field, and refused by name. Pure.

A field's annotation is its whole description: text, a number, `Annotated` with a `Between` or a `Matching`, a Literal,
an enumeration, another record, a tuple or a dict of these, or a union of records that one literal field tells apart.
Every node loads this before it can be reached, so it is small and needs no schema library (100 ms and 13 MB a process).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)


class RecordRefused(Exception):
    """`place`: the dotted path of the first wrong field, empty for the record itself; `reason`: what it must be."""

    def __init__(self, place: tuple[str, ...], reason: str) -> None:
        self.place = ".".join(place)
        self.reason = reason
        super().__init__(f"{self.place}: {reason}" if place else reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, both included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


@dataclasses.dataclass(frozen=True, slots=True)
class Matching:
    """A pattern that a whole text must match, and what to call such a text."""

    pattern: re.Pattern[str]
    name: str


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Record:
    """Base of frozen keyword-only dataclasses. Strict about unknown fields: a peer of another version must fail loudly,
    not half-work."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The record a JSON object stands for. Raises RecordRefused."""
        return _record(cls, value, ())

    def to_json(self) -> dict[str, Any]:
        """The JSON object of this record."""
        return {name: _plain(getattr(self, name)) for name in _fields(type(self))}

    def replace(self, **changes: Any) -> Self:
        """The same record with other values in some fields; they are not checked."""
        return type(self)(**{name: getattr(self, name) for name in self.__dataclass_fields__} | changes)


class _Field(NamedTuple):
    hint: Any
    required: bool


_R = TypeVar("_R", bound=Record)
_KNOWN: dict[type[Record], dict[str, _Field]] = {}


def one_of(union: Any, value: object) -> Any:
    """The record of a union that `value` stands for, told by the literal field they share. Raises RecordRefused."""
    return _union(union, value, ())


def _plain(value: Any) -> Any:
    match value:
        case Record():
            return value.to_json()
        case Enum():
            return value.value
        case tuple():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value


def _fields(kind: type[Record]) -> dict[str, _Field]:
    """What each field of a record may hold; read once, since annotations are text until somebody asks."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = {
            name: _Field(hints[name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
            for name, f in kind.__dataclass_fields__.items()
        }
    return _KNOWN[kind]


def _record(kind: type[_R], value: object, place: tuple[str, ...]) -> _R:
    if not isinstance(value, Mapping):
        raise RecordRefused(place, "must be an object")
    fields = _fields(kind)
    found = {}
    for name, (hint, required) in fields.items():
        if name in value:
            found[name] = _checked(hint, value[name], (*place, name))
        elif required:
            raise RecordRefused((*place, name), "is missing")
    for name in value:
        if name not in fields:
            raise RecordRefused((*place, str(name)), "is no known field")
    return kind(**found)


def _checked(hint: Any, value: object, place: tuple[str, ...]) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        return _bounded(hint, value, place)
    if origin is Literal:
        return _choice(get_args(hint), value, place)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise RecordRefused(place, "must be a list")
        item = get_args(hint)[0]
        return tuple(_checked(item, inner, (*place, str(i))) for i, inner in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise RecordRefused(place, "must be an object")
        key, item = get_args(hint)
        return {
            _checked(key, k, (*place, str(k))): _checked(item, inner, (*place, str(k))) for k, inner in value.items()
        }
    if origin in (UnionType, Union):
        return _union(hint, value, place)
    if issubclass(hint, Record):
        return _record(hint, value, place)
    if issubclass(hint, Enum):
        return hint(_choice(tuple(member.value for member in hint), value, place))
    return _scalar(hint, value, place)


def _bounded(hint: Any, value: object, place: tuple[str, ...]) -> Any:
    inner, rule = get_args(hint)
    checked = _checked(inner, value, place)
    match rule:
        case Between(low, high) if not low <= checked <= high:
            raise RecordRefused(place, f"must be {rule}")
        case Matching(pattern, name) if not pattern.fullmatch(checked):
            raise RecordRefused(place, f"must be {name}")
    return checked


def _choice(choices: tuple[Any, ...], value: object, place: tuple[str, ...]) -> Any:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise RecordRefused(place, f"must be {' or '.join(map(repr, choices))}")


def _union(union: Any, value: object, place: tuple[str, ...]) -> Any:
    if not isinstance(value, Mapping):
        raise RecordRefused(place, "must be an object")
    tag, kinds = _tagged(union)
    name = value.get(tag)
    if not isinstance(name, str) or name not in kinds:
        raise RecordRefused((*place, tag), f"must be {' or '.join(map(repr, kinds))}")
    return _record(kinds[name], value, (*place, name))


@cache
def _tagged(union: Any) -> tuple[str, dict[str, type[Record]]]:
    """The literal field that tells the records of a union apart, and the record of each of its values."""
    kinds: tuple[type[Record], ...] = get_args(union)
    for name in _fields(kinds[0]):
        hints = [_fields(kind)[name].hint if name in _fields(kind) else None for kind in kinds]
        tagged = {
            get_args(hint)[0]: kind for hint, kind in zip(hints, kinds, strict=True) if get_origin(hint) is Literal
        }
        if len(tagged) == len(kinds):
            return name, tagged
    raise TypeError(f"no field tells the records of {union} apart")


def _scalar(kind: type, value: object, place: tuple[str, ...]) -> Any:
    if kind is str and isinstance(value, str) and _is_text(value):
        return value
    if kind is int and type(value) is int:
        return value
    if kind is float and type(value) in (int, float):
        return _finite(value, place)
    names = {str: "must be text", int: "must be a whole number", float: "must be a number"}
    raise RecordRefused(place, names[kind])


def _finite(value: Any, place: tuple[str, ...]) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RecordRefused(place, "must be a finite number")
    return number


def _is_text(value: str) -> bool:
    """A lone surrogate could be neither sent on nor shown."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
