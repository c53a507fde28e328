"""Where the key is looked for, and that it is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsmoke.errors import VastKeyMissing
from ppsmoke.vast.api_key import ApiKey, find_api_key, key_files


def store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_option_comes_before_the_variable_before_the_files(tmp_path: Path) -> None:
    environ = {"VAST_API_KEY": "from-variable"}
    config, old = key_files({}, tmp_path)
    store(old, "from-old-file\n")
    assert find_api_key(None, {}, tmp_path) == ApiKey("from-old-file", str(old))
    store(config, " from-config \n")
    assert find_api_key(None, {}, tmp_path) == ApiKey("from-config", str(config))
    assert find_api_key(None, environ, tmp_path) == ApiKey("from-variable", "VAST_API_KEY")
    assert find_api_key("given", environ, tmp_path) == ApiKey("given", "--api-key")


def test_the_config_home_of_the_environment_counts(tmp_path: Path) -> None:
    store(tmp_path / "config" / "vastai" / "vast_api_key", "secret")
    found = find_api_key(None, {"XDG_CONFIG_HOME": str(tmp_path / "config")}, tmp_path / "home")
    assert found.secret == "secret"


def test_an_empty_variable_or_file_does_not_count(tmp_path: Path) -> None:
    store(key_files({}, tmp_path)[0], "\n")
    store(key_files({}, tmp_path)[1], "old")
    assert find_api_key(None, {"VAST_API_KEY": "  "}, tmp_path).secret == "old"


def test_no_key_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(VastKeyMissing, match="there is no") as caught:
        find_api_key(None, {}, tmp_path)
    assert caught.value.exit_status == 2
    assert "VAST_API_KEY" in (caught.value.remedy or "")


@pytest.mark.parametrize("given", ["", "  ", "two words", "new\nline", "kéy", "tab\there", "nul\0"])
def test_what_cannot_be_a_key_is_refused_without_being_shown(given: str, tmp_path: Path) -> None:
    with pytest.raises(VastKeyMissing, match="--api-key") as caught:
        find_api_key(given, {}, tmp_path)
    assert not given.strip() or given not in caught.value.what


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    key_files({}, tmp_path)[0].mkdir(parents=True)
    with pytest.raises(VastKeyMissing, match="vast_api_key cannot be read"):
        find_api_key(None, {}, tmp_path)
    store(key_files({}, tmp_path / "b")[0], "")
    key_files({}, tmp_path / "b")[0].write_bytes(b"\xff\xfe")
    with pytest.raises(VastKeyMissing, match="not text") as caught:
        find_api_key(None, {}, tmp_path / "b")
    assert caught.value.__cause__ is None


def test_the_key_is_in_its_header_alone() -> None:
    key = ApiKey("s3cret", "--api-key")
    assert key.authorization() == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in f"{key} {key!r}"
    assert key.hide_in("the key s3cret is s3cret") == "the key [key] is [key]"
