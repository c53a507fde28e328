"""Whether a rented machine is ready, still coming, or lost. Pure: one row of a listing in, a verdict out.

The service never turns a failed image pull or container start into a state: the instance stays `loading` or `created`
for ever and only `status_msg` tells. That the text stands still proves nothing, a slow host may show one line for ten
minutes; so bad words end the wait at once, and everything else is bounded by a deadline alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ppsmoke.vast.records import Instance
from ppsmoke.wording import printable


class Readiness(StrEnum):
    WAIT = "wait"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason`: what is waited for, or why it failed. `another_host_helps`: False means that every host would fail."""

    readiness: Readiness
    reason: str
    another_host_helps: bool = True


_ENDED = frozenset({"destroyed", "terminated"})
_LEAST_DISK = 0.9  # of what was asked for

_FAILED_STATES = {
    "exited": "its container ended",
    "stopped": "it was stopped",
    "frozen": "it is frozen",
    "offline": "its host is offline",
    "unknown": "its host has stopped reporting",
    **dict.fromkeys(_ENDED, "it was destroyed"),
}
_WAITED_FOR = {
    None: "being set up",
    "created": "starting its container",
    "loading": "pulling the image",
    "rebooting": "rebooting",
}

_BAD_MESSAGES: tuple[tuple[str, str, bool], ...] = (
    # (pattern, cause, whether another host helps); the first that matches counts
    (r"toomanyrequests", "the image registry limits this host", True),
    (r"manifest unknown|manifest for .{1,300} not found", "the image has no such tag", False),
    (
        r"pull access denied|repository does not exist|unauthorized|requested access .{0,80}denied",
        "the image does not exist, or is private",
        False,
    ),
    (r"unsatisfied condition: cuda", "its driver is too old for the image", True),
    (
        r"nvidia-container-cli|nvidia-container-runtime|cdi device|could not select device driver",
        "the host cannot hand its GPU to the container",
        True,
    ),
    (
        r"oci runtime create failed.*(?:\bstat\b|\bexec\b|no such file|exec format error)",
        "the image cannot run the start command",
        False,
    ),
    (
        r"port is already allocated|failed programming external connectivity",
        "its ports are taken on the host",
        True,
    ),
    (r"no space left on device", "the host's disk is full", True),
    (r"unexpected eof|connection reset|tls (?:handshake )?timeout", "the host's network broke the image pull", True),
    (r"error response from daemon|oci runtime create failed|\bfailed to\b", "the host could not start it", True),
)
_COMPILED = [(re.compile(pattern, re.DOTALL), cause, helps) for pattern, cause, helps in _BAD_MESSAGES]


def judge(instance: Instance, *, wanted_disk_gb: float | None = None, was_ready: bool = False) -> Verdict:
    """`was_ready`: it ran before, so that a host that stops reporting for a moment is given time."""
    status = instance.actual_status
    states = (instance.intended_status, instance.cur_state, instance.next_state)
    if states == ("stopped", "stopped", "stopped") or instance.intended_status == "stopped":
        return _failed(instance, "it was stopped (outbid, out of credit, or by hand)")
    if status == "running":
        if wanted_disk_gb is not None and _short_of_disk(instance, wanted_disk_gb):
            return _failed(instance, f"it has {instance.disk_gb:g} GB of disk, {wanted_disk_gb:g} were asked for")
        return Verdict(Readiness.READY, "running")
    if instance.cur_state == "stopped":
        return _failed(instance, "its start was put off until the host has a free GPU")
    if status == "unknown" and was_ready:
        return Verdict(Readiness.WAIT, "its host has stopped reporting")
    if status in _FAILED_STATES:
        return _failed(instance, _FAILED_STATES[status])
    bad = bad_message(instance.status_msg)
    if bad is not None:
        cause, helps = bad
        return Verdict(Readiness.FAILED, f"{cause}: {_short(instance.status_msg)}", helps)
    doing = _WAITED_FOR.get(status, f"in the state {status!r}")
    shown = _short(instance.status_msg)
    return Verdict(Readiness.WAIT, f"{doing}: {shown}" if shown else doing)


def bad_message(status_msg: str) -> tuple[str, bool] | None:
    """The cause that a status text names, and whether another host helps; None when it names none."""
    text = status_msg.lower()
    return next(((cause, helps) for pattern, cause, helps in _COMPILED if pattern.search(text)), None)


def running_deadline_s(image_gb: float, inet_down_mbps: float, least_s: float = 300.0) -> float:
    """How long an instance may take to `running`: `least_s`, or what its image needs at a quarter of the host's speed.

    Hosts measure their own links and are optimistic; unpacking takes as long again as the transfer.
    """
    if image_gb <= 0 or inet_down_mbps <= 0:
        return least_s
    transfer_s = image_gb * 8000 / (inet_down_mbps / 4)
    return max(least_s, 60.0 + 2 * transfer_s)


def _short_of_disk(instance: Instance, wanted_gb: float) -> bool:
    return instance.disk_gb is not None and instance.disk_gb < wanted_gb * _LEAST_DISK


def _failed(instance: Instance, reason: str) -> Verdict:
    shown = _short(instance.status_msg)
    return Verdict(Readiness.FAILED, f"{reason} ({shown})" if shown else reason)


def _short(status_msg: str) -> str:
    """The text on one line; of a long one the end, where the cause stands."""
    line = " ".join(printable(status_msg).split())
    return line if len(line) <= 160 else "..." + line[-157:]
