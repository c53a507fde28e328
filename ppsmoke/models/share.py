"""Fetch of a model only what one stage computes with: the header of every file and the tensors of a block range.

    <cache>/shares/<key>/<file>.gguf        as long as the whole file; what was not fetched is a hole
    <cache>/shares/<key>/<file>.gguf.share  which bytes are there (gguf_share)

A fetch that was cut off goes on where it was while the source's file is the same. Stages on one machine share one file:
whoever comes later fetches only what is still missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ppsmoke.cache_dir import default_cache_dir
from ppsmoke.errors import GgufMalformed, ModelFetchFailed
from ppsmoke.gguf_file import merge_parts
from ppsmoke.gguf_header import AnnouncedTensors, GgufHeader, TensorTable, parse_header
from ppsmoke.gguf_share import ShareRecord, Span, merge_spans, read_record, record_path, write_record
from ppsmoke.model_facts import ModelFacts, model_facts, stage_tensors
from ppsmoke.models.cache import locked, require_free_disk, writing_to
from ppsmoke.models.progress import Progress

PIECE_BYTES = 8 << 20
"""Bytes of one request, and what a cut-off fetch loses at most."""

_JOIN_GAP_BYTES = 1 << 16  # fetching a small gap costs less than another request


class RangeSource(Protocol):
    """One file of a model, wherever it is. `where` names it in errors; `version` is another one when its bytes are."""

    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def version(self) -> str: ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes. Raises ModelFetchFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Announced:
    """A whole model as its headers describe it."""

    facts: ModelFacts
    table: TensorTable


Wanted = Callable[[Announced], Iterable[str]]
"""Which tensors to fetch, decided when the headers are known; raises to refuse the model."""


def stage_share(layer_start: int, layer_end_exclusive: int) -> Wanted:
    """The tensors of one stage. The plan checked the range against the model."""
    return lambda model: stage_tensors(model.facts, layer_start, layer_end_exclusive)


def header_only(_model: Announced) -> Iterable[str]:
    """No tensor: enough to plan, to tokenise and to render prompts."""
    return ()


def share_folder(key: str, cache_dir: Path | None = None) -> Path:
    """Where the share of the model with this key lives."""
    return (default_cache_dir() if cache_dir is None else cache_dir) / "shares" / key


def fetch_share(
    sources: Sequence[RangeSource],
    wanted: Wanted,
    folder: Path,
    progress: Progress,
    *,
    piece_bytes: int | None = None,
) -> Path:
    """The path of the (first) file, with all that `wanted` names on this disk.

    `sources` are the one file, or every part of a split collection in order. Raises ModelFetchFailed, NotEnoughDisk,
    GgufMalformed, GgufTruncated, UnsupportedModel, EnvironmentFault, and what `wanted` raises.
    """

    def on_wait() -> None:
        progress.note(f"another process is fetching {sources[0].name}; waiting for it")

    with locked(folder, on_wait):
        with writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
        size = PIECE_BYTES if piece_bytes is None else piece_bytes
        parts = [_Part(source, folder / source.name, size) for source in sources]
        headers = [part.header(index) for index, part in enumerate(parts)]
        where = [source.where for source in sources]
        table = AnnouncedTensors(merge_parts(headers, where))
        model = Announced(model_facts(headers[0].metadata, table.tensors, where=where[0]), table)
        needs = _needs(headers, table, wanted(model))
        gaps = [part.gaps(needed) for part, needed in zip(parts, needs, strict=True)]
        total = sum(gap.nbytes for part_gaps in gaps for gap in part_gaps)
        require_free_disk(folder, total, f"the share of {sources[0].name}")
        done = 0
        for part, part_gaps in zip(parts, gaps, strict=True):
            done = part.fetch(part_gaps, done, total, progress)
        return parts[0].path


def _needs(headers: Sequence[GgufHeader], table: TensorTable, names: Iterable[str]) -> list[tuple[Span, ...]]:
    """The bytes needed of each part."""
    spans: list[list[Span]] = [[Span(0, header.nbytes)] for header in headers]
    for name in names:
        tensor = table.tensors[name]
        spans[tensor.part].append(Span(tensor.offset, tensor.offset + tensor.nbytes))
    return [merge_spans(tuple(part), gap=_JOIN_GAP_BYTES) for part in spans]


class _Part:
    """One file: its hole-y copy and the record of what is in it."""

    def __init__(self, source: RangeSource, path: Path, piece_bytes: int) -> None:
        self.path = path
        self._source = source
        self._piece_bytes = piece_bytes
        self._record = self._take_up()

    def header(self, part: int) -> GgufHeader:
        """The file's header; what it takes to read it is kept."""
        return parse_header(self._read_through, self._record.size, where=self._source.where, part=part)

    def gaps(self, needed: Sequence[Span]) -> list[Span]:
        """What is still missing of `needed`, in pieces of one request."""
        size = self._record.size
        pieces: list[Span] = []
        for span in needed:
            for gap in self._record.missing(Span(span.start, min(span.end, size))):
                starts = range(gap.start, gap.end, self._piece_bytes)
                pieces.extend(Span(start, min(start + self._piece_bytes, gap.end)) for start in starts)
        return pieces

    def fetch(self, gaps: Sequence[Span], done: int, total: int, progress: Progress) -> int:
        """Fetch these pieces; the bytes done so far."""
        label = f"fetching the share of {self._source.name}"
        for gap in gaps:
            progress.update(label, done, total)
            self._keep(gap)
            done += gap.nbytes
        if gaps:
            progress.update(label, done, total)
        return done

    def _read_through(self, offset: int, length: int) -> bytes:
        for gap in self._record.missing(Span(offset, offset + length)):
            self._keep(gap)
        with writing_to(self.path), self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def _keep(self, span: Span) -> None:
        """Fetch these bytes and record them once they are on the disk."""
        data = self._source.read(span.start, span.nbytes)
        if len(data) != span.nbytes:
            raise ModelFetchFailed(
                f"{self._source.where} gave {len(data)} of {span.nbytes} bytes at {span.start}",
                remedy="fetch it again; if it stays so, the file at its source has changed",
            )
        with writing_to(self.path), self.path.open("r+b") as file:
            file.seek(span.start)
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
            self._record = self._record.with_span(span)
            write_record(self.path, self._record)

    def _take_up(self) -> ShareRecord:
        """What is there of the same file; a new, empty copy when it is another one or cannot be told."""
        source = self._source
        try:
            record = read_record(self.path)
        except GgufMalformed:
            record = None
        if (
            record is not None
            and (record.size, record.version) == (source.size, source.version)
            and self.path.is_file()
            and self.path.stat().st_size == source.size
        ):
            return record
        fresh = ShareRecord(source.size, source.version)
        with writing_to(self.path):
            # The record goes first: without it a file is taken for whole.
            self.path.unlink(missing_ok=True)
            record_path(self.path).unlink(missing_ok=True)
            write_record(self.path, fresh)
            with self.path.open("xb") as file:
                file.truncate(source.size)
        return fresh
