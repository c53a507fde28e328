"""Where the key goes and where not; addresses, and connections that fail."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
import respx

from ppsmoke.errors import (
    PpError,
    UsageError,
    VastKeyRejected,
    VastUnavailable,
)
from ppsmoke.vast.api_key import ApiKey
from ppsmoke.vast.client import VastClient
from tests.vast.kit import KEY, URL, replies, use_client

LIST = f"{URL}/api/v1/instances/"


@pytest.mark.parametrize("name", ["err_401_invalid_key", "err_502_html", "create_connect_error", "create_500_json"])
@respx.mock
def test_the_key_is_nowhere_but_in_its_header(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    route = respx.get(LIST).mock(side_effect=replies(name))
    client_reprs: list[str] = []

    async def work(client: VastClient) -> None:
        client_reprs.append(repr(client) + repr(vars(client)))
        await client.list_instances(labels=["x"])

    with pytest.raises(PpError) as caught:
        use_client(work)
    request = route.calls[0].request
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(request.url) + str(request.content)
    shown = [str(caught.value), repr(caught.value), str(caught.value.remedy), repr(caught.value.__cause__)]
    assert KEY not in "".join([*shown, *client_reprs, caplog.text])
    assert "list" in caplog.text, "the call itself is logged"


@respx.mock
def test_a_key_that_the_service_echoes_is_blacked_out() -> None:
    respx.get(LIST).mock(return_value=httpx.Response(401, json={"error": "auth_error", "msg": f"bad key {KEY}"}))
    with pytest.raises(VastKeyRejected, match=r"bad key \[key\]"):
        use_client(lambda c: c.list_instances())


@respx.mock
def test_a_redirect_is_not_followed() -> None:
    respx.get(LIST).mock(return_value=httpx.Response(308, headers={"location": "https://elsewhere.test/"}))
    elsewhere = respx.get("https://elsewhere.test/")
    with pytest.raises(VastUnavailable):
        use_client(lambda c: c.list_instances(patience_s=0))
    assert not elsewhere.called


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://vast.test", "not protected"),
        ("ftp://vast.test", "not the address"),
        ("vast.test", "not the address"),
        ("https://", "not the address"),
        ("https://vast.test:port", "not the address"),
    ],
)
def test_an_address_that_would_show_the_key_is_refused(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        VastClient(ApiKey(KEY, "test"), base_url=url)


def test_an_address_without_its_scheme_is_given_back_with_one() -> None:
    with pytest.raises(UsageError) as caught:
        VastClient(ApiKey(KEY, "test"), base_url="127.0.0.1:8080")
    assert "http://127.0.0.1:8080" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "url", ["https://me:s3cret@x.example", "https://x.example/?a=s3cret", "https://x.example/#s3cret"]
)
def test_an_address_is_an_address_and_nothing_more(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        VastClient(ApiKey(KEY, "test"), base_url=url)
    assert "https://x.example" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_what_has_the_scheme_alone_is_not_given_back_with_two() -> None:
    with pytest.raises(UsageError) as caught:
        VastClient(ApiKey(KEY, "test"), base_url="http:")
    assert caught.value.remedy == "Correct --vast-url."


def test_this_machine_may_be_asked_without_protection() -> None:
    async def run() -> None:
        async with VastClient(ApiKey(KEY, "test"), base_url="http://127.0.0.1:8080/"):
            pass

    asyncio.run(run())


def test_a_proxy_setting_that_cannot_be_used_is_an_error_of_this_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://proxy")
    with pytest.raises(VastUnavailable, match="proxy"):
        VastClient(ApiKey(KEY, "test"))


def transport_errors(base: type[httpx.TransportError] = httpx.TransportError) -> list[type[httpx.TransportError]]:
    found = [base]
    for child in base.__subclasses__():
        found += transport_errors(child)
    return found


@pytest.mark.parametrize("error", [*transport_errors(), httpx.DecodingError], ids=lambda e: e.__name__)
def test_every_failure_of_the_connection_is_an_error_of_this_tool(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error(f"with {KEY} in it")

    with pytest.raises(VastUnavailable) as caught:
        use_client(lambda c: c.list_instances(patience_s=0), transport=httpx.MockTransport(fail))
    assert KEY not in str(caught.value)


def test_an_answer_without_an_end_is_given_up() -> None:
    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):  # type: ignore[no-untyped-def]
            while True:
                yield b"x" * 1_000_000

    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=Endless()))
    with pytest.raises(VastUnavailable, match="far too long"):
        use_client(lambda c: c.list_instances(patience_s=0), transport=transport)
