"""Fetching split collections by the address of their first part."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import GgufMalformed, ModelFetchFailed, UnsupportedModel
from tests.models.kit import FileServer, Reply, Request, fetch, file_answer


@pytest.fixture
def parts(server: FileServer, tmp_path: Path) -> list[Path]:
    first = write_tiny_gguf(tmp_path / "s.gguf", blocks=2, split_max_tensors=9)
    parts = sorted(first.parent.glob("s-*.gguf"))
    for part in parts:
        server.answers[f"/m/{part.name}"] = file_answer(part.read_bytes())
    return parts


def test_every_part_is_fetched(server: FileServer, cache: Path, parts: list[Path]) -> None:
    path = fetch(server, cache, f"/m/{parts[0].name}?download=true")
    assert path.name == parts[0].name
    assert [(path.parent / part.name).read_bytes() for part in parts] == [part.read_bytes() for part in parts]
    asked = len(server.requests)
    assert fetch(server, cache, f"/m/{parts[0].name}?download=true") == path
    assert len(server.requests) == asked


def test_only_what_is_missing_is_fetched_again(server: FileServer, cache: Path, parts: list[Path]) -> None:
    second = server.answers[f"/m/{parts[1].name}"]

    def body_fails(request: Request) -> Reply:
        return second(request) if request.range is not None else Reply(404)

    server.answers[f"/m/{parts[1].name}"] = body_fails
    with pytest.raises(ModelFetchFailed, match="404"):
        fetch(server, cache, f"/m/{parts[0].name}")
    server.answers[f"/m/{parts[1].name}"] = second
    server.requests.clear()
    fetch(server, cache, f"/m/{parts[0].name}")
    assert set(server.paths()) == {f"/m/{part.name}" for part in parts[1:]}


def test_a_missing_part_is_named_before_anything_is_fetched(server: FileServer, cache: Path, parts: list[Path]) -> None:
    del server.answers[f"/m/{parts[2].name}"]
    with pytest.raises(ModelFetchFailed, match=f"no file {parts[2].name}"):
        fetch(server, cache, f"/m/{parts[0].name}")
    assert all(request.range is not None for request in server.requests)


def test_parts_of_two_models_are_refused(server: FileServer, cache: Path, parts: list[Path]) -> None:
    server.answers[f"/m/{parts[1].name}"] = file_answer(parts[2].read_bytes())
    with pytest.raises(GgufMalformed, match="its name and place say part 1 of 3"):
        fetch(server, cache, f"/m/{parts[0].name}")


def test_a_foreign_split_model_without_ranges_leaves_nothing(server: FileServer, cache: Path, tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "moe.gguf", blocks=2, split_max_tensors=9, overrides={"llama.expert_count": 4})
    for part in first.parent.glob("moe-*.gguf"):
        server.answers[f"/m/{part.name}"] = file_answer(part.read_bytes(), ranges=False)
    with pytest.raises(UnsupportedModel, match="4 experts"):
        fetch(server, cache, f"/m/{first.name}")
    assert not list(cache.rglob("*.gguf"))
