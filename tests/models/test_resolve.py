from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppsmoke.errors import ModelNotFound, UsageError
from ppsmoke.models import (
    ALIASES,
    DEFAULT_MODEL,
    default_cache_dir,
    ensure_model,
    find_model,
    list_models,
    parse_model,
    remove_model,
)
from ppsmoke.models.hub import Hub
from ppsmoke.models.resolve import UrlSource
from ppsmoke.split_naming import part_names, part_number


def test_aliases_are_well_formed() -> None:
    assert ALIASES[DEFAULT_MODEL].sha256
    for name, alias in ALIASES.items():
        assert name == alias.name == name.lower()
        assert alias.file.endswith(".gguf")
        assert (alias.size is None) == (alias.sha256 is None)
        assert parse_model(name.upper()).id == name


def test_a_path_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    ref = parse_model("m.gguf")
    assert ref.path == tmp_path / "m.gguf"
    assert parse_model(ref.id) == ref
    assert ensure_model(ref) == ref.path
    (tmp_path / "m.gguf").unlink()
    with pytest.raises(ModelNotFound, match=r"m\.gguf"):
        ensure_model(ref)


def test_a_pipe_is_no_model_and_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelNotFound, match="is a pipe or a device, not a file"):
        parse_model(str(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("https://example.com/a/m.gguf", "https://example.com/a/m.gguf"),
        ("https://example.com/a/m.gguf?download=true#x", "https://example.com/a/m.gguf?download=true"),
        ("https://huggingface.co/o/r/blob/main/m.gguf", "https://huggingface.co/o/r/resolve/main/m.gguf"),
        ("http://localhost:8000/m.gguf", "http://localhost:8000/m.gguf"),
    ],
)
def test_addresses(value: str, url: str) -> None:
    ref = parse_model(value)
    assert ref.source == UrlSource(url)
    assert ref.path is None
    assert parse_model(ref.id) == ref


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("lama3.2:1b", UsageError, "'lama3.2:1b'"),
        ("", UsageError, "is empty"),
        ("missing.gguf", ModelNotFound, "no model file missing.gguf"),
        ("some/where/x", ModelNotFound, "no model file"),
        (".", ModelNotFound, "is a folder"),
        ("http://example.com/m.gguf", UsageError, "not an https:// address"),
        ("ftp://example.com/m.gguf", UsageError, "not an https:// address"),
        ("https://example.com/model", UsageError, "does not name a .gguf file"),
        ("https://me:pw@example.com/m.gguf", UsageError, "login"),
        ("https://example.com/m-00002-of-00003.gguf", UsageError, "part 2 of 3"),
    ],
)
def test_what_names_no_model(value: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_model(value)


def test_a_later_part_points_at_the_first(tmp_path: Path) -> None:
    (tmp_path / "m-00002-of-00003.gguf").touch()
    with pytest.raises(UsageError) as caught:
        parse_model(str(tmp_path / "m-00002-of-00003.gguf"))
    assert "m-00001-of-00003.gguf" in (caught.value.remedy or "")


def test_names_of_parts() -> None:
    assert part_number("a-00002-of-00003.gguf") == (2, 3)
    assert part_number("a-2-of-3.gguf") is None
    assert part_names("a-00002-of-00003.gguf") == tuple(f"a-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert part_names("a.gguf") == ("a.gguf",)


def test_where_the_cache_is() -> None:
    assert default_cache_dir({"PP_SMOKE_CACHE": "/x", "XDG_CACHE_HOME": "/y"}) == Path("/x")
    assert default_cache_dir({"XDG_CACHE_HOME": "/y"}) == Path("/y/pp-smoke-run")
    assert default_cache_dir({"XDG_CACHE_HOME": "y"}) == default_cache_dir({})
    assert default_cache_dir({}) == Path.home() / ".cache" / "pp-smoke-run"


def test_an_empty_cache(tmp_path: Path) -> None:
    assert list_models(tmp_path) == ()
    assert find_model(parse_model(DEFAULT_MODEL), cache_dir=tmp_path) is None
    with pytest.raises(ModelNotFound, match="'smollm2:135m' in the cache") as caught:
        remove_model(DEFAULT_MODEL, tmp_path)
    assert caught.value.remedy == "cached models: none"


def test_a_manifest_that_cannot_be_read_is_no_model(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    for text in ("", "[]", '{"id": 1}', '{"id": "a", "source": "b", "files": {}}'):
        (folder / "model.json").write_text(text)
        assert list_models(tmp_path) == ()
        assert find_model(parse_model(DEFAULT_MODEL), cache_dir=tmp_path) is None


def test_the_hubs_token(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "huggingface").mkdir(parents=True)
    (tmp_path / ".cache" / "huggingface" / "token").write_text("hf_file\n")
    home = {"HOME": str(tmp_path)}
    assert Hub.from_env({"HOME": "/nonexistent"}).token is None
    assert Hub.from_env(home).token == "hf_file"
    assert Hub.from_env(home | {"HUGGING_FACE_HUB_TOKEN": "hf_old"}).token == "hf_old"
    assert Hub.from_env(home | {"HF_TOKEN": "hf_new", "HUGGING_FACE_HUB_TOKEN": "hf_old"}).token == "hf_new"
    assert Hub.from_env({"HF_HOME": str(tmp_path / ".cache" / "huggingface")}).token == "hf_file"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://huggingface.co/o/r", True),
        ("https://huggingface.co:443/o/r", True),
        ("http://huggingface.co/o/r", False),
        ("https://huggingface.co.evil.example/o/r", False),
        ("https://cdn.huggingface.co/o/r", False),
        ("https://huggingface.co:8443/o/r", False),
    ],
)
def test_who_gets_the_token(url: str, sent: bool) -> None:
    assert bool(Hub("https://huggingface.co", "hf_x").authorization(url)) is sent
