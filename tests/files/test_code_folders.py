from __future__ import annotations

from pathlib import Path

from ppsmoke.files.code_folders import code_folder, remove_code


def test_code_that_was_replaced_is_removed_and_nothing_else(tmp_path: Path) -> None:
    former, running = (code_folder(tmp_path, letter * 64) for letter in "ab")
    for folder in (former, running, tmp_path / "mine"):
        folder.mkdir()
        (folder / "file.py").touch()
    remove_code(tmp_path, {running})
    assert sorted(tmp_path.iterdir()) == sorted((running, tmp_path / "mine"))
    remove_code(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]
    remove_code(tmp_path / "nowhere")
