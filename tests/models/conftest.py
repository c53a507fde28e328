from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.models import remote
from tests.models.kit import FileServer, file_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(remote, "DEFAULT_PAUSES_S", (0.0, 0.0, 0.0))
    with file_server() as files:
        yield files


@pytest.fixture(scope="session")
def tiny_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", blocks=8).read_bytes()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"
