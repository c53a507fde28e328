"""Network namespaces of this process's labs: their names, tools, and the end of what dead processes left."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

_PREFIX = "pplab"
_FOLDER = Path("/run/netns")
_TUN = Path("/dev/net/tun")
_CLONE_NEWNET = 0x40000000
_TOOL_S = 30.0
_END_S = 5.0
_numbers = count()
_libc = ctypes.CDLL(None, use_errno=True)


class NoLab(Exception):
    """Labs cannot be made here; the message says why."""


def find_tool(name: str) -> str:
    """The path of a program. Raises NoLab."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if found is None:
        raise NoLab(f"there is no {name} here; Debian has it in iproute2 (ip), nftables (nft) or openssl")
    return found


def check_usable() -> None:
    """Raises NoLab where namespaces, NAT or TUN devices cannot be had, or a program that a lab needs."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NoLab("a lab of network namespaces needs Linux and root")
    ip, nft, _ = map(find_tool, ("ip", "nft", "openssl"))
    with suppress(OSError):
        if not _TUN.exists():
            _TUN.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(_TUN, stat.S_IFCHR | 0o600, os.makedev(10, 200))
    name = new_name("probe")
    try:
        tool(ip, "netns", "add", name)
        tool(ip, "netns", "exec", name, nft, "add", "table", "ip", "probe")
        with inside(name), _TUN.open("rb+", buffering=0):
            pass
    except (ToolFailed, OSError) as error:
        raise NoLab(f"network namespaces with NAT and TUN devices cannot be had here: {error}") from None
    finally:
        remove([name])


class ToolFailed(Exception):
    """`ip` or `nft` ended with an error; the message is its own."""


def tool(*command: str, text: str = "") -> str:
    """Run to the end and give its output. Raises ToolFailed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    if done.returncode != 0:
        raise ToolFailed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def new_name(what: str) -> str:
    """A namespace's name that says which process it belongs to, so that a later one can tell that it is dead."""
    return f"{_PREFIX}-{os.getpid()}-{_started_at(os.getpid())}-{next(_numbers)}-{what}"


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread is in the namespace: sockets made here stay in it. Nothing may be awaited meanwhile."""
    with (
        (_FOLDER / namespace).open("rb") as there,
        Path(f"/proc/self/task/{threading.get_native_id()}/ns/net").open("rb") as here,
    ):
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def processes(namespaces: Sequence[str]) -> list[int]:
    """The ids of all processes that live in them."""
    inodes = set()
    for name in namespaces:
        with suppress(OSError):
            inodes.add((_FOLDER / name).stat().st_ino)
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if (entry / "ns/net").stat().st_ino in inodes:
                found.append(int(entry.name))
    return found


def remove(namespaces: Sequence[str]) -> None:
    """End every process in them, then the namespaces with their devices."""
    ends = time.monotonic() + _END_S
    while (alive := processes(namespaces)) and time.monotonic() < ends:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    ip = find_tool("ip")
    for name in namespaces:
        with suppress(ToolFailed):  # another process may sweep as well
            tool(ip, "netns", "delete", name)


def sweep() -> list[str]:
    """Remove what tests that were killed left; the names of it. Labs of living processes stay."""
    left = []
    for path in sorted(_FOLDER.glob(f"{_PREFIX}-*")):
        match = re.match(rf"{_PREFIX}-(\d+)-(\d+)-", path.name)
        if match is not None and _started_at(int(match[1])) != int(match[2]):
            left.append(path.name)
    if left:
        remove(left)
    return left


def _started_at(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])
