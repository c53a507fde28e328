"""A stage takes memory for its own range only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
from gguf import GGMLQuantizationType

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import read_model_facts, stage_tensors
from ppsmoke.models import ensure_model, parse_model
from ppsmoke.roles import layer_range
from ppsmoke.stage_memory import (
    CONTEXT_STEP,
    ENGINES,
    KERNEL_SPAN,
    kernel_context,
    padded_context,
    stage_memory,
)
from ppsmoke.worker_protocol import Form, Op, Step
from tests.worker.harness import PipedWorker


@pytest.mark.parametrize("num_stages", [2, 4])
def test_a_worker_reads_exactly_the_tensors_of_its_stage(num_stages: int, tiny_model: Path) -> None:
    with open_gguf(tiny_model) as gguf:
        facts = read_model_facts(gguf)
        for stage in range(num_stages):
            start, end = layer_range(stage, num_stages, facts.num_layers)
            names = set(stage_tensors(facts, start, end))
            if stage < num_stages - 1:
                names.discard("token_embd.weight")  # only rows of it, when they are looked up
            expected = sum(gguf.tensors[name].nbytes for name in names)
            arguments = ("--model", str(tiny_model), "--stage", str(stage), "--num-stages", str(num_stages))
            with PipedWorker((*arguments, "--device", "CPU", "--context", "64")) as worker:
                assert worker.ready()["bytes"] == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_the_stages_files_shares_add_up_to_the_model(engine: str, tiny_model: Path) -> None:
    with open_gguf(tiny_model) as gguf:
        facts = read_model_facts(gguf)
        whole = stage_memory(gguf, facts, 0, facts.num_layers, 64, engine=engine)
        for num_stages in (2, 3, 8):
            ranges = [layer_range(stage, num_stages, facts.num_layers) for stage in range(num_stages)]
            shares = [stage_memory(gguf, facts, *blocks, 64, engine=engine) for blocks in ranges]
            assert sum(share.file_bytes for share in shares) == sum(tensor.nbytes for tensor in gguf.tensors.values())
            assert sum(share.kv_bytes for share in shares) == whole.kv_bytes
            assert all(share.total_bytes > share.weight_bytes + share.kv_bytes for share in shares)
        assert gguf.bytes_touched == 0


def test_the_cache_holds_the_context_and_what_the_last_pass_writes_past_it() -> None:
    for context in (1, 96, 97, 2048):
        assert padded_context(context) >= context + 32 - 1
        assert padded_context(context) % CONTEXT_STEP == 0
        assert context <= kernel_context(context) < context + KERNEL_SPAN
        assert kernel_context(context) % KERNEL_SPAN == 0


def test_the_kernels_keep_quantised_weights_as_small_as_they_are_in_the_file(tiny_model: Path) -> None:
    with open_gguf(tiny_model) as gguf:
        facts = read_model_facts(gguf)
        kept, plain = (stage_memory(gguf, facts, 2, 5, 64, engine=engine) for engine in ENGINES)
        assert 1 <= kept.weight_bytes / kept.file_bytes < 1.01
        assert plain.weight_bytes / kept.weight_bytes > 3.5


def test_f16_halves_the_plain_engines_matrices(tiny_model: Path) -> None:
    with open_gguf(tiny_model) as gguf:
        facts = read_model_facts(gguf)
        exact, rounded = (stage_memory(gguf, facts, 2, 5, 64, engine="plain", weights=w) for w in ("f32", "f16"))
        assert 0.5 < rounded.weight_bytes / exact.weight_bytes < 0.51


@pytest.mark.real_model
def test_a_worker_takes_what_its_stage_is_said_to_take() -> None:
    path = ensure_model(parse_model("smollm2:135m"))
    context, used = 4096, 64
    with open_gguf(path) as gguf:
        facts = read_model_facts(gguf)
        said = stage_memory(gguf, facts, *layer_range(1, 2, facts.num_layers), context)
    arguments = (
        "--model",
        str(path),
        "--stage",
        "1",
        "--num-stages",
        "2",
        "--device",
        "CPU",
        "--context",
        str(context),
    )
    with PipedWorker(arguments) as worker:
        assert worker.ready()["engine"] == "kernels"
        before = psutil.Process(worker.process.pid).memory_info().rss
        rows = np.ones((used, facts.hidden_dim), np.float32).tobytes()
        worker.step(Step(Op.FORWARD_AND_SAMPLE, "r", 0, used, hidden=rows, last=True, is_prefill=True), Form.RAW)
        after = psutil.Process(worker.process.pid).memory_info().rss
    # The cache of positions that were never reached takes nothing; large pages may round it up by some.
    assert after - before < said.kv_bytes / 4
    assert said.weight_bytes < before
    assert after < said.total_bytes - said.kv_bytes * 3 / 4
    assert after > 0.7 * (said.total_bytes - said.kv_bytes)


def test_values_that_do_not_fit_into_f16_are_refused_and_fine_in_f32(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", tensor_type=GGMLQuantizationType.F32, blocks=2)
    with open_gguf(path) as gguf:
        offset = gguf.tensors["blk.1.ffn_up.weight"].offset
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(np.float32(1e6).tobytes())
    arguments = ("--model", str(path), "--stage", "1", "--num-stages", "2", "--device", "CPU", "--weights")
    with PipedWorker((*arguments, "f16")) as worker:
        fields = worker.next().fields
        assert (fields["status"], fields["code"]) == ("fatal", "unsupported_model")
        assert "blk.1.ffn_up.weight" in fields["message"]
    with PipedWorker((*arguments, "f32")) as worker:
        worker.ready()
