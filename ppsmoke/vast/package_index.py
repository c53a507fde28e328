"""Will the machines find what they are to install? Their index is asked before anything is rented, as pip will ask it.

The simple repository API (PEP 503, PEP 691): one page for a project, with its files.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import httpx

from ppsmoke import __version__
from ppsmoke.errors import PackageMissing, UsageError
from ppsmoke.vast.stage_request import is_address
from ppsmoke.wording import without_stop

USUAL_INDEX = "https://pypi.org/simple"
"""Of a pip to which nobody said otherwise."""
DEADLINE_S = 10.0

_JSON = "application/vnd.pypi.simple.v1+json"
_HEADERS = {"Accept": f"{_JSON}, text/html;q=0.5", "User-Agent": f"pp-smoke-run/{__version__}"}
_MOST_BYTES = 1 << 24
_SHOWN_VERSIONS = 3
_SOURCES = (".tar.gz", ".zip")
_GONE = (404, 410)
_NO_ANSWER = (httpx.RequestError, TimeoutError, ImportError, ValueError)  # the last two: a proxy that httpx cannot use


def check_version(package: str) -> None:
    """Refuse a package that says that it is another version of this program. Raises UsageError.

    `package`: `name==version` or the address of a wheel, as is_pinned has it.
    """
    name, version = _named(package)
    if _project(name) == "pp-smoke-run" and _canonical(version) != _canonical(__version__):
        raise UsageError(
            f"--package names version {version}, and this is version {__version__}: all parts of a run must be alike",
            remedy=f"Name version {__version__}, or give --ship: it has the machines install what runs here.",
        )


async def ask_for_package(package: str, index_url: str = "", *, deadline_s: float = DEADLINE_S) -> str | None:
    """None when it is there; a sentence when that is not to be known from here.

    `package`: as `check_version` has it. `index_url`: empty for the usual one.

    Raises PackageMissing when it is not there, UsageError for what is no address.
    """
    if is_address(package):
        return await _ask_for_wheel(package, deadline_s)
    name, version = _named(package)
    index = index_url or USUAL_INDEX
    host = _host(index)
    if _scheme(index) == "file":
        return _unknown(package, index, "that is a folder of theirs")
    try:
        async with asyncio.timeout(deadline_s):
            answer, body = await _get(f"{index.rstrip('/')}/{_project(name)}/")
    except _NO_ANSWER as error:
        return _unknown(package, host, _why(error, deadline_s))
    if answer.status_code in _GONE:
        raise _not_there(package, f"{host} has no package {name}")
    if answer.status_code != 200:
        return _unknown(package, host, f"it answered with status {answer.status_code}")
    as_json = answer.headers.get("content-type", "").partition(";")[0] == _JSON
    try:
        versions = _versions(_json_files(body) if as_json else _html_files(body), _project(name))
    except ValueError:
        return _unknown(package, host, "its answer cannot be read")
    if not versions and not as_json:
        return _unknown(package, host, "its page lists no files, as that of a login would")
    if _canonical(version) in map(_canonical, versions):
        return None
    has = f"; it has {', '.join(versions[-_SHOWN_VERSIONS:])}" if versions else ""
    raise _not_there(package, f"{host} has no version {version} of {name}{has}")


async def _ask_for_wheel(url: str, deadline_s: float) -> str | None:
    host, name = _host(url), urlsplit(url).path.rpartition("/")[2]
    try:
        async with asyncio.timeout(deadline_s):
            answer, _ = await _get(url, most_bytes=0)
    except _NO_ANSWER as error:
        return _unknown(name, host, _why(error, deadline_s))
    if answer.status_code in _GONE:
        raise _not_there(name, f"{host} has no file {name} ({answer.status_code})")
    if answer.status_code != 200:
        return _unknown(name, host, f"it answered with status {answer.status_code}")
    return None


async def _get(url: str, most_bytes: int = _MOST_BYTES) -> tuple[httpx.Response, bytes]:
    """The answer at the end of redirects, with its first bytes. Raises UsageError for what is no address."""
    if _scheme(url) not in ("https", "http"):
        raise _no_address(url)
    try:
        async with (
            httpx.AsyncClient(follow_redirects=True, timeout=None) as client,  # the caller's deadline is for all of it
            client.stream("GET", url, headers=_HEADERS) as answer,
        ):
            body = bytearray()
            if answer.status_code == 200 and most_bytes:
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > most_bytes:
                        break
            return answer, bytes(body)
    except httpx.InvalidURL:
        raise _no_address(url) from None


def _json_files(body: bytes) -> list[str]:
    try:
        return [str(file["filename"]) for file in json.loads(body)["files"]]
    except (KeyError, TypeError):
        raise ValueError("no list of files") from None


def _html_files(body: bytes) -> list[str]:
    anchors = _Anchors()
    anchors.feed(body.decode(errors="replace"))
    return anchors.files


class _Anchors(HTMLParser):
    """`files`: the last part of every address that is linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href") if tag == "a" else None
        if address:
            self.files.append(unquote(address.partition("#")[0].partition("?")[0].rpartition("/")[2]))


def _versions(files: Iterable[str], project: str) -> list[str]:
    """Of the wheels and source archives of a project, each once, in the order in which they are listed."""
    named = (_of_file(file) for file in files)
    return list(dict.fromkeys(version for name, version in named if _project(name) == project))


def _of_file(file: str) -> tuple[str, str]:
    """Name and version; empty for a file that is no package."""
    if file.endswith(".whl"):
        parts = file.split("-")
        return (parts[0], parts[1]) if len(parts) >= 5 else ("", "")
    for ending in _SOURCES:
        if file.endswith(ending):
            name, _, version = file.removesuffix(ending).rpartition("-")
            return name, version
    return "", ""


def _named(package: str) -> tuple[str, str]:
    if is_address(package):
        return _of_file(unquote(urlsplit(package).path.rpartition("/")[2]))
    name, _, version = package.partition("==")
    return name, version


def _project(name: str) -> str:
    """As an index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _canonical(version: str) -> str:
    """1.0 and 1.0.0 are one version."""
    return re.sub(r"(\.0+)+$", "", version.lower())


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def _host(url: str) -> str:
    """Without what may be a login."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or url
    except ValueError:
        return url


def _why(error: Exception, deadline_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {deadline_s:g} s"
    return without_stop(str(error)) or type(error).__name__


def _no_address(url: str) -> UsageError:
    return UsageError(f"{_host(url)} is not the address of an index", remedy="Give it as https://HOST/simple.")


def _unknown(package: str, host: str, why: str) -> str:
    return f"whether {host} has {package}, which the machines are to install, is not known: {why}"


def _not_there(package: str, what: str) -> PackageMissing:
    return PackageMissing(f"{what}, and the machines are to install {package}")
