"""llama.cpp itself beside the engine and beside a chain of two workers.

It runs in a process of its own, under the Python that PP_REFERENCE_PYTHON names or under this one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from fixtures import llama_cpp_reference
from fixtures.f32_copy import write_f32_copy
from fixtures.tiny_gguf import TOKENS, write_tiny_gguf
from tests.equivalence.cases import Case, varied_prompts
from tests.equivalence.chain import WorkerPool
from tests.equivalence.one_process import OneProcess

PYTHON = os.environ.get("PP_REFERENCE_PYTHON") or (sys.executable if importlib.util.find_spec("llama_cpp") else None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None,
        reason="needs llama.cpp: pip install '.[reference]' (minutes, a C++ compiler), as make test-slow does, or let "
        "PP_REFERENCE_PYTHON name a Python that has llama-cpp-python",
    ),
]

SURE_GAP = 0.5
EXACT = 5e-4  # where llama.cpp rounds nothing
COUNT = 48
DEADLINE_S = 600.0
RECORDED = Path(llama_cpp_reference.__file__).parent / "reference" / "smollm2_prefill_logits.npz"
TINY_PROMPTS = list(varied_prompts(len(TOKENS)).values())


# Logits of some 20 to 30 at the top. On the file as it is llama.cpp rounds activations to 8 bits, which leaves its
# logits up to 0.9 from ours; on a copy with the same weights as f32 nothing is rounded, and they are some 2e-5 apart.
@pytest.mark.real_model
@pytest.mark.parametrize(("copied", "tolerance"), [(False, 1.4), (True, EXACT)], ids=["as it is", "f32 copy"])
def test_the_default_model(
    copied: bool,
    tolerance: float,
    default_model: str,
    one_process: OneProcess,
    workers: WorkerPool,
    tmp_path: Path,
) -> None:
    with np.load(RECORDED) as recorded:
        prompts = [tuple(recorded[name].tolist()) for name in recorded if name.startswith("prompt_")]
    shown = write_f32_copy(Path(default_model), tmp_path / "f32.gguf") if copied else Path(default_model)
    theirs = _ask_llama_cpp(shown, prompts, tmp_path)
    if copied:
        shown.unlink()  # 540 MB, which pytest would keep
    _compare(default_model, prompts, theirs, one_process, workers, tolerance)


# Measured: 4e-5 with f32 weights, 0.43 with quantised ones.
@pytest.mark.parametrize(
    ("recipe", "kind", "tolerance"),
    [
        ({"architecture": "llama", "rope_freqs": True}, "F32", EXACT),
        ({"architecture": "qwen2"}, "F32", EXACT),
        ({"architecture": "qwen2", "tied": True}, "F32", EXACT),
        ({"architecture": "qwen3"}, "F32", EXACT),
        ({"architecture": "llama", "rope_freqs": True}, "Q8_0", 0.8),
        ({"architecture": "qwen3"}, "Q4_K", 0.8),
    ],
    ids=["llama with rope_freqs", "qwen2", "qwen2 tied", "qwen3", "llama quantised", "qwen3 quantised"],
)
def test_tiny_models(
    recipe: dict[str, Any], kind: str, tolerance: float, one_process: OneProcess, workers: WorkerPool, tmp_path: Path
) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType[kind], blocks=3, **recipe)
    theirs = _ask_llama_cpp(path, TINY_PROMPTS, tmp_path)
    _compare(str(path), TINY_PROMPTS, theirs, one_process, workers, tolerance)


def _compare(
    model: str,
    prompts: list[tuple[int, ...]],
    theirs: Mapping[str, NDArray[Any]],
    one_process: OneProcess,
    workers: WorkerPool,
    tolerance: float,
) -> None:
    """Logits after each prompt, and the tokens of two stages along llama.cpp's own continuation of it."""
    continuations = [tuple(theirs[f"greedy_{index}"].tolist()) for index in range(len(prompts))]
    cases = [
        Case(prompt, (), count=COUNT, continuation=then) for prompt, then in zip(prompts, continuations, strict=True)
    ]
    chosen = workers.run_chain(model, 2, cases)
    compared = 0
    for index, logits in enumerate(one_process.logits(model, prompts)):
        assert np.abs(logits - theirs[f"logits_{index}"]).max() < tolerance
        sure = theirs[f"gap_{index}"] > min(SURE_GAP, 2 * tolerance)
        assert np.array(chosen[index].tokens)[sure].tolist() == theirs[f"greedy_{index}"][sure].tolist()
        compared += int(sure.sum())
    assert compared > len(prompts) * COUNT // 2, "llama.cpp is hardly ever sure: this compares nothing"


def _ask_llama_cpp(model: Path, prompts: list[tuple[int, ...]], folder: Path) -> dict[str, NDArray[Any]]:
    assert PYTHON is not None
    out = folder / "llama_cpp.npz"
    done = subprocess.run(
        [PYTHON, llama_cpp_reference.__file__, str(model), str(out)],
        input=json.dumps({"prompts": prompts, "count": COUNT}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(out) as answer:
        return dict(answer)
