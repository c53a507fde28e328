"""Held runs of this user on this machine: how another process finds one, sends it new code, and hears what came of it.

A held run puts a record of itself into a folder. A request is a wheel and a file beside it; the run takes it, and
answers with lines in a third file. Files, because they need no port, and their folder is the user's alone. A record
says which process wrote it, so that what a killed one left is known for that.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ppsmoke.durable import replace_text, sync_folder
from ppsmoke.errors import EnvironmentFault
from ppsmoke.logs import state_dir
from ppsmoke.process_mark import Life, ProcessMark, life

_RECORD = ".held.json"
_REQUEST = ".request.json"
_WHEEL = ".whl"
_ANSWER = ".answer.jsonl"
_KEPT_S = 86400.0
_ORPHANED_S = 60.0
"""The asker of a run that has ended notices within a second."""


def held_dir(environ: Mapping[str, str]) -> Path:
    """Where this user's held runs can be found."""
    return state_dir(environ) / "held"


@dataclass(frozen=True, slots=True)
class HeldRun:
    """`version`, `protocol`: of its orchestrator, which its nodes must share. `process`: who holds it."""

    run_id: str
    version: str
    protocol: int
    model_id: str
    num_stages: int
    remote: bool
    process: ProcessMark


@dataclass(frozen=True, slots=True)
class CodeRequest:
    """A wheel for the nodes of a run. `source`: what it was made of, in words."""

    run_id: str
    nonce: str
    sha256: str
    version: str
    protocol: int
    source: str


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """`done`: the last one. `error`: why it failed, as in a run's JSON."""

    text: str
    done: bool = False
    error: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None


class Mailbox:
    """The held run's side. Made when it begins to hold, closed at its end."""

    def __init__(self, folder: Path, run: HeldRun) -> None:
        """Raises EnvironmentFault."""
        self._folder = folder
        self._run_id = run.run_id
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _sweep(folder)
            replace_text(folder / f"{run.run_id}{_RECORD}", json.dumps(asdict(run)))
            sync_folder(folder)
        except OSError as error:
            raise _failure(folder, error) from error

    def take(self) -> CodeRequest | None:
        """The next request, which nobody else can take any more; None without one. Never raises."""
        with suppress(OSError):
            for path in sorted(self._folder.glob(f"{self._run_id}.*{_REQUEST}")):
                told = _object(path)
                path.unlink()
                with suppress(TypeError):
                    return CodeRequest(**told)
        return None

    def wheel(self, request: CodeRequest) -> Path:
        return _beside(self._folder, request, _WHEEL)

    def answer(self, request: CodeRequest, line: AnswerLine) -> None:
        """Never raises: that the asker cannot be told must not end the run."""
        if not self.wheel(request).exists():  # the asker has gone, and would leave this file to nobody
            return
        with suppress(OSError), _beside(self._folder, request, _ANSWER).open("a") as file:
            file.write(f"{json.dumps(asdict(line))}\n")

    def close(self) -> None:
        """Nobody can find the run any more. Never raises."""
        with suppress(OSError):
            (self._folder / f"{self._run_id}{_RECORD}").unlink(missing_ok=True)


class Correspondence:
    """The asker's side of one request."""

    def __init__(self, folder: Path, request: CodeRequest) -> None:
        self._folder = folder
        self._request = request
        self._read = 0

    @classmethod
    def begin(cls, folder: Path, request: CodeRequest, wheel: Path) -> Self:
        """Put the request where the run finds it. Raises EnvironmentFault."""
        try:
            copy = _beside(folder, request, _WHEEL)
            copy.write_bytes(wheel.read_bytes())
            replace_text(_beside(folder, request, _REQUEST), json.dumps(asdict(request)))
            sync_folder(folder)
        except OSError as error:
            raise _failure(folder, error) from error
        return cls(folder, request)

    @property
    def taken(self) -> bool:
        return not _beside(self._folder, self._request, _REQUEST).exists()

    def lines(self) -> list[AnswerLine]:
        """What was answered since the last call."""
        try:
            text = _beside(self._folder, self._request, _ANSWER).read_text()
        except OSError:
            return []
        whole = text[: text.rfind("\n") + 1].splitlines()
        fresh, self._read = whole[self._read :], len(whole)
        return [AnswerLine(**json.loads(line)) for line in fresh]

    def close(self) -> None:
        """Take back what was not taken, and leave nothing. Never raises."""
        for suffix in (_REQUEST, _WHEEL, _ANSWER):
            with suppress(OSError):
                _beside(self._folder, self._request, suffix).unlink(missing_ok=True)


def read_held(folder: Path) -> list[HeldRun]:
    """Every run that says it is held, also one whose process was killed; those that cannot be read are left out."""
    found = []
    with suppress(OSError):
        for path in sorted(folder.glob(f"*{_RECORD}")):
            told = _object(path)
            with suppress(TypeError):
                found.append(HeldRun(**{**told, "process": ProcessMark(**told.get("process", {}))}))
    return found


def forget_dead(folder: Path) -> None:
    """Remove what runs left whose processes are no more. Never raises."""
    for run in read_held(folder):
        if life(run.process) is Life.DEAD:
            forget(folder, run)


def forget(folder: Path, run: HeldRun) -> None:
    """Remove what a run left whose process is no more. Never raises."""
    with suppress(OSError):
        for path in folder.glob(f"{run.run_id}.*"):
            path.unlink(missing_ok=True)


def new_request(run: HeldRun, *, sha256: str, version: str, protocol: int, source: str) -> CodeRequest:
    return CodeRequest(run.run_id, secrets.token_hex(8), sha256, version, protocol, source)


def refusal(request: CodeRequest, *, version: str, protocol: int) -> str | None:
    """Why this code cannot serve nodes of an orchestrator of that version; None where it may. Pure."""
    if request.version != version:
        return f"the new code is version {request.version}, and the held run is {version}"
    if request.protocol != protocol:
        return (
            f"the new code speaks version {request.protocol} of the protocol between members, and the held run "
            f"speaks {protocol}"
        )
    return None


def _sweep(folder: Path) -> None:
    """What askers left that were killed."""
    for path in folder.iterdir():
        if not path.name.endswith((_REQUEST, _WHEEL, _ANSWER)):
            continue
        run_is_held = (folder / f"{path.name.partition('.')[0]}{_RECORD}").exists()
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > (_KEPT_S if run_is_held else _ORPHANED_S):
                path.unlink()


def _beside(folder: Path, request: CodeRequest, suffix: str) -> Path:
    return folder / f"{request.run_id}.{request.nonce}{suffix}"


def _object(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _failure(folder: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"the folder of held runs {folder} cannot be used: {error.strerror or os.strerror(error.errno or 0)}",
        remedy="Free space or mend its permissions (XDG_STATE_HOME chooses its place).",
    )
