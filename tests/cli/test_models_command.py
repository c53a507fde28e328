"""`pp-smoke-run models`, as a user types it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.models import ALIASES, DEFAULT_MODEL
from tests.cli.kit import environment, run_cli
from tests.models.kit import file_answer, file_server

CACHED = "qwen3:0.6b"


def put_into_cache(home: Path, model_id: str = CACHED, data: bytes = b"GGUF and more") -> Path:
    """A model as a fetch leaves it; its path."""
    file = ALIASES[model_id].file
    folder = home / "cache" / "models" / model_id.replace(":", "-")
    folder.mkdir(parents=True)
    (folder / file).write_bytes(data)
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = {"id": model_id, "source": "https://hub.test/x", "files": {file: entry}}
    (folder / "model.json").write_text(json.dumps(manifest))
    return folder / file


def listed(home: Path, *options: str) -> dict[str, dict[str, Any]]:
    done = run_cli(environment(home), "models", "list", "--json", *options)
    return {entry["id"]: entry for entry in json.loads(done.stdout)}


def test_every_name_is_listed(tmp_path: Path) -> None:
    done = run_cli(environment(tmp_path), "models")

    head, *lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert head.split() == ["model", "size", "license", "state", "path"]
    assert [line.split()[0] for line in lines] == list(ALIASES)
    assert lines[0].split() == [DEFAULT_MODEL, "98.4", "MB", "apache-2.0", "-"]
    assert len({line.rindex(ALIASES[line.split()[0]].license) for line in lines}) == 1
    assert not (tmp_path / "cache").exists()


def test_a_cached_model_is_listed_with_its_path(tmp_path: Path) -> None:
    path = put_into_cache(tmp_path)

    done = run_cli(environment(tmp_path), "models", "list")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(CACHED))
    assert line.split() == [CACHED, "13", "B", "apache-2.0", "cached", str(path)]
    found = listed(tmp_path)
    assert found[CACHED]["state"] == "cached"
    assert found[CACHED]["size"] == 13
    assert found[DEFAULT_MODEL]["state"] == "absent"
    assert listed(tmp_path, "--verify")[CACHED]["state"] == "verified"


def test_damage_is_found(tmp_path: Path) -> None:
    path = put_into_cache(tmp_path)
    path.write_bytes(b"GGUF and m0re")

    assert run_cli(environment(tmp_path), "models", "list").returncode == 0
    verified = run_cli(environment(tmp_path), "models", "list", "--verify")
    assert verified.returncode == 3
    assert "damaged" in verified.stdout
    assert "sha256" in verified.stderr
    assert f"pp-smoke-run models remove {CACHED}" in verified.stderr

    path.write_bytes(b"GGUF")
    assert listed(tmp_path)[CACHED]["state"] == "damaged"


def test_remove_frees_the_disk(tmp_path: Path) -> None:
    path = put_into_cache(tmp_path, data=b"GGUF" * 500)

    done = run_cli(environment(tmp_path), "models", "remove", CACHED)
    assert done.returncode == 0
    assert done.stdout.startswith(f"removed {CACHED}, 2.")
    assert done.stdout.endswith("kB freed\n")
    assert not path.parent.exists()

    again = run_cli(environment(tmp_path), "models", "remove", CACHED)
    assert again.returncode == 3
    assert CACHED in again.stderr


def test_remove_never_touches_a_file_outside_the_cache(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    done = run_cli(environment(tmp_path), "models", "remove", str(own))
    assert done.returncode == 3
    assert own.exists()


def test_a_model_of_another_version_can_be_listed_and_removed(tmp_path: Path) -> None:
    path = put_into_cache(tmp_path)
    manifest = path.parent / "model.json"
    manifest.write_text(manifest.read_text().replace(CACHED, "forgotten:1b"))

    done = run_cli(environment(tmp_path), "models")
    assert "also in the cache\n  forgotten:1b\n    13 B  cached  " in done.stdout
    assert run_cli(environment(tmp_path), "models", "remove", "forgotten:1b").returncode == 0
    assert not path.exists()


@pytest.mark.parametrize("command", ["fetch", "remove"])
def test_an_unknown_name(tmp_path: Path, command: str) -> None:
    done = run_cli(environment(tmp_path), "models", command, "no-such-model")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'no-such-model'" in done.stderr
    assert DEFAULT_MODEL in done.stderr


def test_fetch_prints_the_path_alone(tmp_path: Path) -> None:
    data = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=2).read_bytes()
    with file_server() as server:
        server.answers["/some/tiny.gguf"] = file_answer(data)
        url = f"{server.url}/some/tiny.gguf"
        first = run_cli(environment(tmp_path), "models", "fetch", url)
        asked = len(server.requests)
        second = run_cli(environment(tmp_path), "models", "fetch", url)
        assert len(server.requests) == asked
        missing = run_cli(environment(tmp_path), "models", "fetch", f"{server.url}/some/other.gguf")

    assert first.returncode == 0, first.stderr
    path = Path(first.stdout.removesuffix("\n"))
    assert path.read_bytes() == data
    assert path.is_relative_to(tmp_path / "cache")
    assert "fetching tiny.gguf" in first.stderr
    assert (second.stdout, second.stderr, second.returncode) == (first.stdout, "", 0)
    assert missing.returncode == 3
    assert "other.gguf" in missing.stderr
    assert missing.stdout == ""

    found = listed(tmp_path)
    assert found[url]["path"] == str(path)
    table = run_cli(environment(tmp_path), "models").stdout
    assert f"also in the cache\n  {url}\n" in table
    assert run_cli(environment(tmp_path), "models", "remove", url).returncode == 0
    assert not path.exists()


def test_options_of_list_before_another_command(tmp_path: Path) -> None:
    assert json.loads(run_cli(environment(tmp_path), "models", "--json").stdout)
    refused = run_cli(environment(tmp_path), "models", "--verify", "fetch", CACHED)
    assert refused.returncode == 2
    assert "belong to list" in refused.stderr
