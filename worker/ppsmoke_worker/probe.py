"""`python -m ppsmoke_worker.probe [--device D]`: do the compiler and the device work? One JSON object on stdout.

    {"device": "CPU", "compiler": {"command": "...", "version": "..."}, "kernel_s": 0.4, "error": null}

`compiler` is null where none is needed or none was found; `error` has code, message and remedy. The exit status is 0,
or that of the error's class.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ppsmoke.errors import CompilerUnavailable, DeviceUnavailable, PpError
from ppsmoke_worker.channel import die_with
from ppsmoke_worker.device import DeviceSettings, no_such_device, prepare_device

_VERSION_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ppsmoke_worker.probe", description=__doc__)
    parser.add_argument("--device", help="tinygrad device such as CPU or CUDA (default: the first that works)")
    options = parser.parse_args(arguments)
    if parent := os.environ.get("PP_WORKER_PARENT"):
        die_with(int(parent))
    # Whatever a library or a driver prints belongs on stderr.
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    report: dict[str, Any] = {"device": None, "compiler": None, "kernel_s": None, "error": None}
    status = 0
    try:
        _probe(options.device, report)
    except PpError as error:
        status = error.exit_status
        report["error"] = {"code": error.code, "message": error.what, "remedy": error.remedy}
    with os.fdopen(answer_fd, "w") as answer:
        answer.write(json.dumps(report) + "\n")
    return status


def _probe(wanted: str | None, report: dict[str, Any]) -> None:
    """Fill `report` as far as things work; raises CompilerUnavailable, DeviceUnavailable."""
    settings = prepare_device(wanted, os.environ)
    report["device"] = settings.name
    if settings.compiler is not None:
        report["compiler"] = {
            "command": " ".join(settings.compiler.command),
            "version": _version(settings.compiler.command, settings.compiler.env),
        }
    # A kernel out of the cache would prove nothing about the compiler.
    os.environ["CACHELEVEL"] = "0"
    started = time.monotonic()
    _run_kernel(settings)
    report["kernel_s"] = round(time.monotonic() - started, 3)


def _run_kernel(settings: DeviceSettings) -> None:
    try:
        # tinygrad reads its settings from the environment while it is imported.
        importlib.import_module("tinygrad")
    except ImportError as error:
        raise DeviceUnavailable(
            f"tinygrad cannot be imported: {error}", remedy="pip install tinygrad==0.14.0"
        ) from error
    except Exception as error:  # it reads many variables with everyday names, and wants numbers in them
        raise DeviceUnavailable(
            f"tinygrad cannot be imported ({type(error).__name__}: {error})",
            remedy="look for a variable of the environment that it reads as a number, as NO_COLOR or TRAINING",
        ) from error
    try:
        if settings.compiler is not None:
            from ppsmoke_worker.clang import use_compiler

            use_compiler(settings.compiler, ())
        from tinygrad import Tensor

        total = (Tensor([1.0, 2.0]).realize() + 1).sum().item()
    except PpError:
        raise
    except ModuleNotFoundError as error:
        raise no_such_device(settings.name) from error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if settings.compiler is not None:
            raise CompilerUnavailable(
                f"{' '.join(settings.compiler.command)} builds no kernel that runs here ({problem})",
                remedy="pip install ziglang, or name another clang by CC=/path/to/clang",
            ) from error
        raise DeviceUnavailable(
            f"{settings.name} runs no kernel ({problem})", remedy="use another device, as the CPU: --device CPU"
        ) from error
    if total != 5.0:
        raise DeviceUnavailable(
            f"{settings.name} computes wrong sums: {total} in place of 5.0",
            remedy="use another device, as the CPU: --device CPU",
        )


def _version(command: tuple[str, ...], env: Mapping[str, str]) -> str:
    """The version a clang says it has, without the name of whoever built it; empty when it does not say."""
    try:
        done = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    first = (done.stdout.decode(errors="replace").splitlines() or [""])[0]
    name, _, rest = first.partition(" version ")
    return f"{name} {rest.split()[0]}" if rest else first[:60]


if __name__ == "__main__":
    sys.exit(main())
