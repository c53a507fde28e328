"""Writes that leave a file whole, whatever ends them, and on the disk when they return."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def partial_path(path: Path) -> Path:
    """A name beside `path` for what is not whole yet; it tells which process writes it."""
    return path.with_name(f"{path.name}.partial-{os.getpid()}-{secrets.token_hex(4)}")


def replace_text(path: Path, text: str, *, synced: bool = True) -> None:
    """Put `text` in place of the file, whole or not at all. Raises OSError.

    `synced`: it outlives also a power failure, for which the disk is waited for.
    """
    partial = partial_path(path)
    try:
        with partial.open("x", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        with suppress(OSError):  # what is left must not hide why
            partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make names that were made or changed in `folder` last. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
