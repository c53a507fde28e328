"""What goes wrong, and when: `create:2=timeout_after` makes the second create take effect and give no answer.

A fault is `CALL:WHICH=NAME`, several separated by commas. CALL: search, create, list, show, destroy, logs, log_file,
account, change, `any`, or `host` for what becomes of an instance. WHICH: `3` the third call, `3+` from the third on,
`3-5`, `*` all; calls are counted from 1, each kind for itself. NAME: a key of FAULTS, or with `host` one of FATES.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field

from tests.vast_emulator.answers import GATEWAY_PAGE, WEB_APP, Answer, json_answer, text_answer
from tests.vast_emulator.fates import FATES

CALLS = ("search", "create", "list", "show", "destroy", "logs", "log_file", "account", "change")


@dataclass(frozen=True, slots=True)
class Fault:
    """`effect`: whether the call does what it is for all the same; `late_s`: only so much later. `answer` None: the
    connection is held without an answer, or dropped at once with `drop`."""

    answer: Answer | None
    effect: bool = False
    late_s: float = 0.0
    drop: bool = False
    names_instance: bool = False  # the answer names the instance that was made all the same
    odd_listing: str = ""


def _refused(status: int, code: str, message: str) -> Answer:
    return json_answer({"success": False, "error": code, "msg": message}, status)


_BUSY = "API requests too frequent"
FAULTS: dict[str, Fault] = {
    "timeout_before": Fault(None),
    "timeout_after": Fault(None, effect=True),
    "timeout_late": Fault(None, effect=True, late_s=45.0),
    "drop_before": Fault(None, drop=True),
    "drop_late": Fault(None, effect=True, late_s=45.0, drop=True),
    "drop_after": Fault(None, effect=True, drop=True),
    "429_text": Fault(text_answer(f"{_BUSY}: endpoint threshold=2.0", 429)),
    "429_short": Fault(text_answer(_BUSY, 429)),
    "429_detail": Fault(json_answer({"detail": f"{_BUSY} endpoint threshold=4.5"}, 429)),
    "429_json": Fault(
        json_answer({"success": False, "error": "rate_limit_exceeded", "msg": _BUSY, "retry_after": 3}, 429)
    ),
    "quota": Fault(_refused(429, "search_quota_exceeded", "Daily search quota exceeded")),
    "500": Fault(_refused(500, "server_error", "Internal server error")),
    "500_after": Fault(_refused(500, "server_error", "Internal server error"), effect=True),
    "502_html": Fault(text_answer(GATEWAY_PAGE, 502, "text/html")),
    "html": Fault(text_answer(WEB_APP, 200, "text/html")),
    "html_after": Fault(text_answer(WEB_APP, 200, "text/html"), effect=True),
    "empty": Fault(text_answer("", 200, "application/json")),
    "empty_after": Fault(text_answer("", 200, "application/json"), effect=True),
    "bad_json": Fault(text_answer('{"success": tr', 200, "application/json")),
    "offer_gone_404": Fault(_refused(404, "invalid_args", "error 404/3603: no_such_ask is not available.")),
    "offer_gone_410": Fault(_refused(410, "no_such_ask", "error 410/3907: no_such_ask is no longer available.")),
    "offer_gone_400": Fault(_refused(400, "no_such_ask", "error 410/3907: no_such_ask is no longer available.")),
    "offer_gone_200": Fault(_refused(200, "no_such_ask", "Instance type is no longer available.")),
    "failed_but_made": Fault(
        _refused(400, "invalid_args", "Required resources are currently unavailable, state change queued."),
        effect=True,
        names_instance=True,
    ),
    "no_credit": Fault(_refused(400, "insufficient_credit", "Your account lacks credit; see the billing page.")),
    "bad_request": Fault(_refused(400, "invalid_args", "error 400/3467: Invalid args")),
    "bad_key_401": Fault(_refused(401, "auth_error", "Invalid user key")),
    "bad_key_404": Fault(_refused(404, "auth_error", "Invalid user key")),
    "session_expired": Fault(_refused(404, "auth_error", "Session expired. Please log in again.")),
    "deprecated": Fault(_refused(410, "deprecated_endpoint", "/api/v0/instances/ is deprecated.")),
    "success_false": Fault(_refused(200, "internal", "could not destroy instance")),
    "lies": Fault(json_answer({"success": True})),  # says done, and is not
    "short_page": Fault(None, effect=True, odd_listing="short_page"),
    "no_total": Fault(None, effect=True, odd_listing="no_total"),
    "same_page": Fault(None, effect=True, odd_listing="same_page"),
    "no_url": Fault(_refused(200, "invalid_state", "Instance is not running")),
}
_LISTINGS_ONLY = frozenset({"short_page", "no_total", "same_page", "deprecated"})
_FOR_ONE_CALL = {
    "search": frozenset({"quota"}),
    "create": frozenset({"timeout_late", "drop_late", "failed_but_made", "no_credit", "bad_request"})
    | {name for name in FAULTS if name.startswith("offer_gone")},
    "list": _LISTINGS_ONLY,
    "destroy": frozenset({"success_false", "lies"}),
    "logs": frozenset({"no_url"}),
}
_RULE = re.compile(r"([a-z_]+):(\*|\d+\+?|\d+-\d+)=(\w+)")


@dataclass(frozen=True, slots=True)
class Rule:
    call: str
    first: int
    last: float
    name: str


@dataclass(slots=True)
class FaultPlan:
    """`rules` win; beside them a call goes wrong with the probability `chaos`, in a way that suits it."""

    rules: tuple[Rule, ...] = ()
    chaos: float = 0.0
    rng: random.Random = field(default_factory=random.Random)
    counts: Counter[str] = field(default_factory=Counter)

    def next(self, call: str) -> Fault | None:
        """Count a call; the fault it meets."""
        self.counts[call] += 1
        self.counts["any"] += 1
        for rule in self.rules:
            if rule.call in (call, "any") and rule.first <= self.counts[rule.call] <= rule.last:
                return FAULTS[rule.name]
        if self.chaos and self.rng.random() < self.chaos:
            return FAULTS[self.rng.choice(fitting(call))]
        return None

    def next_fate(self) -> str:
        """Count an instance; what becomes of it."""
        self.counts["host"] += 1
        for rule in self.rules:
            if rule.call == "host" and rule.first <= self.counts["host"] <= rule.last:
                return rule.name
        if self.chaos and self.rng.random() < self.chaos:
            return self.rng.choice(sorted(FATES))
        return "runs"


def parse_faults(text: str) -> tuple[Rule, ...]:
    """Raises ValueError that says what is wrong."""
    rules = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RULE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not CALL:WHICH=NAME, as in create:2=timeout_after")
        call, which, name = match.groups()
        if call not in (*CALLS, "any", "host"):
            raise ValueError(f"{call!r} is none of {', '.join((*CALLS, 'any', 'host'))}")
        known = FATES if call == "host" else FAULTS
        if name not in known:
            raise ValueError(f"{name!r} is none of {', '.join(sorted(known))}")
        first, last = _span(which)
        rules.append(Rule(call, first, last, name))
    return tuple(rules)


def fitting(call: str) -> list[str]:
    """The faults that this call can meet, those left out that only other calls have."""
    others = set().union(*(names for owner, names in _FOR_ONE_CALL.items() if owner != call))
    return sorted(set(FAULTS) - others)


def _span(which: str) -> tuple[int, float]:
    if which == "*":
        return 1, float("inf")
    if which.endswith("+"):
        return int(which[:-1]), float("inf")
    first, _, last = which.partition("-")
    return int(first), int(last or first)
