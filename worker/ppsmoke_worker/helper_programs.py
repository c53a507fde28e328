"""tinygrad's CPU device, opened sooner.

Whenever it opens it makes four small programs of its own (a signal, a wait, a clock, a queue) through its whole code
generator, and only their machine code comes from its cache: 0.2 s, a third of a worker's start. Here the finished
programs come from the same cache file, whose name already stands for the compiler and the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tinygrad.runtime import ops_cpu

from ppsmoke_worker.making import kept_or_made

_TABLE = "pp_helper_programs"
_MAKE = ops_cpu.do_to_program


@dataclass(frozen=True, slots=True)
class _Finished:
    elf: Any

    def to_elf(self) -> Any:
        return self.elf


def keep_helper_programs() -> None:
    """Call it before the device is opened. With an empty or an unusable cache the programs are made as ever."""
    tinygrad_version = version("tinygrad")

    def made_or_kept(sink: Any, renderer: Any) -> Any:
        key = f"{tinygrad_version} {sink.arg.name} {renderer.target}"
        return _Finished(kept_or_made(_TABLE, key, lambda: _MAKE(sink, renderer).to_elf()))

    ops_cpu.do_to_program = made_or_kept
