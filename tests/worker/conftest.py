from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of 8 blocks with random weights, hidden size 128."""
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")
