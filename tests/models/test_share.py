"""A stage's share of a model by range requests, against a real server on loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke import gguf_header
from ppsmoke.errors import GgufMalformed, GgufTruncated, ModelFetchFailed, ModelNotFound, NotEnoughDisk
from ppsmoke.gguf_file import open_gguf
from ppsmoke.gguf_share import record_path
from ppsmoke.model_facts import read_model_facts, stage_tensors
from ppsmoke.models import ensure_model, ensure_share, header_only, parse_model, remote, stage_share
from ppsmoke.models import share as share_module
from ppsmoke.models.share import Wanted
from tests.models.kit import ENV, Answer, FileServer, Recorder, Reply, Request, always, file_answer, then

PATH = "/m/tiny.gguf"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests for a tiny model: neither the first look at it nor its header bring half of it along."""
    monkeypatch.setattr(remote, "_PROBE_BYTES", 4096)
    monkeypatch.setattr(gguf_header, "_READ_CHUNK_BYTES", 4096)
    monkeypatch.setattr(share_module, "PIECE_BYTES", 1 << 16)


def share(server: FileServer, cache: Path, wanted: Wanted, path: str = PATH, **options: Recorder) -> Path:
    return ensure_share(parse_model(server.url + path), wanted, cache_dir=cache, env=ENV, **options)


def sent_bytes(server: FileServer, data: bytes) -> int:
    total = 0
    for request in server.requests:
        first, last = request.range or (0, None)
        total += (min(last, len(data) - 1) if last is not None else len(data) - 1) - first + 1
    return total


def test_a_stage_gets_its_tensors_and_little_else(server: FileServer, cache: Path, tmp_path: Path) -> None:
    whole = write_tiny_gguf(tmp_path / "whole.gguf", blocks=12)
    data = whole.read_bytes()
    server.answers[PATH] = file_answer(data)
    path = share(server, cache, stage_share(4, 6))
    with open_gguf(path) as got, open_gguf(whole) as full:
        names = stage_tensors(read_model_facts(got), 4, 6)
        for name in names:
            np.testing.assert_array_equal(got.raw(name), full.raw(name))
        needed = sum(full.tensors[name].nbytes for name in names)
    assert needed < sent_bytes(server, data) <= needed + (1 << 16)  # the first look and the header
    assert path.stat().st_size == len(data)
    assert path.stat().st_blocks * 512 < len(data) / 2  # the rest is holes


def test_what_was_not_fetched_is_refused_by_name_and_never_read_as_zeros(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    path = share(server, cache, stage_share(2, 3))
    with open_gguf(path) as gguf:
        for read in (gguf.raw, gguf.dequantize, lambda name: gguf.dequantize_rows(name, [0])):
            with pytest.raises(ModelNotFound, match=r"without the tensor 'blk\.7\.ffn_down\.weight'"):
                read("blk.7.ffn_down.weight")


def test_the_header_alone_is_enough_to_plan(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    path = share(server, cache, header_only)
    with open_gguf(path) as gguf:
        assert read_model_facts(gguf).num_layers == 8
        assert gguf.metadata["tokenizer.ggml.tokens"]


def test_a_later_stage_fetches_only_what_is_missing(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    first = share(server, cache, stage_share(0, 4))
    server.requests.clear()
    second = share(server, cache, stage_share(3, 5))
    assert first == second
    with open_gguf(second) as gguf:
        one_block = sum(gguf.tensors[name].nbytes for name in stage_tensors(read_model_facts(gguf), 4, 5))
        gguf.raw("blk.0.attn_q.weight")
        gguf.raw("blk.4.attn_q.weight")
    assert sent_bytes(server, tiny_bytes) <= one_block + 4096
    server.requests.clear()
    share(server, cache, stage_share(0, 5))
    assert len(server.requests) == 1  # whether it is still the same file


def test_a_cut_off_fetch_goes_on_where_it_was(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    whole = file_answer(tiny_bytes)
    left = 12

    def answer(request: Request) -> Reply:
        nonlocal left
        left -= 1
        return whole(request) if left > 0 else Reply(404)

    server.answers[PATH] = answer
    with pytest.raises(ModelFetchFailed, match="404"):
        share(server, cache, stage_share(0, 8))
    before = sent_bytes(server, tiny_bytes)
    server.answers[PATH] = whole
    server.requests.clear()
    path = share(server, cache, stage_share(0, 8))
    assert path.read_bytes() == tiny_bytes
    assert sent_bytes(server, tiny_bytes) < len(tiny_bytes) - before + 4096 * 2 + (1 << 16)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda data: file_answer(data, etag='"two"'), id="another-etag"),
        pytest.param(lambda data: file_answer(data, etag='W/"weak"'), id="no-strong-etag"),
    ],
)
def test_a_file_that_changed_is_fetched_anew(
    server: FileServer, cache: Path, tiny_bytes: bytes, changed: Callable[[bytes], Answer]
) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    share(server, cache, stage_share(0, 2))
    other = bytearray(tiny_bytes)
    other[-200_000:] = bytes(200_000)
    server.answers[PATH] = changed(bytes(other))
    path = share(server, cache, stage_share(0, 8))
    assert path.read_bytes() == bytes(other)


def test_a_file_that_changes_while_it_is_fetched(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = then(
        file_answer(tiny_bytes), file_answer(tiny_bytes), file_answer(tiny_bytes), file_answer(tiny_bytes, etag='"two"')
    )
    with pytest.raises(ModelFetchFailed, match="or the file has changed"):
        share(server, cache, stage_share(0, 8))


def test_a_server_that_gives_no_ranges(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = file_answer(tiny_bytes, ranges=False)
    with pytest.raises(ModelFetchFailed, match="gives no parts of files"):
        share(server, cache, stage_share(0, 2))


def test_a_range_that_breaks_off_is_asked_for_again(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    whole = file_answer(tiny_bytes)
    broken = 3

    def answer(request: Request) -> Reply:
        nonlocal broken
        reply = whole(request)
        if request.range and request.range[0] > 0 and broken:
            broken -= 1
            reply.cut = len(reply.body) // 2
        return reply

    server.answers[PATH] = answer
    assert share(server, cache, stage_share(0, 8)).read_bytes() == tiny_bytes


def test_another_range_than_asked_for_is_refused(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    whole = file_answer(tiny_bytes)

    def answer(request: Request) -> Reply:
        reply = whole(request)
        if request.range and request.range[0] > 0:
            reply.headers["Content-Range"] = f"bytes 0-{len(reply.body) - 1}/{len(tiny_bytes)}"
        return reply

    server.answers[PATH] = answer
    with pytest.raises(ModelFetchFailed, match="another range"):
        share(server, cache, stage_share(0, 8))


def test_a_web_page_or_a_truncated_file_is_named(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = always(Reply(200, b"<html>sorry</html>", {"Content-Type": "text/html"}))
    with pytest.raises(ModelFetchFailed, match="web page"):
        share(server, cache, stage_share(0, 2))
    server.answers[PATH] = file_answer(tiny_bytes[:-1000])
    with pytest.raises(GgufTruncated):
        share(server, cache, stage_share(0, 2))


def test_a_split_model_takes_each_part_only_where_it_is_needed(server: FileServer, cache: Path, tmp_path: Path) -> None:
    first = write_tiny_gguf(tmp_path / "split.gguf", blocks=8, split_max_tensors=30)
    parts = sorted(first.parent.glob("split-*.gguf"))
    for part in parts:
        server.answers[f"/m/{part.name}"] = file_answer(part.read_bytes())
    path = share(server, cache, stage_share(7, 8), f"/m/{first.name}")
    with open_gguf(path) as got, open_gguf(first) as full:
        for name in stage_tensors(read_model_facts(got), 7, 8):
            np.testing.assert_array_equal(got.raw(name), full.raw(name))
        with pytest.raises(ModelNotFound):
            got.raw("blk.1.attn_q.weight")


def test_a_whole_model_in_the_cache_serves_as_it_is(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    whole = ensure_model(parse_model(server.url + PATH), cache_dir=cache, env=ENV)
    server.requests.clear()
    assert share(server, cache, stage_share(0, 2)) == whole
    assert not server.requests


def test_a_torn_record_does_not_pass_for_a_whole_file(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    path = share(server, cache, stage_share(0, 2))
    record_path(path).write_text('{"size": 1')
    with pytest.raises(GgufMalformed, match="record of a partly fetched model"):
        open_gguf(path)
    share(server, cache, stage_share(0, 2))
    with open_gguf(path) as gguf:
        gguf.raw("blk.1.attn_q.weight")


def test_a_disk_without_room_is_said_before_anything_is_fetched(
    server: FileServer, cache: Path, tiny_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)

    def no_room(folder: Path, nbytes: int, what: str) -> None:
        raise NotEnoughDisk(f"{what} needs {nbytes}")

    monkeypatch.setattr(share_module, "require_free_disk", no_room)
    with pytest.raises(NotEnoughDisk, match=r"the share of tiny\.gguf"):
        share(server, cache, stage_share(0, 2))


def test_progress_goes_to_the_share_and_not_to_the_whole_file(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    server.answers[PATH] = file_answer(tiny_bytes)
    progress = Recorder()
    share(server, cache, stage_share(0, 2), progress=progress)
    label, done, total = progress.updates[-1]
    assert label == "fetching the share of tiny.gguf"
    assert total is not None
    assert done == total < len(tiny_bytes)
