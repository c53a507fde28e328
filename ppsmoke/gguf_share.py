"""The record beside a GGUF file of which only a share is on this disk: the header and some tensors, the rest holes.

A hole reads as zeros, which would compute and give wrong tokens: whoever opens the file is held to the record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppsmoke.durable import replace_text
from ppsmoke.errors import GgufMalformed


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to `end` (exclusive) of a file."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """`size` of the whole file; `version` tells two states of its source apart; `spans` are the bytes that are here,
    sorted, disjoint and not touching."""

    size: int
    version: str
    spans: tuple[Span, ...] = ()

    def covers(self, wanted: Span) -> bool:
        return any(span.start <= wanted.start and wanted.end <= span.end for span in self.spans)

    def missing(self, wanted: Span) -> tuple[Span, ...]:
        """The parts of `wanted` that are not here, in order."""
        gaps: list[Span] = []
        position = wanted.start
        for span in self.spans:
            if span.end <= position or span.start >= wanted.end:
                continue
            if span.start > position:
                gaps.append(Span(position, span.start))
            position = max(position, span.end)
        if position < wanted.end:
            gaps.append(Span(position, wanted.end))
        return tuple(gaps)

    def with_span(self, new: Span) -> ShareRecord:
        return ShareRecord(self.size, self.version, merge_spans((*self.spans, new)))


def merge_spans(spans: tuple[Span, ...], *, gap: int = 0) -> tuple[Span, ...]:
    """Sorted, with those that overlap or lie at most `gap` bytes apart made one; empty ones are dropped."""
    merged: list[Span] = []
    for span in sorted((span for span in spans if span.nbytes > 0), key=lambda span: span.start):
        if merged and span.start <= merged[-1].end + gap:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return tuple(merged)


def record_path(model: Path) -> Path:
    """Where the record of a model's file lies: beside it."""
    return model.with_name(model.name + ".share")


def read_record(model: Path) -> ShareRecord | None:
    """The record of a file; None for a file that has none, which is whole.

    Raises GgufMalformed for a record that cannot be read: the file beside it may have holes anywhere.
    """
    path = record_path(model)
    if path.exists() and not path.is_file():  # a pipe would keep its reader waiting for ever
        raise _unreadable(path, "it is no file")
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from error
    try:
        return _parse(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error


def write_record(model: Path, record: ShareRecord) -> None:
    """Replace the record. The bytes it names must be on the disk already. Raises OSError."""
    body = {
        "size": record.size,
        "version": record.version,
        "spans": [[span.start, span.end] for span in record.spans],
    }
    replace_text(record_path(model), json.dumps(body))


def _parse(body: Any) -> ShareRecord:
    spans = tuple(Span(int(start), int(end)) for start, end in body["spans"])
    size, version = body["size"], body["version"]
    if not isinstance(size, int) or not isinstance(version, str) or spans != merge_spans(spans):
        raise ValueError("its spans are not in order")
    if spans and not 0 <= spans[0].start <= spans[-1].end <= size:
        raise ValueError("its spans are outside the file")
    return ShareRecord(size, version, spans)


def _unreadable(path: Path, why: str) -> GgufMalformed:
    return GgufMalformed(
        f"the record of a partly fetched model {path} cannot be read: {why}", remedy=f"remove {path.parent}"
    )
