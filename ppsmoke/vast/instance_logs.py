"""The logs of rented machines, read and kept before the machines are destroyed: afterwards there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ppsmoke.errors import PpError
from ppsmoke.redaction import Redactor
from ppsmoke.vast.records import Instance


class LogReading(Protocol):
    """The one call that is needed here."""

    async def instance_logs(self, instance_id: int, *, daemon: bool = False) -> str: ...


@dataclass(frozen=True, slots=True)
class InstanceLogs:
    """Of one instance. A text that could not be had is None, and `missing` says why."""

    instance: Instance
    container: str | None
    daemon: str | None
    missing: tuple[str, ...]


async def read_logs(api: LogReading, instances: Iterable[Instance], *, deadline_s: float) -> list[InstanceLogs]:
    """The logs of all instances, as far as they can be had within `deadline_s`. Never raises an error of vast.ai.

    They may hold secrets: programs print their environment.
    """
    asked = [(instance, kind) for instance in instances for kind in ("container", "daemon")]
    tasks = [asyncio.create_task(_read(api, instance.id, kind == "daemon")) for instance, kind in asked]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=deadline_s)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    found: list[InstanceLogs] = []
    for (instance, _), container, daemon in zip(asked[::2], results[::2], results[1::2], strict=True):
        texts = {"container": container, "daemon": daemon}
        kept = {kind: straightened(text) for kind, text in texts.items() if isinstance(text, str)}
        missing = tuple(
            f"{kind}: {_why(error, deadline_s)}" for kind, error in texts.items() if isinstance(error, BaseException)
        )
        found.append(InstanceLogs(instance, kept.get("container"), kept.get("daemon"), missing))
    return found


def write_logs(logs: Iterable[InstanceLogs], directory: Path, redactor: Redactor) -> Mapping[int, Path]:
    """One file each, `instance-<id>.log`, with what is known of why it ended and without secrets.

    Raises OSError when it cannot be kept.
    """
    written: dict[int, Path] = {}
    for log in logs:
        path = directory / f"instance-{log.instance.id}.log"
        path.write_text(redactor.clean(as_text(log)), errors="backslashreplace")
        written[log.instance.id] = path
    return written


def as_text(log: InstanceLogs) -> str:
    """The file's text: first the states that vast.ai showed last, then both logs."""
    instance = log.instance
    lines = [
        f"instance {instance.id}  label {instance.label}  machine {instance.machine_id}  host {instance.host_id}",
        f"actual {instance.actual_status}  intended {instance.intended_status}  current {instance.cur_state}  "
        f"next {instance.next_state}",
        f"status message: {instance.status_msg or '-'}",
        *(f"missing: {reason}" for reason in log.missing),
    ]
    for kind, text in (("container", log.container), ("daemon", log.daemon)):
        if text is not None:
            lines += ["", f"--- {kind} ---", text.rstrip("\n") or "(empty)"]
    return "\n".join(lines) + "\n"


def straightened(text: str) -> str:
    """With one kind of line end, and a progress bar's many states of one line reduced to the last."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


async def _read(api: LogReading, instance_id: int, daemon: bool) -> str:
    return await api.instance_logs(instance_id, daemon=daemon)


def _why(error: BaseException, deadline_s: float) -> str:
    if isinstance(error, PpError):
        return error.what
    if isinstance(error, asyncio.CancelledError):
        return f"not there after {deadline_s:g} s"
    raise error
