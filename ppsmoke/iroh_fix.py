"""The one place that imports iroh: quiet errors, and outgoing bytes copied at memory speed.

The Python glue of iroh 1.2.0 stores every outgoing `bytes` argument one byte at a time in a Python loop (about
100 ns a byte: 10 MB/s, holding the GIL). `apply` replaces that by one memmove, and only while the generated code still
has the loop: a fixed release is left alone. With RUST_BACKTRACE set, some errors cost 50 ms each and carry
a page of stack; so it is switched off before the library loads.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from functools import partial
from typing import Any

os.environ["RUST_BACKTRACE"] = "0"

iroh: Any = importlib.import_module("iroh")
_glue: Any = importlib.import_module("iroh.iroh_ffi")

IROH_ERRORS: tuple[type[Exception], ...] = (iroh.IrohError, _glue.InternalError)
"""What a call into iroh raises: a named failure, or a panic inside the library."""

__all__ = ["IROH_ERRORS", "apply", "iroh", "iroh_text"]


def apply(glue: Any = _glue) -> bool:
    """Install the fast copy into the generated module `glue`; False when its writer no longer loops byte by byte."""
    builder = getattr(glue, "_UniffiRustBufferBuilder", None)
    if builder is None or not _copies_byte_by_byte(getattr(builder, "write", None)):
        return False
    builder.write = _write_by_memmove
    converter = getattr(glue, "_UniffiFfiConverterBytes", None)
    buffers = getattr(glue, "_UniffiRustBuffer", None)
    if converter is not None and hasattr(buffers, "alloc"):
        converter.lower = staticmethod(partial(_lower_by_memmove, buffers))
    return True


def iroh_text(error: BaseException) -> str:
    """One line for an error of iroh, whose `str()` is empty."""
    if isinstance(error, iroh.IrohError):
        lines = [line.strip() for line in str(error.message()).splitlines() if line.strip()]
        return f"{error.kind().name.lower()}: {'; '.join(lines[:3])}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _copies_byte_by_byte(write: Any) -> bool:
    # Its compiled names, not its source: reading half a megabyte of generated code costs every node time and memory.
    code = getattr(write, "__code__", None)
    return code is not None and enumerate.__name__ in code.co_names


def _write_by_memmove(self: Any, value: Any) -> None:
    data = value if isinstance(value, bytes) else bytes(value)
    with self._reserve(len(data)):
        start = ctypes.cast(self.rbuf.data, ctypes.c_void_p).value or 0
        ctypes.memmove(start + self.rbuf.len, data, len(data))


def _lower_by_memmove(buffers: Any, value: Any) -> Any:
    """A bytes argument as the library's buffer (i32 big-endian length, then the data), allocated once, full size."""
    data = value if isinstance(value, bytes) else bytes(value)
    buffer = buffers.alloc(len(data) + 4)
    start = ctypes.cast(buffer.data, ctypes.c_void_p).value or 0
    ctypes.memmove(start, len(data).to_bytes(4, "big"), 4)
    ctypes.memmove(start + 4, data, len(data))
    buffer.len = len(data) + 4
    return buffer


apply()
