"""The place of a run's directory: made empty, held while the run lives, and old ones taken away."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ppsmoke.errors import EnvironmentFault, PpError, UsageError
from ppsmoke.logs import state_dir
from ppsmoke.run_ids import is_run_id, only_run

KEPT_RUNS = 20
KEPT_S = 24 * 3600.0
_TEMPORARY = "pp-smoke-run-"
_NO_PLACE = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))  # a container's home that is not to be written to


class RunFolder:
    """A directory that no other run takes and none takes away, until it is closed or this process ends."""

    def __init__(self, path: Path, *, otherwise: str = "") -> None:
        """`otherwise`: why it is not in the usual place. Raises OSError. `alone` is False where another process holds
        it."""
        self.path = path
        self.otherwise = otherwise
        self._held = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        self.alone = True
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.alone = False
        except OSError:  # not every file system has locks: then age alone protects it
            pass

    def close(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def check_chosen(chosen: Path) -> None:
    """Raises UsageError for a directory that has something in it, EnvironmentFault for what can be none."""
    try:
        taken = any(chosen.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(chosen, error) from error
    if taken:
        raise UsageError(
            f"the run directory {chosen} is not empty, and what is in it could be taken for this run's",
            remedy="Give a new or an empty one with --log-dir.",
        )


def open_folder(run_id: str, chosen: Path | None, environ: Mapping[str, str]) -> RunFolder:
    """Make the run's directory: `chosen`, else one in the usual place, where the newest and the young ones are kept.

    Where that place may not be written to it is one among the temporary files, where the same are kept.

    Raises UsageError, EnvironmentFault.
    """
    if chosen is not None:
        check_chosen(chosen)
    runs = state_dir(environ) / "runs"
    path = chosen if chosen is not None else runs / run_id
    try:
        folder = _made(path)
    except OSError as error:
        if chosen is not None or error.errno not in _NO_PLACE:
            raise _unusable(path, error) from error
        return _temporary_folder(run_id, otherwise=_unusable(path, error))
    if chosen is None:
        prune(_runs_in(runs), time.time())
    else:
        _check_alone(folder)
    return folder


def _check_alone(folder: RunFolder) -> None:
    """Another run may have been told the same directory at the same time. Raises as check_chosen does."""
    try:
        if not folder.alone:
            raise UsageError(
                f"the run directory {folder.path} is that of another run, which goes on",
                remedy="Give each its own with --log-dir.",
            )
        check_chosen(folder.path)
    except PpError:
        folder.close()
        raise


def run_folders(environ: Mapping[str, str]) -> list[Path]:
    """The directories that runs of this user left without being told where, in no order."""
    return [*_runs_in(state_dir(environ) / "runs"), *_temporary_runs()]


def folder_of_run(given: str, environ: Mapping[str, str]) -> Path:
    """The directory of the run whose id begins with these digits. Raises UsageError where it is not one."""
    folders = {path.name.removeprefix(_TEMPORARY): path for path in run_folders(environ)}
    found = only_run(given, folders)
    if found is None:
        raise UsageError(
            f"no run whose id begins with {given} has left a directory in {state_dir(environ) / 'runs'}",
            remedy="Give the directory: what --log-dir said, or the run printed.",
        )
    return folders[found]


def _made(path: Path, *, otherwise: str = "") -> RunFolder:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    return RunFolder(path, otherwise=otherwise)


def _temporary_folder(run_id: str, *, otherwise: EnvironmentFault) -> RunFolder:
    try:
        folder = _made(Path(tempfile.gettempdir()) / f"{_TEMPORARY}{run_id}", otherwise=otherwise.what)
    except OSError:
        raise otherwise from None
    prune(_temporary_runs(), time.time())
    return folder


def _runs_in(folder: Path, prefix: str = "") -> list[Path]:
    """What is named like a run there; nothing where the folder cannot be read."""
    try:
        found = [path for path in folder.iterdir() if _is_whole_run_id(path.name.removeprefix(prefix))]
        return [path for path in found if path.name.startswith(prefix) and path.is_dir()]
    except OSError:
        return []


def _temporary_runs() -> list[Path]:
    """Others may have put something of such a name there."""
    return [path for path in _runs_in(Path(tempfile.gettempdir()), _TEMPORARY) if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.stat().st_uid == os.getuid()
    except OSError:
        return False


def prune(runs: Sequence[Path], now: float) -> None:
    """Take away what is neither one of the newest, nor a day young, nor the directory of a run that lives."""
    kept = sorted(runs, key=_made_at)
    for old in kept[:-KEPT_RUNS]:
        if now - _made_at(old) > KEPT_S and not is_held(old):
            shutil.rmtree(old, ignore_errors=True)


def is_held(path: Path) -> bool:
    """Whether the run of this directory lives."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(opened)
    return False


def _unusable(path: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"the run directory {path} cannot be made: {error.strerror}", remedy="Choose another with --log-dir."
    )


def _made_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another run is pruning too
        return 0.0


def _is_whole_run_id(name: str) -> bool:
    return len(name) == 32 and is_run_id(name)
