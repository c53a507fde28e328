"""The header of a GGUF file (versions 2 and 3): metadata and the table of tensors, without the tensor data.

The bytes come through a `read_at(offset, length)` function, so that the head of a remote file can be checked
through range requests by the same code that reads a local one. Nothing here trusts a number of the file before it
was held against the file's size.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from ppsmoke.errors import GgufMalformed, GgufTruncated, UnsupportedModel
from ppsmoke.ggml_types import BLOCKS, SUPPORTED_TENSOR_TYPES, GgmlType

ReadAt = Callable[[int, int], bytes]
_Entry = tuple[str, tuple[int, ...], int, int]  # name, shape, type number, offset

_MAX_HEADER_BYTES = 1 << 28
_MAX_ARRAY_LENGTH = 1 << 24
_MAX_ARRAY_DEPTH = 4
_MAX_NAME_BYTES = 1 << 16
_MIN_METADATA_ENTRY_BYTES = 8 + 4 + 1
_MIN_TENSOR_ENTRY_BYTES = 8 + 4 + 4 + 8
_READ_CHUNK_BYTES = 1 << 20

_STRING, _ARRAY, _BOOL = 8, 9, 7
# struct's code of each kind of number
_NUMBERS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_NUMBER_BYTES: Mapping[int, int] = {kind: struct.calcsize(f"<{code}") for kind, code in _NUMBERS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: where its data lies and how it is stored."""

    name: str
    shape: tuple[int, ...]  # ggml order, fastest axis first
    type: GgmlType
    part: int  # which file of the collection, from 0
    offset: int  # of the first data byte, from the start of its part's file
    nbytes: int


class TextArray(Sequence[str]):
    """An array of texts, decoded when somebody asks for one: a vocabulary is a hundred thousand of them, and a stage
    only wants to know how many. Invalid UTF-8 becomes U+FFFD, as some vocabularies in the wild have it."""

    def __init__(self, stored: bytes, count: int) -> None:
        """`stored`: each text's length, a u64, and its bytes."""
        self._stored = stored
        self._count = count
        self._texts: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextArray | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _decoded(self) -> list[str]:
        if self._texts is None:
            texts, stored, at, length_at = [], self._stored, 0, _U64.unpack_from
            for _ in range(self._count):
                begin = at + 8
                at = begin + length_at(stored, at)[0]
                texts.append(stored[begin:at].decode("utf-8", "replace"))
            self._texts, self._stored = texts, b""
        return self._texts


class TensorTable(Protocol):
    """Whatever knows a whole model's tensors: an open file, or the headers of one that is still elsewhere."""

    @property
    def tensors(self) -> Mapping[str, GgufTensor]: ...


@dataclass(frozen=True, slots=True)
class AnnouncedTensors:
    """The tensors of a model of which only the headers are at hand."""

    tensors: Mapping[str, GgufTensor]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What one file says about itself."""

    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    nbytes: int  # of the header, padding before the tensor data included


def parse_header(read_at: ReadAt, size: int, *, where: str, part: int = 0) -> GgufHeader:
    """Parse the head of a file of `size` bytes; `where` names the file in errors.

    `read_at(offset, length)` is called with growing offsets and returns exactly `length` bytes (fewer is taken as
    the end of the file). Every tensor is checked to lie inside the file.

    Raises GgufMalformed, GgufTruncated, or UnsupportedModel for a tensor type that cannot be read.
    """
    cursor = _Cursor(read_at, size, where)
    version = _read_preamble(cursor)
    tensor_count = _read_count(cursor, "tensors", _MIN_TENSOR_ENTRY_BYTES)
    metadata_count = _read_count(cursor, "metadata entries", _MIN_METADATA_ENTRY_BYTES)
    metadata = _read_metadata(cursor, metadata_count)
    entries = [_read_tensor_entry(cursor, index) for index in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise GgufMalformed(f"{where}: general.alignment is {alignment!r}, which is not a power of two")
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in entries:
        if name in tensors:
            raise GgufMalformed(f"{where}: the tensor {name!r} is listed twice")
        tensors[name] = _place_tensor(where, size, part, data_start, alignment, (name, shape, kind, offset))
    return GgufHeader(version, metadata, tensors, data_start)


class _Cursor:
    """Sequential reads with a small window over `read_at`, each checked against the size of the file."""

    def __init__(self, read_at: ReadAt, size: int, where: str) -> None:
        self._read_at = read_at
        self._size = size
        self._window = b""
        self._window_start = 0
        self.where = where
        self.position = 0
        self.reading = "the header"

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def window_offset(self, length: int) -> int:
        """Make `length` bytes at the position available, step over them; their offset inside the window."""
        start = self.position - self._window_start
        if start + length > len(self._window):
            self._refill(length)
            start = 0
        self.position += length
        return start

    def _refill(self, length: int) -> None:
        if length > self.remaining:
            raise self.truncated()
        if self.position + length > _MAX_HEADER_BYTES:
            raise GgufMalformed(f"{self.where}: the header exceeds {_MAX_HEADER_BYTES} bytes in {self.reading}")
        wanted = min(max(length, _READ_CHUNK_BYTES), self.remaining)
        self._window = self._read_at(self.position, wanted)
        self._window_start = self.position
        if len(self._window) < length:
            raise self.truncated()

    def truncated(self) -> GgufTruncated:
        return GgufTruncated(
            f"{self.where}: the file ends at byte {self._size}, inside {self.reading} at byte {self.position}",
            remedy="fetch the file again: it is not complete",
        )

    def u32(self) -> int:
        offset = self.window_offset(4)
        return int(_U32.unpack_from(self._window, offset)[0])

    def u64(self) -> int:
        offset = self.window_offset(8)
        return int(_U64.unpack_from(self._window, offset)[0])

    def take(self, length: int) -> bytes:
        offset = self.window_offset(length)
        return self._window[offset : offset + length]

    def text(self) -> str:
        """A string value; invalid UTF-8 becomes U+FFFD, as some vocabularies in the wild have it."""
        return self.take(self.u64()).decode("utf-8", "replace")

    def texts(self, count: int) -> TextArray:
        """An array of string values; only their lengths are looked at."""
        pieces: list[bytes] = []
        done, length_at = 0, _U64.unpack_from
        while done < count:
            # This inner loop is most of what opening a model takes.
            window, end = self._window, len(self._window)
            start = at = self.position - self._window_start
            while done < count and at + 8 <= end:
                after = at + 8 + length_at(window, at)[0]
                if after > end:
                    break
                at = after
                done += 1
            pieces.append(window[start:at])
            self.position += at - start
            if done < count:  # the window ends inside the next one
                length = self.u64()
                pieces += (_U64.pack(length), self.take(length))
                done += 1
        return TextArray(b"".join(pieces), count)

    def name(self) -> str:
        """A key or a tensor's name: short, and valid UTF-8."""
        length = self.u64()
        if length > _MAX_NAME_BYTES and length <= self.remaining:
            raise GgufMalformed(f"{self.where}: a name of {length} bytes in {self.reading}")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise GgufMalformed(f"{self.where}: a name in {self.reading} is not valid UTF-8") from None


def _read_preamble(cursor: _Cursor) -> int:
    where = cursor.where
    if cursor.remaining == 0:
        raise GgufMalformed(f"{where} is empty", remedy="fetch the file again")
    magic = cursor.take(min(4, cursor.remaining))
    if magic != b"GGUF":
        if magic.lstrip()[:1] == b"<":
            raise GgufMalformed(
                f"{where} is not a GGUF file: it looks like an HTML or XML page",
                remedy="a web page came in place of the model; check the address and fetch it again",
            )
        raise GgufMalformed(f"{where} is not a GGUF file: it starts with {magic!r}")
    version = cursor.u32()
    if version & 0xFFFF == 0 and version:
        raise GgufMalformed(f"{where} is a big-endian GGUF file; only little-endian ones are supported")
    if version not in (2, 3):
        raise GgufMalformed(f"{where} has GGUF version {version}; supported are 2 and 3")
    return version


def _read_count(cursor: _Cursor, things: str, min_bytes_each: int) -> int:
    count = cursor.u64()
    if count * min_bytes_each > min(cursor.remaining, _MAX_HEADER_BYTES):
        raise GgufMalformed(
            f"{cursor.where} claims {count} {things}, too many for the {cursor.remaining} bytes that follow"
        )
    return count


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        cursor.reading = f"metadata entry {index} of {count}"
        key = cursor.name()
        cursor.reading = f"the metadata value {key!r}"
        if key in metadata:
            raise GgufMalformed(f"{cursor.where}: the metadata key {key!r} is there twice")
        metadata[key] = _read_value(cursor, cursor.u32(), depth=0)
    return metadata


def _read_value(cursor: _Cursor, kind: int, depth: int) -> Any:
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _read_array(cursor, depth + 1)
    if kind not in _NUMBERS:
        raise GgufMalformed(f"{cursor.where}: {cursor.reading} has the unknown type {kind}")
    return _read_numbers(cursor, kind, 1)[0]


def _read_array(cursor: _Cursor, depth: int) -> Sequence[Any]:
    kind = cursor.u32()
    length = cursor.u64()
    if depth > _MAX_ARRAY_DEPTH:
        raise GgufMalformed(f"{cursor.where}: {cursor.reading} nests arrays deeper than {_MAX_ARRAY_DEPTH}")
    if kind not in _NUMBERS and kind not in (_STRING, _ARRAY):
        raise GgufMalformed(f"{cursor.where}: {cursor.reading} is an array of the unknown type {kind}")
    min_bytes_each = {_STRING: 8, _ARRAY: 12}.get(kind) or _NUMBER_BYTES[kind]
    if length * min_bytes_each > cursor.remaining:
        raise cursor.truncated()
    if length > _MAX_ARRAY_LENGTH:
        raise GgufMalformed(f"{cursor.where}: {cursor.reading} is an array of {length} values")
    if kind == _STRING:
        return cursor.texts(length)
    if kind == _ARRAY:
        return [_read_array(cursor, depth + 1) for _ in range(length)]
    return _read_numbers(cursor, kind, length)


def _read_numbers(cursor: _Cursor, kind: int, count: int) -> list[Any]:
    data = cursor.take(count * _NUMBER_BYTES[kind])
    if kind == _BOOL:
        return [byte != 0 for byte in data]
    return list(struct.unpack(f"<{count}{_NUMBERS[kind]}", data))


def _read_tensor_entry(cursor: _Cursor, index: int) -> _Entry:
    cursor.reading = f"the entry of tensor {index}"
    name = cursor.name()
    cursor.reading = f"the entry of tensor {name!r}"
    axes = cursor.u32()
    if not 1 <= axes <= 4:
        raise GgufMalformed(f"{cursor.where}: tensor {name!r} has {axes} axes; 1 to 4 are possible")
    shape = tuple(cursor.u64() for _ in range(axes))
    return name, shape, cursor.u32(), cursor.u64()


def _place_tensor(where: str, size: int, part: int, data_start: int, alignment: int, entry: _Entry) -> GgufTensor:
    name, shape, kind, offset = entry
    try:
        type_ = GgmlType(kind)
    except ValueError:
        raise _unsupported_type(where, name, f"number {kind}, which is unknown here") from None
    if type_ not in SUPPORTED_TENSOR_TYPES:
        raise _unsupported_type(where, name, type_.name)
    elements = math.prod(shape)
    if elements == 0 or elements >= 1 << 63:
        raise GgufMalformed(f"{where}: tensor {name!r} has the impossible shape {shape}")
    block_elements, block_bytes = BLOCKS[type_]
    if shape[0] % block_elements:
        raise GgufMalformed(
            f"{where}: tensor {name!r} has rows of {shape[0]} values, "
            f"not a multiple of the {block_elements} values of a {type_.name} block"
        )
    nbytes = elements // block_elements * block_bytes
    if offset % alignment:
        raise GgufMalformed(f"{where}: the offset {offset} of tensor {name!r} is no multiple of {alignment}")
    if data_start + offset + nbytes > size:
        raise GgufTruncated(
            f"{where}: tensor {name!r} ends at byte {data_start + offset + nbytes}, the file at byte {size}",
            remedy="fetch the file again: it is not complete",
        )
    return GgufTensor(name, shape, type_, part, data_start + offset, nbytes)


def _unsupported_type(where: str, name: str, type_: str) -> UnsupportedModel:
    supported = ", ".join(sorted(kind.name for kind in SUPPORTED_TENSOR_TYPES))
    return UnsupportedModel(f"{where}: tensor {name!r} has the type {type_}; supported are {supported}")
