"""What links allow a chain, and what was measured beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ppsmoke.wording import columns

DIRECT, RELAYED, LLAMA_RPC = "direct", "relayed", "llama.cpp RPC"
_HEAD = (
    "N",
    "round trip",
    "way",
    "tok/s",
    "ms/token",
    "least",
    "x least",
    "first token",
    "least",
    "x",
    "to first text",
)


@dataclass(frozen=True, slots=True)
class WanCase:
    """A chain of `stages` hosts, any two of which are `round_trip_s` apart. `way`: one of those named here."""

    stages: int
    round_trip_s: float
    way: str

    def __str__(self) -> str:
        return f"N={self.stages} {self.round_trip_s * 1000:.0f} ms {self.way}"


@dataclass(frozen=True, slots=True)
class Limits:
    """The least that a token, and the first one, can take: s."""

    token_s: float
    first_token_s: float


def limits(
    case: WanCase, *, step_s: float, prefill_s: float, activation_bytes: float, rate_bit_s: float, parts: int = 1
) -> Limits:
    """`step_s`: what all stages together compute for a token; `prefill_s`: for the prompt, its parts overlapping.

    A token takes one way from stage to stage and one back to the first: N ways, half a round trip each. The first one
    takes one more, since the prompt comes from outside, and `activation_bytes` cross N - 1 links, part behind part.
    """
    ways = case.stages / 2 * case.round_trip_s
    transfer_s = activation_bytes * 8 / rate_bit_s * (1 + (case.stages - 2) / max(parts, 1))
    first = prefill_s + ways + case.round_trip_s / 2 + transfer_s
    return Limits(step_s + ways, first)


@dataclass(frozen=True, slots=True)
class WanResult:
    """Seconds. `first_token_s`: from the prompt's injection; `first_text_s`: from the command, all starts included.

    `limits` only of a chain of ours; with an `error` nothing was measured.
    """

    case: WanCase
    token_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    limits: Limits | None = None
    error: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def of_token_limit(self) -> float | None:
        """Times the least."""
        return _ratio(self.token_s, self.limits and self.limits.token_s)

    @property
    def of_first_limit(self) -> float | None:
        return _ratio(self.first_token_s, self.limits and self.limits.first_token_s)

    def as_json(self) -> dict[str, Any]:
        ratios = {"of_token_limit": self.of_token_limit, "of_first_token_limit": self.of_first_limit}
        return {**asdict(self), **ratios}


def wan_table(results: Sequence[WanResult]) -> list[str]:
    """Lines of text, one for each result under a heading."""
    return columns([_HEAD, *map(_row, results)])


def _row(result: WanResult) -> tuple[str, ...]:
    case, least = result.case, result.limits
    head = (str(case.stages), f"{case.round_trip_s * 1000:.0f} ms", case.way)
    if result.error is not None:
        return (*head, f"not measured: {result.error}", *[""] * (len(_HEAD) - len(head) - 1))
    return (
        *head,
        _show(result.token_s and 1 / result.token_s, 1),
        _show(result.token_s, 1, 1000),
        _show(least and least.token_s, 1, 1000),
        _show(result.of_token_limit, 2),
        f"{_show(result.first_token_s, 2)} s",
        _show(least and least.first_token_s, 2),
        _show(result.of_first_limit, 2),
        f"{_show(result.first_text_s, 1)} s",
    )


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value and by else None


def _show(value: float | None, digits: int, times: float = 1) -> str:
    return "-" if value is None else f"{value * times:.{digits}f}"
