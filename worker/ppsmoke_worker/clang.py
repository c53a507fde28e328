"""Makes tinygrad's CPU backend use the compiler that was found, and its flags."""

from __future__ import annotations

from typing import Any

from tinygrad.runtime.support.compiler_cpu import ClangCompiler

from ppsmoke_worker.compiler import CpuCompiler, compile_object
from ppsmoke_worker.helper_programs import keep_helper_programs


def use_compiler(compiler: CpuCompiler, flags: tuple[str, ...]) -> None:
    """Call it before the first kernel. tinygrad itself would start `clang` from the PATH, with its own flags only.

    Its kernel cache does not know of flags or compilers; the cache file is named after them instead.
    """

    def compile_source(self: Any, source: str) -> bytes:
        return compile_object(compiler, self.arch, (*self.args, *flags), source)

    ClangCompiler.compile = compile_source
    keep_helper_programs()
