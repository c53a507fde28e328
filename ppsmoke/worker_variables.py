"""The variables that choose how workers compute: read by each worker, and looked at before any is started."""

from __future__ import annotations

from collections.abc import Mapping

from ppsmoke.errors import BadNodeEnvironment
from ppsmoke.stage_memory import ENGINES

WEIGHTS = ("f32", "f16")
_MOST_THREADS = 1024


def worker_variables(env: Mapping[str, str]) -> tuple[str | None, str | None, int | None]:
    """Engine, weights and threads; None leaves the choice to the worker. Raises BadNodeEnvironment."""
    threads = env.get("PP_WORKER_THREADS") or None
    if threads is not None and not (threads.isdecimal() and 0 < int(threads) <= _MOST_THREADS):
        raise BadNodeEnvironment(
            f"PP_WORKER_THREADS is a number of threads, not {threads!r}", remedy="Correct it, or unset it."
        )
    return (
        _one_of(ENGINES, env, "PP_WORKER_ENGINE"),
        _one_of(WEIGHTS, env, "PP_WORKER_WEIGHTS"),
        None if threads is None else int(threads),
    )


def _one_of(choices: tuple[str, ...], env: Mapping[str, str], name: str) -> str | None:
    value = env.get(name) or None
    if value is not None and value not in choices:
        raise BadNodeEnvironment(
            f"{name} is one of {', '.join(choices)}, not {value!r}", remedy="Correct it, or unset it."
        )
    return value
