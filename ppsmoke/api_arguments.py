"""What `run_local` was given, judged before anything begins: a wrong type or value is a sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ppsmoke.errors import UsageError
from ppsmoke.messages import Feedback
from ppsmoke.orchestrator.options import Deadlines

_TEXT = ("model", "prompt", "device")
_SWITCHES = ("raw", "verify")
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "max_tokens": (1, 2**31 - 1),
    "context": (1, 2**24),
    "temperature": (0, 1e6),
    "top_p": (1e-6, 1),
    "sample_seed": (0, 2**63 - 1),
}
_FRACTIONS = ("temperature", "top_p")


def check_arguments(given: Mapping[str, Any]) -> None:
    """`given`: every argument by its name. How many stages a model can have is judged with the model.

    Raises UsageError, which names the argument.
    """
    for name in _TEXT:
        _require(name, given[name], isinstance(given[name], str), "a str")
    _require("system", given["system"], isinstance(given["system"], str | None), "a str, or None")
    for name in _SWITCHES:
        _require(name, given[name], isinstance(given[name], bool), "True or False")
    _require("num_stages", given["num_stages"], _is_whole(given["num_stages"]), "an int")
    for name, (low, high) in _NUMBERS.items():
        value = given[name]
        if name in _FRACTIONS:
            _require(name, value, _is_number(value), "a number")
        else:
            _require(name, value, _is_whole(value), "an int")
        if not low <= value <= high:
            raise UsageError(f"{name}={value} is out of range", remedy=f"Give a number from {low:g} to {high:g}.")
    feedback, log_dir = given["feedback"], given["log_dir"]
    _require("feedback", feedback, feedback in tuple(Feedback), " or ".join(repr(str(one)) for one in Feedback))
    _require("log_dir", log_dir, isinstance(log_dir, str | Path | None), "a str or a Path, or None")
    for name in ("on_text", "on_event"):
        _require(name, given[name], given[name] is None or callable(given[name]), "a function of one argument, or None")
    _check_deadlines(given["deadlines"])


def _check_deadlines(deadlines: Any) -> None:
    _require("deadlines", deadlines, isinstance(deadlines, Deadlines | None), "a Deadlines, or None")
    for field in fields(deadlines) if deadlines is not None else ():
        value = getattr(deadlines, field.name)
        none_will_do = field.name == "budget" and value is None
        _require(f"deadlines.{field.name}", value, none_will_do or _is_number(value), "a number of seconds")


def _require(name: str, value: Any, fits: bool, wanted: str) -> None:
    if not fits:
        raise UsageError(f"{name}={repr(value)[:60]} cannot be used", remedy=f"Give {wanted}.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
