"""A model as the orchestrator opens it: what a node is told to load."""

from __future__ import annotations

from pathlib import Path

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.messages import GgufSource
from ppsmoke.models import ensure_share, header_only, parse_model
from ppsmoke.request import open_model
from tests.models.kit import ENV, file_answer, file_server


def test_a_local_model_is_named_by_its_path(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    model = open_model("mine", path)
    assert model.path == str(path.resolve())
    assert model.source == GgufSource(kind="file", paths=(str(path.resolve()),))


def test_a_fetched_model_is_named_as_a_node_fetches_it_and_needs_only_its_header_here(tmp_path: Path) -> None:
    with file_server() as server:
        server.answers["/tiny.gguf"] = file_answer(write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes())
        ref = parse_model(f"{server.url}/tiny.gguf")
        path = ensure_share(ref, header_only, cache_dir=tmp_path / "cache", env=ENV)
        model = open_model(ref.id, path, nodes_fetch=ref.id)
    assert model.path == f"{server.url}/tiny.gguf"
    assert model.source == GgufSource(kind="cache", key=model.path)
    whole = open_model("mine", tmp_path / "tiny.gguf")
    assert model.stage_memory(0, 2, 128) == whole.stage_memory(0, 2, 128)
    assert model.stop_token_ids == whole.stop_token_ids
