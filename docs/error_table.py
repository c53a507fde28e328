"""Writes the table of all error codes into the README: `python -m docs.error_table`.

The codes, exit statuses and sentences are those of ppsmoke/errors.py; a test says when the README is behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ppsmoke.errors import Interrupted, PpError, RequestRejected
from ppsmoke.node_cli import exit_status

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- error codes, by docs/error_table.py -->\n"
END = "<!-- end of error codes -->\n"


def table() -> str:
    """Markdown, a row for each class in the order of the tree; a worker's answers to bad requests in a table apart."""
    of_runs = [cls for cls in _below(PpError) if not issubclass(cls, RequestRejected)]
    rows = ["| code | exit status | what it means |", "| --- | --- | --- |"]
    rows += [f"| `{cls.code}` | {_status(cls)} | {meaning(cls)} |" for cls in of_runs]
    rows += ["", "A worker answers a request that it refuses with one of these, and lives on:", ""]
    rows += ["| code | what it means |", "| --- | --- |"]
    rows += [f"| `{cls.code}` | {meaning(cls)} |" for cls in _below(RequestRejected, itself=True)]
    return "\n".join(rows) + "\n"


def meaning(cls: type[PpError]) -> str:
    """The first sentence of the class's docstring."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def _status(cls: type[PpError]) -> str:
    if cls is Interrupted:
        return "129, 130, 143"
    of_node = exit_status(cls(""))
    return str(cls.exit_status) if of_node == 1 else f"{cls.exit_status}; of `pp-gpu-node` {of_node}"


def _below(cls: type[PpError], *, itself: bool = False) -> Iterator[type[PpError]]:
    if itself:
        yield cls
    for child in cls.__subclasses__():
        yield from _below(child, itself=True)


def current(readme: str) -> str:
    """The README's text with the table as it is to be."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    README.write_text(current(README.read_text()))
