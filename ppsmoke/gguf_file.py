"""A GGUF model on disk, one file or a split collection, mapped read-only; touched only where asked."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ppsmoke.errors import GgufMalformed, GgufTruncated, ModelNotFound, UsageError
from ppsmoke.ggml_types import SUPPORTED_TENSOR_TYPES
from ppsmoke.gguf_header import (
    GgufHeader,
    GgufTensor,
    ReadAt,
    parse_header,
)
from ppsmoke.gguf_share import ShareRecord, Span, read_record
from ppsmoke.split_naming import part_names, part_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SUPPORTED_TENSOR_TYPES", "GgufFile", "GgufTensor", "open_gguf"]


def open_gguf(path: Path) -> GgufFile:
    """Open a model given its file, or the first part of a split collection.

    Raises ModelNotFound (a file or a part is not there or not readable), GgufMalformed, GgufTruncated,
    UnsupportedModel (a tensor type), UsageError (a part that is not the first).
    """
    path = Path(path)
    split = part_number(path.name)
    if split is not None and split[0] != 1:
        first = path.with_name(part_names(path.name)[0])
        raise UsageError(
            f"{path} is part {split[0]} of {split[1]} of a split model", remedy=f"give its first part: {first}"
        )
    paths = tuple(path.with_name(name) for name in part_names(path.name))
    missing = [part for part in paths if not part.exists()]
    if missing == list(paths):
        raise ModelNotFound(f"there is no model file {path}")
    if missing:
        names = ", ".join(part.name for part in missing)
        raise ModelNotFound(f"the split model {path} lacks {len(missing)} of its {len(paths)} parts: {names}")
    with contextlib.ExitStack() as opened:
        maps: list[mmap.mmap] = []
        headers: list[GgufHeader] = []
        for part, part_path in enumerate(paths):
            mapped = opened.enter_context(_map_read_only(part_path))
            maps.append(mapped)
            headers.append(parse_header(_reader_of(mapped), len(mapped), where=str(part_path), part=part))
        tensors = merge_parts(headers, [str(part_path) for part_path in paths])
        shares = tuple(read_record(part_path) for part_path in paths)
        opened.pop_all()
    return GgufFile(paths, maps, headers[0].metadata, tensors, shares)


def merge_parts(headers: Sequence[GgufHeader], where: Sequence[str]) -> dict[str, GgufTensor]:
    """The tensors of all parts in one table, after checking that the headers are those of one collection.

    `where` names each part in errors. Raises GgufMalformed, GgufTruncated.
    """
    tensors: dict[str, GgufTensor] = {}
    for part, header in enumerate(headers):
        number, count = header.metadata.get("split.no", 0), header.metadata.get("split.count", 0)
        if count in (0, 1) and len(headers) == 1:
            number = 0
        elif count != len(headers) or number != part:
            raise GgufMalformed(
                f"{where[part]} says that it is part {number} (from 0) of {count}, "
                f"its name and place say part {part} of {len(headers)}",
                remedy="keep the parts of a split model in one folder under their names (name-00001-of-0000N.gguf)",
            )
        for name, tensor in header.tensors.items():
            if name in tensors:
                other = where[tensors[name].part]
                raise GgufMalformed(f"{where[part]}: the tensor {name!r} is also in {other}")
            tensors[name] = tensor
    promised = headers[0].metadata.get("split.tensors.count", len(tensors))
    if len(headers) > 1 and promised != len(tensors):
        raise GgufTruncated(f"{where[0]} promises {promised} tensors in all parts, there are {len(tensors)}")
    return tensors


class GgufFile:
    """An open model. Arrays handed out by `raw` keep the mapping alive after `close`.

    Whoever only reads the header needs no arrays, so what makes them is loaded with the first one.
    """

    def __init__(
        self,
        paths: tuple[Path, ...],
        maps: list[mmap.mmap],
        metadata: Mapping[str, Any],
        tensors: Mapping[str, GgufTensor],
        shares: tuple[ShareRecord | None, ...],
    ) -> None:
        self.paths = paths
        self.metadata: Mapping[str, Any] = MappingProxyType(dict(metadata))
        self.tensors: Mapping[str, GgufTensor] = MappingProxyType(dict(tensors))
        self.nbytes = sum(len(mapped) for mapped in maps)
        self.bytes_touched = 0  # of tensor data, handed out so far
        self._maps = maps
        self._shares = shares

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor, shape (nbytes,): a read-only view of the file.

        KeyError when there is no such tensor, ModelNotFound when it was not fetched (also of the other readers).
        """
        tensor = self.tensors[name]
        self.bytes_touched += tensor.nbytes
        return self._view(tensor)

    def dequantize(self, name: str) -> NDArray[np.float32]:
        """A tensor's values in numpy order (the shape reversed, rows first), as an own copy.

        KeyError when there is no such tensor.
        """
        from ppsmoke.gguf_values import dequantized

        tensor = self.tensors[name]
        self.bytes_touched += tensor.nbytes
        return dequantized(self._rows(tensor), tensor.type).reshape(tensor.shape[::-1])

    def dequantize_rows(self, name: str, rows: Sequence[int]) -> NDArray[np.float32]:
        """Some rows of a two-dimensional tensor, shape (len(rows), K). Only their bytes are read.

        KeyError when there is no such tensor, IndexError for a row outside it.
        """
        from ppsmoke.gguf_values import dequantized

        tensor = self.tensors[name]
        picked = self.raw_rows(name, rows)
        return dequantized(picked, tensor.type).reshape(len(picked), tensor.shape[0])

    def raw_rows(self, name: str, rows: Sequence[int]) -> NDArray[np.uint8]:
        """The stored bytes of some rows, as copies; otherwise as dequantize_rows."""
        from ppsmoke.gguf_values import picked_rows

        picked = picked_rows(self._rows(self.tensors[name]), rows, of=name)
        self.bytes_touched += picked.nbytes
        return picked

    def drop_pages(self) -> None:
        """Hand the memory of what was read back to the system; it is read from the file again where it is needed."""
        for mapped in self._maps:
            # Some systems cannot.
            with contextlib.suppress(AttributeError, OSError):
                mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the files. Safe to call twice."""
        for mapped in self._maps:
            # A view from raw() still in use holds the mapping; it goes when the last view goes.
            with contextlib.suppress(BufferError):
                mapped.close()
        self._maps = []

    def _rows(self, tensor: GgufTensor) -> NDArray[np.uint8]:
        return self._view(tensor).reshape(-1, tensor.nbytes * tensor.shape[0] // math.prod(tensor.shape))

    def _view(self, tensor: GgufTensor) -> NDArray[np.uint8]:
        from ppsmoke.gguf_values import stored_bytes

        share = self._shares[tensor.part]
        if share is not None and not share.covers(Span(tensor.offset, tensor.offset + tensor.nbytes)):
            raise ModelNotFound(
                f"{self.paths[tensor.part]} holds a share of the model without the tensor {tensor.name!r}",
                remedy="fetch the share of the blocks that this stage computes",
            )
        return stored_bytes(self._maps[tensor.part], tensor.offset, tensor.nbytes)


def _map_read_only(path: Path) -> mmap.mmap:
    try:
        # Opening a pipe or a device could block for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelNotFound(f"{path} is not a file", remedy="give the GGUF file itself")
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ModelNotFound(f"the model file {path} cannot be opened: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_size == 0:
            raise GgufMalformed(f"{path} is empty", remedy="fetch the file again")
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelNotFound(f"the model file {path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _reader_of(mapped: mmap.mmap) -> ReadAt:
    return lambda offset, length: mapped[offset : offset + length]
