"""Values of options from the environment and from a config file, before the command line itself has its say. Pure.

Each option has one name (`num-stages`), which is its key in the config file; its variable is PP_NUM_STAGES. A value
is kept as the command line would give it (text, True for a flag, a list where it may be repeated), with the place that
it came from, so that whoever refuses it later can name that place.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ppsmoke.errors import UsageError

PREFIX = "PP_"
_NO_OPTIONS = frozenset(
    {
        "PP_BOOTSTRAP",
        "PP_FAR",
        "PP_GPU_NODE_ADDR",
        "PP_HEARD_FILE",
        "PP_INSTANCE_LABEL",
        "PP_JOIN_TOKEN",
        "PP_LIFELINE",
        "PP_LONG",
        "PP_NODE_KEY",
        "PP_PREFILL_TIMEOUT",
        "PP_RUN_ID",
        "PP_SILENCE_LIMIT",
        "PP_SMOKE_CACHE",
        "PP_STEP_TIMEOUT",
        "PP_UDP_PORT",
        "PP_VERSION",
    }
)
_NODES_OWN = (f"{PREFIX}WORKER_", f"{PREFIX}BOOTSTRAP_", f"{PREFIX}EMULATOR_")
"""What nodes and workers read, and no run's options."""
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Kind(StrEnum):
    """What a value is, as an error says it."""

    FLAG = "true or false"
    NUMBER = "a number"
    TEXT = "text in quotes"
    TEXTS = "text in quotes, or a list of it"


@dataclass(frozen=True, slots=True)
class OptionShape:
    """`parameter`: what the program calls it (as_json); `name`: what the user does (json)."""

    parameter: str
    name: str
    kind: Kind

    @property
    def variable(self) -> str:
        """PP_NUM_STAGES for num-stages."""
        return PREFIX + self.name.replace("-", "_").upper()


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it stands: 'PP_SEED', or 'config.toml line 3: seed'."""

    value: str | bool | tuple[str, ...]
    origin: str


Settings = dict[str, Setting]
"""By the option's parameter."""


def environment_settings(shapes: Iterable[OptionShape], environ: Mapping[str, str]) -> Settings:
    """What the variables say; an empty one says nothing. Raises UsageError for a flag that is neither on nor off."""
    found = {}
    for shape in shapes:
        if text := environ.get(shape.variable, ""):
            found[shape.parameter] = Setting(_from_variable(shape, text), shape.variable)
    return found


def misspelt_variables(shapes: Iterable[OptionShape], environ: Mapping[str, str]) -> list[str]:
    """A warning for every variable that is set and looks like an option's, and is none and nothing else of ours."""
    known = {shape.variable for shape in shapes} | {f"{PREFIX}CONFIG"}
    warnings = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known | _NO_OPTIONS or name.startswith(_NODES_OWN):
            continue
        if near := difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8):
            warnings.append(f"warning: {name} is no option and is not looked at; did you mean {near[0]}?")
    return warnings


def _from_variable(shape: OptionShape, text: str) -> str | bool | tuple[str, ...]:
    match shape.kind:
        case Kind.FLAG:
            if text.lower() not in _SWITCH:
                raise UsageError(f"{shape.variable}: {text!r} is neither 1 nor 0", remedy="Set it to 1 or to 0.")
            return _SWITCH[text.lower()]
        case Kind.TEXTS:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        case _:
            return text


def config_settings(shapes: Iterable[OptionShape], text: str, file: str, forbidden: Mapping[str, str]) -> Settings:
    """What a config file says: TOML, a key for each option. `forbidden`: names that have no place in it, and why.

    Raises UsageError that names `file` and the line: bad TOML, an unknown key, a value of another kind.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, file) from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, brackets nested a thousand deep
        raise UsageError(f"{file} has a value that no option takes", remedy="Take the longest one away.") from None
    known = {shape.name: shape for shape in shapes}
    found = {}
    for key, value in table.items():
        place = f"{file} line {line_of(key, text)}: {key}"
        if key in forbidden:
            raise UsageError(f"{place} has no place in a config file: {forbidden[key]}", remedy="Leave it out.")
        if key not in known:
            raise UsageError(f"{place} is no option", remedy=_near(key, known))
        shape = known[key]
        found[shape.parameter] = Setting(_from_toml(shape, value, place), place)
    return found


def line_of(key: str, text: str) -> int:
    """The line, from 1, on which a top-level key or table of valid TOML begins."""
    lines = text.splitlines()
    names = re.escape(key)
    begins = re.compile(rf"""\s*\[?\s*["']?{names}["']?\s*[=.\]]""")
    for number, line in enumerate(lines):
        # What looks like it may stand inside a text of several lines: what comes before it would then be incomplete.
        if begins.match(line) and _is_toml("\n".join(lines[:number])):
            return number + 1
    return 1


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _syntax_error(what: str, text: str, file: str) -> UsageError:
    found = re.search(r"\(at line (\d+), column \d+\)", what)
    line = int(found[1]) if found else max(1, len(text.splitlines()))
    reason = what[: found.start()] if found else what.replace("(at end of document)", "")
    return UsageError(
        f"{file} line {line}: {reason.strip()}", remedy='The file is TOML, one option a line: model = "smollm2:135m".'
    )


def _near(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key.replace("_", "-"), list(known), n=1)
    return f"Did you mean {near[0]}?" if near else "Keys are named as the options, without --: num-stages = 3."


def _from_toml(shape: OptionShape, value: Any, place: str) -> str | bool | tuple[str, ...]:
    match shape.kind, value:
        case Kind.FLAG, bool():
            return value
        case _, int() if abs(value) >= 2**64:  # one of thousands of digits could not even be shown
            raise UsageError(f"{place} is a number that no option takes", remedy="See pp-smoke-run --help-all.")
        case Kind.NUMBER, int() | float() if not isinstance(value, bool):
            return str(value)
        case ((Kind.TEXT | Kind.TEXTS), str()):
            return (value,) if shape.kind is Kind.TEXTS else value
        case Kind.TEXTS, list() if all(isinstance(item, str) for item in value):
            return tuple(value)
    shown = "that" if shape.kind in (Kind.TEXT, Kind.TEXTS) and not isinstance(value, list | dict) else _named(value)
    raise UsageError(f"{place} is {shape.kind.value}, not {shown}", remedy="See pp-smoke-run --help-all.")


def _named(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return str(value)


# ---- who wins


def merge(
    given: Iterable[str],
    layers: Sequence[Settings],
    *,
    modes: Sequence[str],
    exclusive: Sequence[tuple[str, str]],
) -> Settings:
    """What holds beside the options `given` on the command line; of `layers` the earlier one wins.

    modes: the options of which the strongest source names one, and what weaker sources say about it is void; so it is
    with every `exclusive` pair. Two of one source both stay: to be refused as on the command line.
    """
    held: Settings = {}
    strongest = set(given)
    for layer in layers:
        taken = {name: setting for name, setting in layer.items() if name not in strongest and name not in held}
        for group in (tuple(modes), *exclusive):
            if any(_is_on(name, held) or name in strongest for name in group):
                taken = {name: setting for name, setting in taken.items() if name not in group}
        held |= taken
    return held


def _is_on(name: str, settings: Settings) -> bool:
    return name in settings and settings[name].value is not False
