"""A file behind an http(s) address: what it is, any range of it, all of it.

Redirects are followed by hand, so that the hub's own headers are seen and its token goes nowhere else.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx

from ppsmoke import __version__
from ppsmoke.errors import ModelFetchFailed
from ppsmoke.models.cache import writing_to
from ppsmoke.models.hub import Hub, is_private, origin
from ppsmoke.wording import without_stop

_T = TypeVar("_T")

_MAX_REDIRECTS = 10
_CHUNK_BYTES = 1 << 16
_PROBE_BYTES = 1 << 22
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_REDIRECTS = (301, 302, 303, 307, 308)
_TIMEOUT = httpx.Timeout(connect=10, read=30, write=30, pool=10)
DEFAULT_PAUSES_S = (0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """What a server says about a file, and its first bytes."""

    url: str
    size: int | None
    sha256: str | None  # where the hub's headers tell
    etag: str | None  # a strong one only
    ranges: bool  # whether parts of it can be asked for
    head: bytes


@dataclass(frozen=True, slots=True)
class _Answer:
    response: httpx.Response
    linked_size: int | None
    linked_sha256: str | None


class Remote:
    """A context manager over one HTTP client. HTTP_PROXY, HTTPS_PROXY and NO_PROXY of this process are honoured.

    `pauses_s`: how long to wait before each further try of a connection that broke; as many tries without any progress
    in between end the fetch.
    """

    def __init__(self, hub: Hub, pauses_s: Sequence[float] | None = None) -> None:
        self._hub = hub
        self._pauses_s = tuple(DEFAULT_PAUSES_S if pauses_s is None else pauses_s)
        try:
            self._client = httpx.Client(timeout=_TIMEOUT, follow_redirects=False)
        except (ImportError, ValueError) as error:  # a proxy variable that httpx cannot use
            raise ModelFetchFailed(f"the proxy settings cannot be used: {error}") from error

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def probe(self, url: str) -> RemoteFile:
        """Ask for the head of a file. Raises ModelFetchFailed with what the server's answer means for the user."""

        def ask() -> RemoteFile:
            with self._get(url, {"Range": f"bytes=0-{_PROBE_BYTES - 1}"}) as answer:
                response = answer.response
                head = _first_bytes(response, _PROBE_BYTES)
                _refuse_web_page(url, response, head)
                partial = response.status_code == 206
                return RemoteFile(
                    url=url,
                    size=answer.linked_size or _total_size(response),
                    sha256=answer.linked_sha256,
                    etag=_strong_etag(response),
                    ranges=partial,
                    head=head,
                )

        return self._retrying(url, ask)

    def read_range(self, file: RemoteFile, offset: int, length: int) -> bytes:
        """`length` bytes of a file that supports ranges (fewer at its end)."""
        if offset + length <= len(file.head):
            return file.head[offset : offset + length]
        headers = {"Range": f"bytes={offset}-{offset + length - 1}"}
        if file.etag is not None:
            headers["If-Range"] = file.etag

        def ask() -> bytes:
            with self._get(file.url, headers) as answer:
                if answer.response.status_code != 206:
                    raise ModelFetchFailed(
                        f"{_host(file.url)} stopped serving ranges of {_name(file.url)}, or the file has changed",
                        remedy="fetch it again",
                    )
                _require_range_start(file.url, answer.response, offset)
                data = _first_bytes(answer.response, length)
                if len(data) < min(length, (file.size or offset + length) - offset):
                    raise httpx.ReadError("the body ended early")
                return data

        return self._retrying(file.url, ask)

    def download(self, file: RemoteFile, sink: BinaryIO, on_bytes: Callable[[int], None]) -> tuple[int, str]:
        """Write the whole file to `sink`; its size and sha256. `on_bytes` is told the bytes so far.

        A connection that breaks is taken up where it broke when the server supports that and the file is unchanged,
        else from the start. Raises ModelFetchFailed, NotEnoughDisk.
        """
        done, best, failures = 0, 0, 0
        digest = hashlib.sha256()
        while True:
            try:
                headers = {"Range": f"bytes={done}-", "If-Range": file.etag} if done and file.etag else {}
                with self._get(file.url, headers) as answer:
                    if not headers or answer.response.status_code != 206:
                        done, digest = 0, hashlib.sha256()
                        with writing_to_sink(sink):
                            sink.seek(0)
                            sink.truncate()
                    else:
                        _require_range_start(file.url, answer.response, done)
                    for chunk in answer.response.iter_raw(_CHUNK_BYTES):
                        if done == 0:
                            _refuse_web_page(file.url, answer.response, chunk)
                        with writing_to_sink(sink):
                            sink.write(chunk)
                        digest.update(chunk)
                        done += len(chunk)
                        on_bytes(done)
                        if file.size is not None and done > file.size:
                            raise ModelFetchFailed(
                                f"{_host(file.url)} sends more of {_name(file.url)} than its {file.size} bytes"
                            )
                if file.size is None or done >= file.size:
                    return done, digest.hexdigest()
                broke: Exception = ModelFetchFailed("the body ended early")
            except (httpx.TransportError, _Unavailable) as error:
                broke = error
            failures = 1 if done > best else failures + 1
            best = max(best, done)
            if failures > len(self._pauses_s):
                raise self._unreachable(file.url, broke, f" after {done} of {file.size or 'unknown'} bytes") from broke
            time.sleep(self._pauses_s[failures - 1])

    def _retrying(self, url: str, ask: Callable[[], _T]) -> _T:
        for pause_s in (*self._pauses_s, None):
            try:
                return ask()
            except httpx.ConnectError as error:  # nobody there: trying again in a second changes nothing
                raise self._unreachable(url, error) from error
            except (httpx.TransportError, _Unavailable) as error:
                if pause_s is None:
                    raise self._unreachable(url, error) from error
                time.sleep(pause_s)
        raise AssertionError("unreachable")

    def _unreachable(self, url: str, error: Exception, when: str = "") -> ModelFetchFailed:
        reason = without_stop(str(error)) or type(error).__name__
        mirror = ""
        if origin(url) == origin(self._hub.endpoint):
            mirror = ", set HF_ENDPOINT to a mirror (and HF_TOKEN where it wants a login)"
        return ModelFetchFailed(
            f"fetching {_name(url)} from {_host(url)} failed{when}: {reason}",
            remedy=f"check the network and the proxy variables{mirror}, or give --model PATH, a .gguf file here",
        )

    @contextlib.contextmanager
    def _get(self, url: str, headers: dict[str, str]) -> Iterator[_Answer]:
        """The answer at the end of the redirects, with what the hub said on the way about size and hash."""
        linked_size: int | None = None
        linked_sha256: str | None = None
        here = url
        for _ in range(_MAX_REDIRECTS + 1):
            request = self._client.build_request(
                "GET",
                here,
                headers={
                    "Accept-Encoding": "identity",
                    "User-Agent": f"pp-smoke-run/{__version__}",
                    **headers,
                    **self._hub.authorization(here),
                },
            )
            response = self._client.send(request, stream=True)
            try:
                if response.headers.get("x-linked-size", "").isdigit():
                    linked_size = int(response.headers["x-linked-size"])
                linked = response.headers.get("x-linked-etag", "").strip('"')
                linked_sha256 = linked if _SHA256.fullmatch(linked) else linked_sha256
                if response.status_code not in _REDIRECTS:
                    _require_success(url, response, self._hub.token is not None)
                    yield _Answer(response, linked_size, linked_sha256)
                    return
                here = _redirect_target(url, here, response)
            finally:
                response.close()
        raise ModelFetchFailed(f"{_host(url)} redirects {_name(url)} more than {_MAX_REDIRECTS} times")


class _Unavailable(Exception):
    """The server answered that it cannot answer now (5xx)."""


@contextlib.contextmanager
def writing_to_sink(sink: BinaryIO) -> Iterator[None]:
    """As cache.writing_to, for a file that is open."""
    with writing_to(str(sink.name)):
        yield


def _first_bytes(response: httpx.Response, length: int) -> bytes:
    data = bytearray()
    for chunk in response.iter_raw(_CHUNK_BYTES):
        data += chunk
        if len(data) >= length:
            break
    return bytes(data[:length])


def _total_size(response: httpx.Response) -> int | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    if response.status_code == 206:
        return int(match[3]) if match else None
    length = response.headers.get("content-length", "")
    return int(length) if length.isdigit() else None


def _strong_etag(response: httpx.Response) -> str | None:
    etag: str | None = response.headers.get("etag")
    return etag if etag and not etag.startswith("W/") else None


def _require_range_start(url: str, response: httpx.Response, start: int) -> None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
    if match is None or int(match[1]) != start:
        raise ModelFetchFailed(f"{_host(url)} answered with another range of {_name(url)} than was asked for")


def _refuse_web_page(url: str, response: httpx.Response, head: bytes) -> None:
    content_type = response.headers.get("content-type", "")
    if head.startswith(b"GGUF"):
        return
    if content_type.startswith(("text/html", "application/xhtml")) or head.lstrip()[:1] == b"<":
        raise ModelFetchFailed(
            f"{_host(url)} gave a web page in place of the model {_name(url)}",
            remedy="check the address: it must be the file's own (on the hub, /resolve/ in place of /blob/), "
            "and may need HF_TOKEN",
        )
    raise ModelFetchFailed(f"what {_host(url)} gave for {_name(url)} is not a GGUF file: it starts with {head[:8]!r}")


def _redirect_target(url: str, here: str, response: httpx.Response) -> str:
    location: str | None = response.headers.get("location")
    if not location:
        raise ModelFetchFailed(f"{_host(here)} redirects {_name(url)} without saying where to")
    target: str = urljoin(here, location)
    if not is_private(target) and is_private(here):
        raise ModelFetchFailed(f"{_host(here)} redirects {_name(url)} from https to an unprotected address")
    return target


def _require_success(url: str, response: httpx.Response, has_token: bool) -> None:
    status = response.status_code
    host, name = _host(url), _name(url)
    if status in (200, 206):
        return
    if status == 401:
        remedy = "the token in HF_TOKEN is not valid there" if has_token else "set HF_TOKEN to a token that may read it"
        raise ModelFetchFailed(f"{host} wants a login for {name} (401)", remedy=remedy)
    if status == 403:
        remedy = "accept the model's terms on its page, then set HF_TOKEN to a token of that account"
        raise ModelFetchFailed(f"{host} does not allow the download of {name} (403)", remedy=remedy)
    if status in (404, 410):
        raise ModelFetchFailed(f"{host} has no file {name} ({status})", remedy="check the address or the model's name")
    if status == 429:
        wait = response.headers.get("retry-after", "")
        when = f"in {wait} seconds" if wait.isdigit() else "in some minutes"
        raise ModelFetchFailed(f"{host} limits downloads just now (429)", remedy=f"try again {when}")
    if status >= 500:
        raise _Unavailable(f"it answered with status {status}")
    raise ModelFetchFailed(f"{host} answered the request for {name} with status {status}")


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2]
