"""Fetching by address, against a real server on loopback."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import (
    GgufTruncated,
    ModelCorrupt,
    ModelFetchFailed,
    NotEnoughDisk,
    NotEnoughMemory,
    PpError,
    UnsupportedModel,
)
from ppsmoke.gguf_header import TensorTable
from ppsmoke.model_facts import ModelFacts
from ppsmoke.models import cache as cache_module
from ppsmoke.models import ensure_model, list_models, parse_model, remove_model, verify_model
from tests.models.kit import ENV, FileServer, Recorder, Reply, Request, always, fetch, file_answer, left_over, then


def test_fetch_then_offline(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    progress = Recorder()
    path = fetch(server, cache, progress=progress)
    assert path.read_bytes() == tiny_bytes
    assert progress.updates[0] == ("fetching tiny.gguf", 0, len(tiny_bytes))
    assert progress.updates[-1] == ("fetching tiny.gguf", len(tiny_bytes), len(tiny_bytes))
    (model,) = list_models(cache)
    assert (model.path, model.nbytes, model.id) == (path, len(tiny_bytes), server.url + "/m/tiny.gguf")
    assert model.files[0].sha256 == hashlib.sha256(tiny_bytes).hexdigest()

    asked = len(server.requests)
    assert fetch(server, cache) == path
    assert len(server.requests) == asked


def test_two_addresses_with_one_file_name_do_not_meet(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/a/tiny.gguf"] = server.answers["/b/tiny.gguf"] = file_answer(tiny_bytes)
    assert fetch(server, cache, "/a/tiny.gguf") != fetch(server, cache, "/b/tiny.gguf")


def test_a_server_without_ranges_or_sizes(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = always(Reply(200, tiny_bytes, length=None))
    progress = Recorder()
    assert fetch(server, cache, progress=progress).read_bytes() == tiny_bytes
    assert progress.updates[-1] == ("fetching tiny.gguf", len(tiny_bytes), None)


def test_a_foreign_architecture_is_refused_before_the_file_is_fetched(
    server: FileServer, cache: Path, tmp_path: Path
) -> None:
    data = write_tiny_gguf(tmp_path / "moe.gguf", blocks=8, overrides={"llama.expert_count": 4}).read_bytes()
    padded = data + bytes(8 << 20)
    server.answers["/m/moe.gguf"] = file_answer(padded)
    with pytest.raises(UnsupportedModel, match="4 experts"):
        fetch(server, cache, "/m/moe.gguf")
    assert all(request.range is not None for request in server.requests)
    assert left_over(cache) == []


def test_a_model_that_the_caller_refuses_by_its_headers_is_not_fetched(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes + bytes(8 << 20))

    def judge(facts: ModelFacts, table: TensorTable) -> None:
        raise NotEnoughMemory(f"{facts.num_layers} blocks, {len(table.tensors)} tensors are too many")

    with pytest.raises(NotEnoughMemory, match=r"8 blocks, \d+ tensors are too many"):
        ensure_model(parse_model(f"{server.url}/m/tiny.gguf"), cache_dir=cache, env=ENV, judge=judge)
    assert all(request.range is not None for request in server.requests)
    assert left_over(cache) == []


def test_a_foreign_model_from_a_server_without_ranges_leaves_nothing(
    server: FileServer, cache: Path, tmp_path: Path
) -> None:
    data = write_tiny_gguf(tmp_path / "moe.gguf", overrides={"llama.expert_count": 4}).read_bytes()
    server.answers["/m/moe.gguf"] = file_answer(data, ranges=False)
    with pytest.raises(UnsupportedModel, match="4 experts"):
        fetch(server, cache, "/m/moe.gguf")
    assert left_over(cache) == []


def test_redirects_are_followed_and_the_hubs_own_headers_seen(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    sha256 = hashlib.sha256(tiny_bytes).hexdigest()
    linked = {"X-Linked-Size": str(len(tiny_bytes)), "X-Linked-ETag": f'"{sha256}"'}
    server.answers["/m/tiny.gguf"] = always(Reply(302, headers={"Location": "/cdn/xyz?sig=1", **linked}))
    server.answers["/cdn/xyz"] = file_answer(tiny_bytes)
    assert fetch(server, cache).read_bytes() == tiny_bytes

    remove_model(server.url + "/m/tiny.gguf", cache)
    changed = tiny_bytes[:-1] + bytes((tiny_bytes[-1] ^ 1,))
    server.answers["/cdn/xyz"] = file_answer(changed)
    with pytest.raises(ModelFetchFailed, match=f"expected is {sha256}"):
        fetch(server, cache)
    assert left_over(cache) == []


def test_the_token_goes_to_the_hub_and_nowhere_else(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/org/repo/resolve/main/tiny.gguf"] = always(
        Reply(302, headers={"Location": f"http://localhost:{server.port}/cdn/tiny.gguf"})
    )
    server.answers["/cdn/tiny.gguf"] = file_answer(tiny_bytes)
    env = ENV | {"HF_ENDPOINT": server.url + "/", "HF_TOKEN": "hf_secret"}
    fetch(server, cache, "/org/repo/resolve/main/tiny.gguf", env=env)
    sent = {request.path: request.headers.get("authorization") for request in server.requests}
    assert sent == {"/org/repo/resolve/main/tiny.gguf": "Bearer hf_secret", "/cdn/tiny.gguf": None}


def test_a_token_of_another_hub_is_not_sent(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    fetch(server, cache, env=ENV | {"HF_TOKEN": "hf_secret"})
    assert all("authorization" not in request.headers for request in server.requests)


def test_endless_redirects(server: FileServer, cache: Path) -> None:
    server.answers["/m/tiny.gguf"] = always(Reply(302, headers={"Location": "/m/tiny.gguf"}))
    with pytest.raises(ModelFetchFailed, match="more than 10 times"):
        fetch(server, cache)


def breaking(data: bytes, after: int) -> Any:
    def answer(request: Request) -> Reply:
        reply = file_answer(data)(request)
        reply.cut = after
        return reply

    return answer


def body_requests(server: FileServer) -> list[tuple[int, int | None] | None]:
    """The ranges asked for, without the probe."""
    return [request.range for request in server.requests[1:]]


def test_a_broken_connection_is_taken_up_where_it_broke(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    whole = file_answer(tiny_bytes)
    server.answers["/m/tiny.gguf"] = then(whole, breaking(tiny_bytes, 700_000), breaking(tiny_bytes, 300_000), whole)
    assert fetch(server, cache).read_bytes() == tiny_bytes
    asked = body_requests(server)
    assert asked[0] is None
    starts = [wanted[0] for wanted in asked[1:] if wanted]
    assert len(starts) == 2
    assert 0 < starts[0] <= 700_000 < starts[1] <= 1_000_000
    assert server.requests[-1].headers["if-range"] == '"one"'


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    changed = bytearray(tiny_bytes)
    changed[-1] ^= 1
    new = file_answer(bytes(changed), etag='"two"')
    server.answers["/m/tiny.gguf"] = then(file_answer(tiny_bytes), breaking(tiny_bytes, 700_000), new)
    assert fetch(server, cache).read_bytes() == bytes(changed)


def test_without_an_etag_nothing_is_taken_up(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    """The rest might be of another file."""

    def without_etag(answer: Any) -> Any:
        def answer_without(request: Request) -> Reply:
            reply = answer(request)
            del reply.headers["ETag"]
            return reply

        return answer_without

    whole = without_etag(file_answer(tiny_bytes))
    server.answers["/m/tiny.gguf"] = then(whole, without_etag(breaking(tiny_bytes, 700_000)), whole)
    assert fetch(server, cache).read_bytes() == tiny_bytes
    assert body_requests(server) == [None, None]


def test_a_connection_that_always_breaks_ends_with_a_sentence(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    server.answers["/m/tiny.gguf"] = then(
        file_answer(tiny_bytes), breaking(tiny_bytes, 100_000), lambda request: Reply(200, tiny_bytes, cut=0)
    )
    with pytest.raises(ModelFetchFailed, match=r"fetching tiny.gguf from 127.0.0.1:\d+ failed after \d+ of \d+ bytes"):
        fetch(server, cache)
    assert left_over(cache) == []


def test_a_body_shorter_than_announced_by_the_hub(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(
        tiny_bytes[:-5000], ranges=False, **{"X-Linked-Size": str(len(tiny_bytes))}
    )
    with pytest.raises(ModelFetchFailed, match="the body ended early"):
        fetch(server, cache)
    assert left_over(cache) == []


def test_a_truncated_file_on_the_server(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes[:-5000])
    with pytest.raises(GgufTruncated, match="tensor"):
        fetch(server, cache)
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes[:-5000], ranges=False)
    with pytest.raises(GgufTruncated, match="tensor"):
        fetch(server, cache)
    assert left_over(cache) == []


def test_a_server_that_sends_more_than_it_said(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    longer = always(Reply(200, tiny_bytes + bytes(4 << 20), length=None))
    server.answers["/m/tiny.gguf"] = then(file_answer(tiny_bytes), longer)
    with pytest.raises(ModelFetchFailed, match="sends more"):
        fetch(server, cache)
    assert left_over(cache) == []


@pytest.mark.parametrize(
    ("reply", "message", "remedy"),
    [
        (
            Reply(200, b"<html>log in</html>", {"Content-Type": "text/html; charset=utf-8"}),
            "gave a web page",
            "/resolve/",
        ),
        (Reply(200, b"\n<!DOCTYPE html>"), "gave a web page", "/resolve/"),
        (Reply(200, b"version https://git-lfs"), "is not a GGUF file: it starts with b'version '", None),
        (Reply(200, b""), "is not a GGUF file", None),
        (Reply(401), r"wants a login for tiny.gguf \(401\)", "set HF_TOKEN"),
        (Reply(403), r"does not allow .* \(403\)", "accept the model's terms"),
        (Reply(404), r"has no file tiny.gguf \(404\)", "check the address"),
        (Reply(429, headers={"Retry-After": "40"}), r"limits downloads .* \(429\)", "in 40 seconds"),
        (Reply(503), "status 503", "check the network"),
        (Reply(418), "status 418", None),
        (Reply(302), "without saying where to", None),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else "",
)
def test_what_servers_answer_in_place_of_a_model(
    server: FileServer, cache: Path, reply: Reply, message: str, remedy: str | None
) -> None:
    server.answers["/m/tiny.gguf"] = always(reply)
    with pytest.raises(ModelFetchFailed, match=message) as caught:
        fetch(server, cache)
    assert remedy is None or remedy in (caught.value.remedy or "")
    assert left_over(cache) == []


def test_a_short_bad_hour_of_the_server_is_survived(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    good, bad = file_answer(tiny_bytes), always(Reply(502))
    server.answers["/m/tiny.gguf"] = then(bad, good, bad, good)
    assert fetch(server, cache).read_bytes() == tiny_bytes


def test_nobody_there(server: FileServer, cache: Path) -> None:
    unused = server.url.replace(str(server.port), "1")
    with pytest.raises(ModelFetchFailed, match=r"fetching tiny.gguf from 127.0.0.1:1 failed") as caught:
        ensure_model(parse_model(f"{unused}/tiny.gguf"), cache_dir=cache, env=ENV)
    assert "network" in (caught.value.remedy or "")
    assert "--model PATH" in (caught.value.remedy or "")
    assert "HF_ENDPOINT" not in (caught.value.remedy or "")
    with pytest.raises(ModelFetchFailed) as caught:
        ensure_model(parse_model(f"{unused}/tiny.gguf"), cache_dir=cache, env={**ENV, "HF_ENDPOINT": unused})
    for name in ("HF_ENDPOINT", "HF_TOKEN", "--model PATH"):
        assert name in (caught.value.remedy or "")


def test_a_proxy_setting_that_cannot_be_used(server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://x")
    with pytest.raises(ModelFetchFailed, match="proxy settings"):
        fetch(server, cache)


def test_http_proxy_is_used(
    server: FileServer, cache: Path, tiny_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy gets the whole address in the request line; here it answers by itself.
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    ensure_model(parse_model("http://localhost:9/m/tiny.gguf"), cache_dir=cache, env=ENV)
    assert set(server.paths()) == {"http://localhost:9/m/tiny.gguf"}


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_free_disk_is_checked_before_the_fetch(
    server: FileServer, cache: Path, tiny_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Usage(10**9, 10**9, 1000))
    with pytest.raises(NotEnoughDisk, match=r"needs 1\.4 MB in .*cache.* where 1\.0 kB are free"):
        fetch(server, cache)
    assert len(server.requests) == 1


class _FullDisk:
    """A file on a disk that takes no more than a few bytes."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.name = handle.name

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def test_a_disk_that_fills_up_leaves_nothing(
    server: FileServer, cache: Path, tiny_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    real_open = Path.open

    def open_(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        handle = real_open(self, mode, *args, **kwargs)
        return _FullDisk(handle) if ".partial-" in self.name and "b" in mode and "x" in mode else handle

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(NotEnoughDisk, match="is full"):
        fetch(server, cache)
    assert left_over(cache) == []


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_nothing(
    server: FileServer, cache: Path, tiny_bytes: bytes, interruption: type[BaseException]
) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)

    def interrupt(label: str, done: int) -> None:
        if done:
            raise interruption

    with pytest.raises(interruption):
        fetch(server, cache, progress=Recorder(interrupt))
    assert left_over(cache) == []
    assert fetch(server, cache).read_bytes() == tiny_bytes


def test_a_cache_that_cannot_be_written(server: FileServer, tmp_path: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    (tmp_path / "file").touch()
    with pytest.raises(PpError, match="cannot be written") as caught:
        fetch(server, tmp_path / "file")
    assert "PP_SMOKE_CACHE" in (caught.value.remedy or "")


def test_two_fetches_at_once_fetch_once(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    first_is_fetching, second_waits = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        first_is_fetching.set()
        assert second_waits.wait(30)
        return file_answer(tiny_bytes)(request)

    server.answers["/m/tiny.gguf"] = slow
    results: list[Path] = []
    first = threading.Thread(target=lambda: results.append(fetch(server, cache)))
    first.start()
    assert first_is_fetching.wait(30)

    class Waiter(Recorder):
        def note(self, message: str) -> None:
            super().note(message)
            second_waits.set()

    waiter = Waiter()
    results.append(fetch(server, cache, progress=waiter))
    first.join()
    assert results[0] == results[1]
    assert waiter.notes == [f"another process is fetching {server.url}/m/tiny.gguf; waiting for it"]
    assert sum(request.range is None for request in server.requests) == 1


FETCHER = """
import sys
from pathlib import Path
from ppsmoke.models import ensure_model, parse_model
print("begun", flush=True)
ensure_model(parse_model(sys.argv[1]), cache_dir=Path(sys.argv[2]), env={"HOME": "/nonexistent"})
"""


def test_a_killed_fetch_neither_blocks_the_next_nor_stays(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    in_body, hold = threading.Event(), threading.Event()

    def stuck(request: Request) -> Reply:
        if request.range is None:
            in_body.set()
            assert hold.wait(60)
        return file_answer(tiny_bytes)(request)

    server.answers["/m/tiny.gguf"] = stuck
    address = server.url + "/m/tiny.gguf"
    child = subprocess.Popen([sys.executable, "-c", FETCHER, address, str(cache)], stdout=subprocess.DEVNULL)
    try:
        assert in_body.wait(60)
    finally:
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert [name for name in left_over(cache) if ".partial-" in name]
    hold.set()
    assert fetch(server, cache).read_bytes() == tiny_bytes
    assert [name for name in left_over(cache) if ".partial-" in name] == []


def test_partials_of_dead_processes_are_swept_in_other_folders_too(
    server: FileServer, cache: Path, tiny_bytes: bytes
) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    other = cache / "models" / "other"
    other.mkdir(parents=True)
    dead, alive = other / f"x.gguf.partial-{gone.pid}-00aa", other / f"y.gguf.partial-{os.getpid()}-00bb"
    dead.touch()
    alive.touch()
    path = fetch(server, cache)
    assert not dead.exists()
    assert alive.exists()

    # In a folder whose lock we hold nobody else writes, whatever process has that number now.
    path.unlink()
    stale = path.with_name(f"tiny.gguf.partial-{os.getpid()}-00cc")
    stale.touch()
    fetch(server, cache)
    assert not stale.exists()


def test_a_cached_file_of_another_size_is_corrupt(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    path = fetch(server, cache)
    path.write_bytes(tiny_bytes[:-1])
    with pytest.raises(
        ModelCorrupt, match=f"has {len(tiny_bytes) - 1} bytes, {len(tiny_bytes)} were fetched"
    ) as caught:
        fetch(server, cache)
    assert "models remove" in (caught.value.remedy or "")
    remove_model(server.url + "/m/tiny.gguf", cache)
    assert fetch(server, cache).read_bytes() == tiny_bytes


def test_a_flipped_bit_is_found_when_hashes_are_asked_for(server: FileServer, cache: Path, tiny_bytes: bytes) -> None:
    server.answers["/m/tiny.gguf"] = file_answer(tiny_bytes)
    path = fetch(server, cache)
    (model,) = list_models(cache)
    verify_model(model, hashes=True)
    path.write_bytes(tiny_bytes[:-1] + bytes((tiny_bytes[-1] ^ 1,)))
    verify_model(model, hashes=False)
    with pytest.raises(ModelCorrupt, match="sha256"):
        verify_model(model, hashes=True)


def test_no_transport_error_of_httpx_is_unmapped(
    server: FileServer, cache: Path, tiny_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def subclasses(kind: type[Any]) -> set[type[Any]]:
        return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))

    for kind in subclasses(httpx.TransportError):

        def send(*_: object, kind: type[httpx.TransportError] = kind, **__: object) -> httpx.Response:
            raise kind("broken")

        monkeypatch.setattr(httpx.Client, "send", send)
        with pytest.raises(ModelFetchFailed, match="broken"):
            fetch(server, cache)


def test_free_disk_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    cache_module.require_free_disk(tmp_path / "a" / "b", 1, "it")
