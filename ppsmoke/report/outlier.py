"""The slowest token of a run, if much slower than the others: what kept it, and what happened meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ppsmoke.figures import seconds
from ppsmoke.report.critical_path import Link, Place, TokenPath
from ppsmoke.report.culprit import Culprit
from ppsmoke.report.story import Story
from ppsmoke.run_events import MemberSeen, PathChanged, RunResumed

_FEWEST = 4
_TIMES = 3.0
_MORE_S = 0.05


def slowest_token(story: Story, paths: Sequence[TokenPath]) -> Culprit | None:
    """None where no token stands out."""
    if len(paths) < _FEWEST:
        return None
    usual = median(path.seconds for path in paths)
    worst = max(paths, key=lambda path: path.seconds)
    if worst.seconds < max(_TIMES * usual, usual + _MORE_S):
        return None
    link = max(worst.links, key=lambda link: link.seconds - _usual(link.place, paths))
    where = f"{link.place.describe()} {'computing' if link.place.is_stage else 'in the hop'}"
    meanwhile = "".join(f"; meanwhile {event}" for event in _events(story, link))
    sentence = f"token {worst.sequence} took {seconds(worst.seconds)}, others {seconds(usual)}: {seconds(link.seconds)}"
    return Culprit("slowest", f"{sentence} of it {where}{meanwhile}", link.place, link.seconds / worst.seconds)


def _usual(place: Place, paths: Sequence[TokenPath]) -> float:
    return median(link.seconds for path in paths for link in path.links if link.place == place)


def _events(story: Story, link: Link) -> Iterator[str]:
    """What may have to do with it, one of each kind."""
    during = [moment.event for moment in story.moments if link.begin <= moment.at <= link.end + _MORE_S]
    for event in during:
        if isinstance(event, RunResumed):
            yield f"the run was stopped for {seconds(event.away_s)}, as by Ctrl-Z"
            break
    for event in during:
        if isinstance(event, PathChanged) and {event.source, event.target} == {link.place.source, link.place.target}:
            stall = f", nothing passed for {seconds(event.stall_s)}" if event.stall_s is not None else ""
            yield f"its path changed from {event.before} to {event.after}{stall}"
            break
    for event in during:
        if isinstance(event, MemberSeen) and event.state in ("suspect", "dead") and event.member is not None:
            yield f"stage {event.member} was {'suspected' if event.state == 'suspect' else 'declared dead'}"
            break
