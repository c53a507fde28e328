"""Makes tinygrad's CPU backend use the compiler that was found, and its flags."""

from __future__ import annotations

from typing import Any

from tinygrad.runtime.support.compiler_cpu import ClangCompiler

from ppsmoke_worker.compiler import CpuCompiler, compile_object
from ppsmoke_worker.helper_programs import keep_helper_programs
from ppsmoke_worker.making import kept_or_made


def use_compiler(compiler: CpuCompiler, flags: tuple[str, ...]) -> None:
    """Call it before the first kernel. tinygrad itself would start `clang` from the PATH, with its own flags only.

    Its kernel cache does not know of flags or compilers; the cache file is named after them instead.
    """

    def compile_source(self: Any, source: str) -> bytes:
        def compile_now() -> bytes:
            return compile_object(compiler, self.arch, (*self.args, *flags), source)

        return compile_now() if self.cachekey is None else bytes(kept_or_made(self.cachekey, source, compile_now))

    ClangCompiler.compile = compile_source
    keep_helper_programs()
