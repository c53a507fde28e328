"""Is what the machines are to install where they will look for it? Asked of a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from ppsmoke import __version__
from ppsmoke.errors import PackageMissing, UsageError
from ppsmoke.vast.package_index import ask_for_package, check_version
from tests.models.kit import FileServer, Reply, always, file_server

PAGE = "/simple/some-node/"
JSON = "application/vnd.pypi.simple.v1+json"
FILES = [
    "some_node-0.9.0-py3-none-any.whl",
    "some_node-1.0-py3-none-any.whl",
    "some-node-1.0.tar.gz",
    "some_node-1.2.3-py3-none-any.whl",
]


@pytest.fixture
def index() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


def url(index: FileServer) -> str:
    return f"http://127.0.0.1:{index.port}/simple/"


def ask(index: FileServer, package: str = "Some_Node==1.2.3", deadline_s: float = 60.0) -> str | None:
    return asyncio.run(ask_for_package(package, url(index), deadline_s=deadline_s))


def as_json(files: list[str]) -> Reply:
    body = {"meta": {"api-version": "1.0"}, "name": "some-node", "files": [{"filename": name} for name in files]}
    return Reply(200, json.dumps(body).encode(), {"Content-Type": JSON})


def as_html(files: list[str]) -> Reply:
    links = "".join(f'<a href="../../packages/{name}#sha256=ab">{name}</a><br>\n' for name in files)
    return Reply(200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), {"Content-Type": "text/html"})


@pytest.mark.parametrize("answer", [as_json, as_html])
@pytest.mark.parametrize("version", ["1.2.3", "1.0", "1.0.0", "0.9"])
def test_a_version_that_is_there_is_found_however_the_index_answers(
    index: FileServer, answer: Callable[[list[str]], Reply], version: str
) -> None:
    index.answers[PAGE] = always(answer(FILES))
    assert ask(index, f"Some_Node=={version}") is None
    (request,) = index.requests
    assert request.path == PAGE
    assert request.headers["accept"].startswith(JSON)


@pytest.mark.parametrize("answer", [as_json, as_html])
def test_a_version_that_is_not_there_is_refused_with_those_that_are(
    index: FileServer, answer: Callable[[list[str]], Reply]
) -> None:
    index.answers[PAGE] = always(answer(["someone_else-1.3-py3-none-any.whl", *FILES]))
    with pytest.raises(PackageMissing) as refused:
        ask(index, "some-node==1.3")
    what = f"127.0.0.1:{index.port} has no version 1.3 of some-node; it has 0.9.0, 1.0, 1.2.3"
    assert str(refused.value) == f"{what}, and the machines are to install some-node==1.3"
    assert refused.value.remedy is not None
    assert "--ship" in refused.value.remedy


def test_a_package_that_the_index_does_not_know_is_refused(index: FileServer) -> None:
    with pytest.raises(PackageMissing, match=f"127.0.0.1:{index.port} has no package some-node, and the machines"):
        ask(index, "some-node==1.2.3")
    index.answers[PAGE] = always(as_json([]))
    with pytest.raises(PackageMissing, match=r"has no version 1\.2\.3 of some-node, and the machines"):
        ask(index, "some-node==1.2.3")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(401), "it answered with status 401"),
        (Reply(503), "it answered with status 503"),
        (Reply(200, b"{", {"Content-Type": JSON}), "its answer cannot be read"),
        (Reply(200, b'{"files": [1]}', {"Content-Type": JSON}), "its answer cannot be read"),
        (Reply(200, b"<form>log in</form>", {"Content-Type": "text/html"}), "its page lists no files"),
        (Reply(302, headers={"Location": PAGE}), "redirects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_an_index_does_not_tell_is_a_doubt_and_no_refusal(index: FileServer, reply: Reply, why: str) -> None:
    index.answers[PAGE] = always(reply)
    doubt = ask(index)
    assert doubt is not None
    assert doubt.startswith(
        f"whether 127.0.0.1:{index.port} has Some_Node==1.2.3, which the machines are to install, is"
    )
    assert why in doubt


def test_an_index_that_moved_is_followed(index: FileServer) -> None:
    index.answers[PAGE] = always(Reply(301, headers={"Location": "/new/some-node/"}))
    index.answers["/new/some-node/"] = always(as_json(FILES))
    assert ask(index) is None


def test_an_index_that_does_not_answer_is_left_at_the_deadline(index: FileServer) -> None:
    over = threading.Event()

    def hang(_: object) -> Reply:
        over.wait(60)
        return Reply(503)

    index.answers[PAGE] = hang
    try:
        doubt = ask(index, deadline_s=0.2)
    finally:
        over.set()
    assert doubt is not None
    assert doubt.endswith("it did not answer within 0.2 s")


def test_an_index_that_cannot_be_reached_is_a_doubt_that_shows_no_login() -> None:
    with file_server() as gone:
        pass
    nobody = f"http://me:hunter22@127.0.0.1:{gone.port}/simple"
    doubt = asyncio.run(ask_for_package("some-node==1.0", nobody, deadline_s=60.0))
    assert doubt is not None
    assert doubt.startswith(f"whether 127.0.0.1:{gone.port} has some-node==1.0")
    assert "hunter22" not in doubt


def test_a_wheel_at_an_address_is_asked_for_itself(index: FileServer) -> None:
    there = f"http://127.0.0.1:{index.port}/files/{FILES[-1]}"
    index.answers[f"/files/{FILES[-1]}"] = always(Reply(200, b"PK"))
    assert ask(index, there) is None
    with pytest.raises(PackageMissing, match=r"has no file some_node-1\.0-py3-none-any\.whl \(404\)"):
        ask(index, f"http://127.0.0.1:{index.port}/files/{FILES[1]}")


@pytest.mark.parametrize("wrong", ["pypi.org/simple", "ftp://x/simple", "https://[x/simple", "https://\x7f/"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an index"):
        asyncio.run(ask_for_package("some-node==1.0", wrong))


def test_a_folder_of_the_machines_cannot_be_looked_into() -> None:
    doubt = asyncio.run(ask_for_package("some-node==1.0", "file:///wheels"))
    assert doubt is not None
    assert "a folder of theirs" in doubt


@pytest.mark.parametrize(
    "package",
    [
        f"pp-smoke-run=={__version__}",
        f"PP_Smoke_Run=={__version__}.0",
        f"https://x.test/pp_smoke_run-{__version__}-py3-none-any.whl?a=b#c",
        "https://x.test/no-wheel-name.whl",
        "another-name==9.9",
    ],
)
def test_a_package_may_be_of_this_version_or_of_another_name(package: str) -> None:
    check_version(package)


@pytest.mark.parametrize("package", ["pp-smoke-run==9.9", "https://x.test/pp_smoke_run-9.9-py3-none-any.whl"])
def test_another_version_of_this_program_is_refused(package: str) -> None:
    with pytest.raises(UsageError, match=f"names version 9.9, and this is version {__version__}") as refused:
        check_version(package)
    assert refused.value.remedy is not None
    assert "--ship" in refused.value.remedy
