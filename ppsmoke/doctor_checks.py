"""What `pp-smoke-run doctor` examines inside its own process. Each check returns a Finding or raises.

What a check examines is imported inside it: the doctor must get to its verdict where such an import fails.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import importlib.metadata
import os
import platform
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsmoke import __version__
from ppsmoke.errors import EnvironmentFault, PpError, UsageError
from ppsmoke.figures import size
from ppsmoke.roles import layer_ranges
from ppsmoke.vast.api_key import key_files

if TYPE_CHECKING:
    from ppsmoke.request import Model

PINNED = {"iroh": "1.2.0", "tinygrad": "0.14.0"}
"""What is installed must be just these: the code reaches into their internals. As in pyproject.toml."""


_LIBRARIES = ("gguf", "numpy", "tokenizers")
_STAGES = 5
_CONTEXT = 2048
_ROUND_TRIPS = 5
_REACH_S = 20.0
_PASSED_OVER = frozenset(os.strerror(number).lower() for number in (errno.EACCES, errno.EPERM, errno.EROFS))
_REINSTALL = "install pp-smoke-run again, in a fresh virtual environment"


class Status(Enum):
    OK = "ok"
    WARN = "warn"  # a run can do without
    FAIL = "fail"  # a local run cannot work
    UNUSED = "-"  # not there and not needed


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and what to do where something can be done."""

    status: Status
    found: str
    remedy: str | None = None


def check_version() -> Finding:
    return Finding(Status.OK, f"pp-smoke-run {__version__}, Python {platform.python_version()}")


def check_platform() -> Finding:
    library = " ".join(platform.libc_ver()).strip()
    found = f"{platform.system()} {platform.machine()}" + (f", {library}" if library else "")
    if (platform.system(), platform.machine()) == ("Linux", "x86_64") and library.startswith("glibc"):
        return Finding(Status.OK, found)
    return Finding(Status.WARN, f"{found}: only Linux x86_64 with glibc is tested")


def check_pinned(package: str) -> Finding:
    installed = _installed(package)
    wanted = PINNED[package]
    if installed is None:
        return Finding(Status.FAIL, "not installed", f"pip install {package}=={wanted}")
    if installed != wanted:
        return Finding(Status.WARN, f"{installed} in place of {wanted}", f"pip install {package}=={wanted}")
    return Finding(Status.OK, installed)


def check_iroh() -> Finding:
    finding = check_pinned("iroh")
    if finding.status is Status.FAIL:
        return finding
    try:
        importlib.import_module("ppsmoke.iroh_fix")
    except Exception as error:
        return Finding(Status.FAIL, f"{finding.found} cannot be loaded: {in_words(error)}", _REINSTALL)
    builder = getattr(importlib.import_module("iroh.iroh_ffi"), "_UniffiRustBufferBuilder", None)
    if getattr(getattr(builder, "write", None), "__module__", None) == "ppsmoke.iroh_fix":
        return Finding(finding.status, f"{finding.found}, outgoing bytes are copied fast", finding.remedy)
    what = f"{finding.found}, outgoing bytes are copied as it does itself, perhaps slowly"
    return Finding(Status.WARN, what, finding.remedy)


def check_libraries() -> Finding:
    found, broken = [], []
    for package in _LIBRARIES:
        try:
            importlib.import_module(package)
            found.append(f"{package} {_installed(package) or ''}".strip())
        except Exception as error:
            broken.append(f"{package} cannot be loaded ({in_words(error)})")
    return Finding(Status.FAIL, "; ".join(broken), _REINSTALL) if broken else Finding(Status.OK, ", ".join(found))


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_ports() -> Finding:
    return asyncio.run(_reach_each_other())


async def _reach_each_other() -> Finding:
    from ppsmoke.transport.endpoint import Endpoint

    times = {}
    for family, prefix in (("IPv4", "127.0.0.1:"), ("IPv6", "[::1]:")):
        ends: list[Endpoint] = []
        try:
            async with asyncio.timeout(_REACH_S):
                for _ in range(2):
                    ends.append(await Endpoint.bind(secrets.token_bytes(32), loopback_only=True))
                address = next((a for a in ends[0].direct_addresses() if a.startswith(prefix)), None)
                if address is not None:
                    times[family] = await _round_trip_ms(ends[0], ends[1], address)
        except TimeoutError:
            return Finding(
                Status.FAIL,
                f"UDP over {family} on loopback: nothing arrived within {_REACH_S:g} s",
                "let processes of this machine reach each other by UDP on 127.0.0.1 and ::1 (firewall, sandbox)",
            )
        finally:
            for end in ends:
                await end.close()
    if not times:
        return Finding(Status.FAIL, "no loopback address could be bound", "give this machine a loopback interface")
    trips = ", ".join(f"{family} {ms:.1f} ms" for family, ms in times.items())
    missing = "" if len(times) == 2 else f"; no {'IPv4' if 'IPv6' in times else 'IPv6'} here, not needed"
    return Finding(Status.OK, f"UDP on loopback, there and back: {trips}{missing}")


async def _round_trip_ms(listener: Any, dialler: Any, address: str) -> float:
    """The fastest of a few round trips of one byte, over this one address of the listener."""
    from ppsmoke.iroh_fix import iroh
    from ppsmoke.transport.endpoint import parse_ticket

    async def echo() -> None:
        accepted = await (await (await listener.accept_next()).accept()).connect()
        stream = await accepted.accept_bi()
        for _ in range(_ROUND_TRIPS):
            await stream.send().write_all(await stream.recv().read_exact(1))
        await accepted.closed()

    echoing = asyncio.create_task(echo())
    try:
        target = iroh.EndpointAddr(parse_ticket(listener.ticket())[1].id(), None, [address])
        connection = await dialler.connect(target)
        stream = await connection.open_bi()
        times = []
        for _ in range(_ROUND_TRIPS):
            started = time.perf_counter()
            await stream.send().write_all(b"?")
            await stream.recv().read_exact(1)
            times.append(time.perf_counter() - started)
        connection.close(0, b"done")
        await echoing
    finally:
        echoing.cancel()
    return 1000 * min(times)


def check_cache() -> Finding:
    from ppsmoke.models import default_cache_dir, list_models

    cache = default_cache_dir()
    problem = _why_not_writable(cache / "models")
    if problem is None:
        free = shutil.disk_usage(_deepest_existing(cache)).free
        count = len(list_models(cache))
        models = {0: "no model", 1: "1 model"}.get(count, f"{count} models")
        return Finding(Status.OK, f"writable, {size(free)} free, {models} in it: {cache}")
    remedy = "point PP_SMOKE_CACHE at a folder that can be written"
    status = Status.WARN if _usable_default_model() is not None else Status.FAIL
    return Finding(status, f"cannot be written ({problem}): {cache}", remedy)


def check_model() -> Finding:
    from ppsmoke.models import ALIASES, DEFAULT_MODEL, default_cache_dir

    alias = ALIASES[DEFAULT_MODEL]
    path = _default_model()
    if path is not None:
        return Finding(Status.OK, f"{DEFAULT_MODEL} is in the cache, {size(path.stat().st_size)}")
    needed = (alias.size or 0) + (alias.wheel.wheel_nbytes if alias.wheel else 0)
    free = shutil.disk_usage(_deepest_existing(default_cache_dir())).free
    if free < needed:
        return Finding(
            Status.FAIL,
            f"{DEFAULT_MODEL} is not in the cache, and to fetch it needs {size(needed)} of disk: {size(free)} are free",
            "free some space, or point PP_SMOKE_CACHE at another disk",
        )
    return Finding(
        Status.WARN,
        f"{DEFAULT_MODEL} is not in the cache; the first run fetches it ({size(alias.size or 0)})",
        f"to fetch it now: pp-smoke-run models fetch {DEFAULT_MODEL}",
    )


def _default_model() -> Path | None:
    from ppsmoke.models import DEFAULT_MODEL, find_model, parse_model

    return find_model(parse_model(DEFAULT_MODEL))


def _usable_default_model() -> Path | None:
    """None also where it is damaged, which check_model tells."""
    with suppress(EnvironmentFault):
        return _default_model()
    return None


def check_memory() -> Finding:
    from ppsmoke.models import DEFAULT_MODEL
    from ppsmoke.preflight import available_memory
    from ppsmoke.request import open_model

    free = available_memory()
    path = _usable_default_model()
    if path is None:
        return Finding(Status.OK, f"{size(free)} free")
    model = open_model(str(path), path)
    two, many = _memory_needed(model, 2), _memory_needed(model, _STAGES)
    found = f"{size(free)} free, {DEFAULT_MODEL} in {_STAGES} stages needs {size(many)}"
    if free < two:
        return Finding(Status.FAIL, found, "free some memory, or use a lower --context")
    if free < many:
        return Finding(Status.WARN, found, f"use fewer stages: in 2 it needs {size(two)}")
    return Finding(Status.OK, found)


def _memory_needed(model: Model, stages: int) -> int:
    ranges = layer_ranges(stages, model.num_layers)
    return sum(model.stage_memory(start, end, _CONTEXT).total_bytes for start, end in ranges)


def check_logs() -> Finding:
    from ppsmoke.logs import state_dir

    path = state_dir(os.environ)
    problem = _why_not_writable(path / "runs")
    if problem is not None:
        # Where it may not be written to, a run takes the temporary folder; any other trouble ends it.
        found = f"cannot be written ({problem}): {path}"
        remedy = "set XDG_STATE_HOME, or give each run a --log-dir"
        if problem not in _PASSED_OVER:
            return Finding(Status.FAIL, found, remedy)
        return Finding(
            Status.WARN, f"{found}; run directories go to {tempfile.gettempdir()}, and --hold cannot work", remedy
        )
    return Finding(Status.OK, f"writable: {path}")


def _why_not_writable(folder: Path) -> str | None:
    """None when files can be made in `folder`, or where it would be made; leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=_deepest_existing(folder), buffering=0) as file:
            file.write(b"?")
    except OSError as error:
        if error.errno == errno.ENOTDIR:
            return f"{_deepest_existing(folder)} is not a folder"
        return (error.strerror or str(error)).lower()
    return None


def _deepest_existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))


def options_finding(env: Mapping[str, str]) -> Finding:
    """Which options are set beside the command line; their places, not their values."""
    try:
        places = [setting.origin for layer in _settings_elsewhere(env) for setting in layer.values()]
    except UsageError as error:
        return Finding(Status.FAIL, error.what, error.remedy)
    return Finding(Status.OK, "; ".join(places) or "none is set in the environment or a config file")


def relay_finding(env: Mapping[str, str]) -> Finding:
    """Whether relays that are set beside the command line, and that --seed would therefore use, serve."""
    try:
        layers = _settings_elsewhere(env)
    except UsageError:
        layers = []  # options_finding tells
    relays, token = (next((x[name] for x in layers if name in x), None) for name in ("relay_url", "relay_token"))
    if relays is None:
        return Finding(Status.OK, "not used by --seed")
    check = importlib.import_module("ppsmoke.relays.check")
    try:
        urls = [check.check_relay_url(url) for url in relays.value]
        secret = check.check_relay_token(token.value if token is not None else "")
        answers = asyncio.run(
            check.usable_relays(
                urls, token=secret, otherwise="--seed cannot work", without="--seed does without a relay"
            )
        )
    except PpError as error:
        return Finding(Status.FAIL, f"{relays.origin}: {error.what}", error.remedy)
    return Finding(Status.OK, f"{relays.origin}: " + "; ".join(answer.describe() for answer in answers))


def _settings_elsewhere(env: Mapping[str, str]) -> list[Any]:
    """Raises UsageError."""
    typer, cli = importlib.import_module("typer"), importlib.import_module("ppsmoke.cli")
    group = typer.main.get_command(cli.app)
    settings: list[Any] = group.settings_elsewhere(typer.Context(group), env)
    return settings


def vast_key_finding(env: Mapping[str, str]) -> Finding:
    """Whether a key is there, and where; never the key."""
    home = Path(env.get("HOME") or Path.home())
    use = "only --vastai needs one"
    if env.get("VAST_API_KEY"):
        return Finding(Status.OK, f"key in VAST_API_KEY; {use}")
    for path in key_files(env, home):
        with suppress(OSError):
            if path.stat().st_size > 0:
                return Finding(Status.OK, f"key in {path}; {use}")
    return Finding(Status.UNUSED, f"no key; {use}")


def in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
