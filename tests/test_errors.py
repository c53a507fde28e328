"""The error tree: what its docstring promises is what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ppsmoke import errors
from ppsmoke.errors import Interrupted, PpError, RequestRejected


def subclasses(cls: type[PpError]) -> Iterator[type[PpError]]:
    """`cls` and all below it that errors.py defines."""
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from subclasses(child)


def documented_parents() -> dict[str, str | None]:
    """Class name -> its parent's name, read off the drawing in the module's docstring."""
    parents: dict[str, str | None] = {}
    line_of_descent: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^(    (?:[│├└─ ]*))([A-Z]\w+)(?:  |$)", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        while line_of_descent and line_of_descent[-1][0] >= depth:
            line_of_descent.pop()
        parents[name] = line_of_descent[-1][1] if line_of_descent else None
        line_of_descent.append((depth, name))
    return parents


TREE = list(subclasses(PpError))


def make(cls: type[PpError], what: str) -> PpError:
    return Interrupted(what, signal_number=2) if cls is Interrupted else cls(what)


def test_the_docstring_draws_the_tree_there_is() -> None:
    actual = {cls.__name__: cls.__base__.__name__ if cls is not PpError else None for cls in TREE}
    assert documented_parents() == actual


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in TREE]
    assert sorted(codes) == sorted(set(codes))


def test_a_code_is_its_class_name_in_snake_case() -> None:
    shortened = {"PpError": "error", "UsageError": "usage", "EnvironmentFault": "environment"}
    for cls in TREE:
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        assert cls.code == shortened.get(cls.__name__, snake)


@pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)
def test_every_error_says_what_where_and_what_to_do(cls: type[PpError]) -> None:
    where = {"remedy": "do", "stage": 2, "peer": "pp-exit", "phase": "join", "log_tail": ["line"]}
    error = Interrupted("it broke", signal_number=2, **where) if cls is Interrupted else cls("it broke", **where)
    assert str(error) == error.what == "it broke"
    assert (error.remedy, error.stage, error.peer, error.phase) == ("do", 2, "pp-exit", "join")
    assert error.log_tail == ("line",)
    assert make(cls, "bare").log_tail == ()


@pytest.mark.parametrize("cls", TREE, ids=lambda cls: cls.__name__)
def test_exit_statuses_follow_the_branch(cls: type[PpError]) -> None:
    expected = {errors.UsageError: 2, errors.EnvironmentFault: 3, errors.LeasesLeft: 4, Interrupted: 130}
    branch = next((status for base, status in expected.items() if issubclass(cls, base)), 1)
    assert make(cls, "x").exit_status == branch


@pytest.mark.parametrize(("signal_number", "status"), [(1, 129), (2, 130), (15, 143)])
def test_a_signal_has_the_exit_status_of_shells(signal_number: int, status: int) -> None:
    assert Interrupted("ended", signal_number=signal_number).exit_status == status


def test_a_remedy_given_wins_over_the_default() -> None:
    class WithDefault(PpError):
        default_remedy = "default"

    assert WithDefault("x").remedy == "default"
    assert WithDefault("x", remedy="given").remedy == "given"


_ALWAYS_SAID = {
    "error",
    "environment",
    "run_failed",
    "not_confirmed",
    "left_behind",
    "leases_left",
    "bad_node_environment",
}
"""Whose raiser alone knows what to do."""


def test_every_error_of_a_run_says_what_to_do_also_where_its_raiser_does_not() -> None:
    """But an interruption, which is what the user wanted, and a refused request, which is a node's affair."""
    for kind in TREE:
        if kind is Interrupted or issubclass(kind, RequestRejected) or kind.code in _ALWAYS_SAID:
            continue
        assert kind.default_remedy, kind.code
