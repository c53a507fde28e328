"""The structures of kernels_c/stage.c and formats.h, field by field."""

from __future__ import annotations

import ctypes
from typing import ClassVar

_Word = ctypes.c_int64  # numbers and addresses alike

MEASURE, STOP = -1, -2  # of Job.thread


class Matrix(ctypes.Structure):
    _fields_: ClassVar = [(name, _Word) for name in ("records", "format", "tiles", "groups")]


class Block(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, _Word) for name in ("attention_norm", "ffn_norm", "query_bias", "key_bias", "value_bias")),
        *((name, _Word) for name in ("query_norm", "key_norm")),
        *((name, Matrix) for name in ("query", "key", "value", "output", "gate", "up", "down")),
    ]


class Stage(ctypes.Structure):
    """`shared_floats`, `own_floats` and `cache_bytes` are answers; what follows `futex_number` is the kernel's own."""

    _fields_: ClassVar = [
        ("blocks", _Word),
        ("block", _Word),
        ("output_norm", _Word),
        ("head", Matrix),
        *((name, _Word) for name in ("rope", "context", "shared", "own")),
        *((name, _Word) for name in ("shared_floats", "own_floats", "cache_bytes")),
        ("padding", _Word * 2),
        *((name, _Word) for name in ("syscall", "futex_number")),
        ("kernels_own", _Word * 60),
    ]


class Job(ctypes.Structure):
    _fields_: ClassVar = [
        (name, _Word) for name in ("thread", "threads", "position", "tokens", "rows", "result", "cache", "logits")
    ]
