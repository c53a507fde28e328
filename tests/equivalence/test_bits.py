"""Rows and logits are the same bits for any number of threads, any cut of a prompt, and on AVX2 and NEON too."""

from __future__ import annotations

import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from fixtures.tiny_gguf import write_tiny_gguf

DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All kinds of arithmetic: 4 and 8 bits with and without minimums and halves, floats; biases, norms of heads."""
    folder = tmp_path_factory.mktemp("models")
    mixed = {
        "attn_v.weight": Kind.Q6_K,
        "ffn_down.weight": Kind.Q8_0,
        "attn_k.weight": Kind.F16,
        "ffn_up.weight": Kind.F32,
    }
    return [
        write_tiny_gguf(folder / "a.gguf", architecture="qwen3", tensor_type=Kind.Q4_K, blocks=3, types=mixed),
        write_tiny_gguf(folder / "b.gguf", architecture="qwen2", tensor_type=Kind.Q4_1, blocks=3),
    ]


def bits(model: Path, threads: str, *flags: str) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.equivalence.kernel_bits", str(model), threads, *flags],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def here(models: list[Path]) -> list[dict[str, dict[str, str]]]:
    return [bits(model, "1,2,3,7") for model in models]


def test_threads_and_cuts_change_no_bit(here: list[dict[str, dict[str, str]]]) -> None:
    for found in here:
        assert len(found) == 4
        assert len({digest for by_cut in found.values() for digest in by_cut.values()}) == 1
    assert here[0] != here[1]


@pytest.mark.skipif(
    platform.machine() != "x86_64" or " fma " not in Path("/proc/cpuinfo").read_text(), reason="needs AVX2 and FMA"
)
def test_avx2_computes_the_same_bits(models: list[Path], here: list[dict[str, dict[str, str]]]) -> None:
    for model, found in zip(models, here, strict=True):
        assert bits(model, "1", "-mavx2", "-mfma", "-mno-avx512f")["1"] == found["1"]


QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
HAS_ZIG = importlib.util.find_spec("ziglang") is not None


@pytest.mark.slow
@pytest.mark.skipif(QEMU is None or not HAS_ZIG, reason="needs ziglang and qemu-aarch64 (Debian: qemu-user-static)")
def test_neon_computes_the_same_bits(models: list[Path], tmp_path: Path) -> None:
    assert QEMU is not None
    flags = ("-c", "-O2", "-ffreestanding", "-fno-math-errno", "-ffp-contract=on", "--target=aarch64-none-unknown-elf")
    zig = (sys.executable, "-m", "ziglang")
    source, made, program = (str(tmp_path / name) for name in ("stage.c", "stage.o", "stage"))
    for model in models:
        _run(sys.executable, "-m", "tests.equivalence.memory_picture", str(model), str(tmp_path))
        _run(*zig, "clang", *flags, source, "-o", made)
        _run(*zig, "ld.lld", "-static", made, "-o", program)
        with (tmp_path / "picture").open("rb") as picture:
            computed = _run(QEMU, program, stdin=picture)
        assert computed == (tmp_path / "expected").read_bytes()


def _run(*command: str, **options: Any) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False, **options)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout
