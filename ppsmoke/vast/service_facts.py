"""What vast.ai turned out to do where its documentation is silent: a run's calls, read for the questions that are open.

docs/vast-questions.md asks the same questions. Pure: the lines of the call log come in, one finding a question goes
out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

_LINE = re.compile(r"(\d\d):(\d\d):(\d\d\.\d+) (.*)")
_ANSWER = re.compile(r"vast\.ai: (.+) answered (\d+), \d+ bytes ?(.*)")
_OUTCOME = re.compile(r"vast\.ai: (.+?) /\S+, try \d+: (\w+) \((.*)\) after [\d.]+ s")
_CREATED = re.compile(r"created: (\d+)")
_DESTROYED = re.compile(r"asked for the end of (\d+): accepted")
_LISTED = re.compile(r"listed: (.*)")
_FOUND = re.compile(r"a search gave (\d+) offers")
_UPLOAD = re.compile(r"the place of an upload: status (\d+)")
_NOTHING = "did not happen in this run"
_DAY_S = 86400.0


def service_facts(lines: Iterable[str]) -> dict[str, str]:
    """A finding for every question; what this run gave no occasion for says so. Other lines are passed over."""
    told = list(_told(lines))
    return {
        "how a refused create call is answered": _refusals(told, "create"),
        "how a refused key is answered": _refusals(told, None, "key"),
        "how long until a new instance is listed": _seconds(list(_waits_to_be_listed(told))),
        "how many offers one search gives": _most(told),
        "what answers at the place of a log before it is there": _uploads(told),
        "whether a refusal for too many requests says how long to wait": _limits(told),
        "how long a destroyed instance is still listed": _seconds(list(_waits_to_be_gone(told))),
    }


def _told(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Seconds and text; the seconds go on over midnight."""
    last = days = 0.0
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        hours, minutes, seconds = int(found[1]), int(found[2]), float(found[3])
        at = hours * 3600 + minutes * 60 + seconds + days
        if at < last - _DAY_S / 2:
            days, at = days + _DAY_S, at + _DAY_S
        last = at
        yield at, found[4]


def _refusals(told: list[tuple[float, str]], call: str | None, kind: str | None = None) -> str:
    """Every kind of refusal with the status before it and the service's words."""
    seen: Counter[str] = Counter()
    status = "no status"
    for _, text in told:
        if answer := _ANSWER.search(text):
            status = f"status {answer[2]}"
        elif ", try " in text:
            outcome = _OUTCOME.search(text)
            if outcome and call in (None, outcome[1]) and kind in (None, outcome[2]):
                seen[f"{outcome[1]}: {status}, {outcome[3]}"] += 1
            status = "no status"  # what is never answered has none, and none stays for the next
    return "; ".join(f"{words} ({count} times)" if count > 1 else words for words, count in seen.items()) or _NOTHING


def _waits_to_be_listed(told: list[tuple[float, str]]) -> Iterator[float]:
    created: dict[str, float] = {}
    for at, text in told:
        if found := _CREATED.fullmatch(text):
            created[found[1]] = at
        elif found := _LISTED.fullmatch(text):
            for instance in _ids(found[1]):
                if instance in created:
                    yield at - created.pop(instance)


def _waits_to_be_gone(told: list[tuple[float, str]]) -> Iterator[float]:
    """From the accepted request to the last listing that still had the instance; 0 where none had."""
    asked: dict[str, float] = {}
    seen: dict[str, float] = {}
    for at, text in told:
        if found := _DESTROYED.fullmatch(text):
            asked.setdefault(found[1], at)
            seen.setdefault(found[1], at)
        elif found := _LISTED.fullmatch(text):
            seen.update(dict.fromkeys(asked.keys() & _ids(found[1]), at))
    yield from (seen[instance] - asked[instance] for instance in asked)


def _ids(listed: str) -> set[str]:
    return {row.split("=")[0] for row in listed.split() if "=" in row}


def _seconds(waits: list[float]) -> str:
    if not waits:
        return _NOTHING
    return f"{min(waits):.1f} to {max(waits):.1f} s, of {len(waits)} instances"


def _most(told: list[tuple[float, str]]) -> str:
    counts = [int(found[1]) for _, text in told if (found := _FOUND.fullmatch(text))]
    return f"at most {max(counts)}, in {len(counts)} searches" if counts else _NOTHING


def _uploads(told: list[tuple[float, str]]) -> str:
    seen = Counter(found[1] for _, text in told if (found := _UPLOAD.search(text)))
    return ", ".join(f"status {status}: {count} x" for status, count in sorted(seen.items())) or _NOTHING


def _limits(told: list[tuple[float, str]]) -> str:
    answers = [found for _, text in told if (found := _ANSWER.search(text)) and found[2] == "429"]
    if not answers:
        return _NOTHING
    saying = [found[3] for found in answers if found[3]]
    return f"{len(saying)} of {len(answers)} did" + (f": {saying[-1]}" if saying else "")
