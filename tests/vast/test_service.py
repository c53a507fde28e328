"""Which service, whose key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppsmoke.errors import VastKeyMissing
from ppsmoke.vast.command_options import RentalCommand
from ppsmoke.vast.place import DEFAULT_URL
from ppsmoke.vast.service import service_of


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("VAST_API_KEY", raising=False)


def command(key: str | None = None, url: str = "") -> RentalCommand:
    return RentalCommand(key, url, False, 1.0)


def test_the_key_leaves_the_environment_so_that_no_child_inherits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", "s3cret")
    service = service_of(command(), key_needed=True)
    assert service.key is not None
    assert service.key.secret == "s3cret"
    assert "VAST_API_KEY" not in os.environ
    assert "s3cret" not in repr(service)


def test_a_key_is_missed_only_where_one_is_needed() -> None:
    assert service_of(command(), key_needed=False).key is None
    with pytest.raises(VastKeyMissing):
        service_of(command(), key_needed=True)
    with pytest.raises(VastKeyMissing, match="--api-key is empty"):
        service_of(command(" "), key_needed=False)


def test_an_emulator_is_told_from_the_real_service() -> None:
    real = service_of(command("k"), key_needed=True)
    assert (real.url, real.on_this_machine) == (DEFAULT_URL, False)
    emulator = service_of(command("k", "http://127.0.0.1:8080/"), key_needed=True)
    assert (emulator.url, emulator.on_this_machine) == ("http://127.0.0.1:8080", True)
