"""The ids of llama.cpp, recorded by fixtures/record_tokenizer.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures.boundary_vocabulary import boundary_metadata
from ppsmoke.gguf_file import open_gguf
from ppsmoke.models import default_cache_dir, ensure_model, parse_model
from ppsmoke.tokenizer import Tokenizer

RECORDED = Path(__file__).parents[2] / "fixtures" / "tokenizer"


def read_metadata(path: Path) -> Mapping[str, Any]:
    with open_gguf(path) as gguf:
        return gguf.metadata


def assert_same_as_recorded(metadata: Mapping[str, Any], name: str) -> None:
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    tokenizer = Tokenizer.from_gguf(metadata)
    assert len(recorded["strings"]) > 200
    for text, special, plain in zip(recorded["strings"], recorded["special"], recorded["plain"], strict=True):
        assert tokenizer.encode(text, add_bos=False) == special, repr(text)
        assert tokenizer.encode(text, add_bos=False, parse_special=False) == plain, repr(text)
        assert tokenizer.decode(special) == text
    assert tokenizer.encode("Hello") == recorded["with_bos"]
    assert sorted(tokenizer.stop_token_ids) == recorded["stop"]


@pytest.mark.parametrize("pre", ["smollm", "llama-bpe", "qwen2", "gpt-2"])
def test_every_pre_tokenizer_cuts_where_llama_cpp_does(pre: str) -> None:
    assert_same_as_recorded(boundary_metadata(pre), f"boundary-{pre}")


@pytest.mark.real_model
def test_default_model_gives_the_ids_of_llama_cpp() -> None:
    path = ensure_model(parse_model("smollm2:135m"), cache_dir=default_cache_dir())
    assert_same_as_recorded(read_metadata(path), "smollm2")


@pytest.mark.slow
def test_real_vocabularies_give_the_ids_of_llama_cpp(tmp_path: Path) -> None:
    """The vocabularies are too large to keep here; the source package of llama-cpp-python carries them."""
    download = ["pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "llama-cpp-python==0.3.36"]
    subprocess.run([sys.executable, "-m", *download, "--dest", str(tmp_path)], check=True, timeout=600)
    (archive,) = tmp_path.glob("llama_cpp_python-*.tar.gz")
    names = {f"ggml-vocab-{name}.gguf": name for name in ("llama-bpe", "qwen2", "gpt-2")}
    found = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            file_name = Path(member.name).name
            if file_name in names:
                source = tar.extractfile(member)
                assert source is not None
                (tmp_path / file_name).write_bytes(source.read())
                assert_same_as_recorded(read_metadata(tmp_path / file_name), f"vocabulary-{names[file_name]}")
                found.add(file_name)
    assert found == set(names)
