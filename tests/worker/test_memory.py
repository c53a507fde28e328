"""A stage takes memory for its own range only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.gguf_file import open_gguf
from ppsmoke.model_facts import read_model_facts, stage_tensors
from ppsmoke.roles import layer_range
from ppsmoke.stage_memory import kv_bytes_per_block, padded_context, stage_memory
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


def test_the_stages_files_shares_add_up_to_the_model(tiny_model: Path) -> None:
    with open_gguf(tiny_model) as gguf:
        facts = read_model_facts(gguf)
        for num_stages in (2, 3, 8):
            ranges = [layer_range(stage, num_stages, facts.num_layers) for stage in range(num_stages)]
            shares = [stage_memory(gguf, facts, *blocks, 64) for blocks in ranges]
            assert sum(share.file_bytes for share in shares) == sum(tensor.nbytes for tensor in gguf.tensors.values())
            kv_bytes = facts.num_layers * kv_bytes_per_block(facts, 64)
            assert sum(share.kv_bytes for share in shares) == kv_bytes
            assert all(share.total_bytes > share.weight_bytes + share.kv_bytes for share in shares)
        assert gguf.bytes_touched == 0


def test_the_cache_holds_the_context_and_one_padded_pass() -> None:
    for context in (1, 96, 97, 2048):
        assert padded_context(context) >= context + 32 - 1
        assert padded_context(context) % 128 == 0


def test_f16_halves_the_matrices_and_must_be_asked_for(tiny_model: Path) -> None:
    with open_gguf(tiny_model) as gguf:
        facts = read_model_facts(gguf)
        exact = stage_memory(gguf, facts, 2, 5, 64)
        assert exact == stage_memory(gguf, facts, 2, 5, 64, weights="f32")
        assert 0.5 < stage_memory(gguf, facts, 2, 5, 64, weights="f16").weight_bytes / exact.weight_bytes < 0.51


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
