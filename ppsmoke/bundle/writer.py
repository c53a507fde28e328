"""Writes a run's files, with everything secret blacked out; a disk that takes no more ends the writing, not the run."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppsmoke.durable import replace_text
from ppsmoke.redaction import Redactor


class BundleWriter:
    """Of one directory. Nothing here raises OSError: after the first failure it is silent, and `warn` has heard of it.

    Lines reach the file at once, so that a run that is killed leaves all but its last ones. May be used by any thread.
    """

    def __init__(self, directory: Path, redactor: Redactor, *, warn: Callable[[str], None]) -> None:
        self.directory = directory
        self._redactor = redactor
        self._warn = warn
        self._files: dict[str, int] = {}
        self._turn = threading.Lock()
        self._silent = False

    def append(self, name: str, bodies: Iterable[Mapping[str, Any]], *, plain: bool = False) -> None:
        """A line for each object to a file of lines. `plain`: they have numbers and names of ours in them, and no
        text from elsewhere."""
        lines = [json.dumps(body, ensure_ascii=False) for body in bodies]
        if not plain:
            lines = [self._redactor.clean(line) for line in lines]
        if not lines or self._silent:
            return
        data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        with self._turn:
            try:
                self._write(name, data)
            except OSError as error:
                self._fail(error)

    def write_json(self, name: str, body: Any) -> None:
        """A file with one JSON value, whole or not there."""
        self.write_text(name, json.dumps(self._redactor.clean_json(body), indent=1, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """A file with a text, whole or not there."""
        if self._silent:
            return
        try:
            replace_text(self.directory / name, self._redactor.clean(text), synced=False)
        except OSError as error:
            self._fail(error)

    def clean_files(self, pattern: str) -> None:
        """Black out secrets in files that others wrote and write no more."""
        if self._silent:
            return
        try:
            for path in sorted(self.directory.glob(pattern)):
                self._clean_file(path)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        with self._turn:
            self._silent = True
            for opened in self._files.values():
                with suppress(OSError):
                    os.close(opened)
            self._files.clear()

    def _write(self, name: str, data: bytes) -> None:
        if self._silent:
            return
        if name not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._files[name] = os.open(self.directory / name, flags, 0o644)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._files[name], rest) :]

    def _clean_file(self, path: Path) -> None:
        if path.is_symlink() or not path.is_file():
            return
        with path.open(errors="surrogateescape", newline="") as lines:
            if not any(self._redactor.clean(line) != line for line in lines):
                return
        clean = path.with_name(f".{path.name}.clean")
        try:
            with (
                path.open(errors="surrogateescape", newline="") as lines,
                clean.open("w", errors="surrogateescape", newline="") as cleaned,
            ):
                cleaned.writelines(self._redactor.clean(line) for line in lines)
            clean.replace(path)
        except OSError:
            # What cannot be cleaned must not stay.
            with suppress(OSError):
                clean.unlink(missing_ok=True)
                os.truncate(path, 0)
            raise

    def _fail(self, error: OSError) -> None:
        if not self._silent:
            self._silent = True
            self._warn(f"the run's files in {self.directory} are incomplete: {error.strerror}")
