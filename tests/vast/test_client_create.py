"""Renting: sent once, and what a failure says about whether an instance exists."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress

import httpx
import pytest
import respx

from ppsmoke.errors import CreateFailed, VastCreditTooLow, VastKeyRejected
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.records import CreateRequest
from tests.vast.kit import URL, Clock, replies, sample_response, samples, use_client

CREATE = f"{URL}/api/v0/asks/31224551/"
REQUEST = CreateRequest(
    label="pp-smoke-7f3c9a1e04b2-0-k2q8",
    image="python:3.12-slim-bookworm",
    disk_gb=16,
    script="echo hello",
    env={"STAGE": "0", "PP_JOIN_TOKEN": "SECRET-join"},
)


@respx.mock
def test_a_create_gives_the_new_instances_id() -> None:
    route = respx.put(CREATE).mock(side_effect=replies("create_ok"))
    assert use_client(lambda c: c.create(31224551, REQUEST)) == 41873205
    assert json.loads(route.calls[0].request.content) == {
        "client_id": "me",
        "image": "python:3.12-slim-bookworm",
        "env": {
            "STAGE": "0",
            "PP_JOIN_TOKEN": "SECRET-join",
            "PP_INSTANCE_LABEL": "pp-smoke-7f3c9a1e04b2-0-k2q8",
        },
        "disk": 16,
        "label": "pp-smoke-7f3c9a1e04b2-0-k2q8",
        "runtype": "args",
        "onstart": "bash",
        "args": ["-c", "echo hello"],
        "target_state": "running",
        "cancel_unavail": True,
    }


# (sample, outcome, instance made, another offer may serve, requests sent)
FAILURES = [
    ("create_404_no_such_ask", "not_created", None, True, 1),
    ("create_410_no_such_ask", "not_created", None, True, 1),
    ("create_400_no_such_ask", "not_created", None, True, 1),
    ("create_200_no_such_ask", "not_created", None, True, 1),
    ("create_400_invalid_args", "not_created", None, False, 1),
    ("create_400_invalid_price", "not_created", None, False, 1),
    ("create_400_insufficient_credit", "not_created", None, False, 1),
    ("create_400_spend_rate_limit", "not_created", None, False, 1),
    ("create_401_invalid_key", "not_created", None, False, 1),
    ("err_404_invalid_key", "not_created", None, False, 1),
    ("err_404_session_expired", "not_created", None, False, 1),
    ("err_401_2fa_required", "not_created", None, False, 1),
    ("create_403_scope", "not_created", None, False, 1),
    ("create_403_hosts_only_own", "not_created", None, False, 1),
    ("create_200_bid_too_low_with_contract", "created", 41873230, True, 1),
    ("create_400_with_contract", "created", 41873231, True, 1),
    ("create_200_html", "unknown", None, True, 1),
    ("create_200_empty_body", "unknown", None, True, 1),
    ("create_500_json", "unknown", None, True, 1),
    ("create_read_timeout", "unknown", None, True, 1),
    ("err_502_html", "unknown", None, True, 1),
    ("err_503_html_empty_title", "unknown", None, True, 1),
    ("create_connect_error", "not_created", None, True, 6),
    ("err_429_text", "not_created", None, True, 3),
    ("err_429_text_short", "not_created", None, True, 3),
    ("err_429_detail_json", "not_created", None, True, 3),
    ("err_429_json_retry_after", "not_created", None, True, 3),
]


@pytest.mark.parametrize(("name", "outcome", "made", "another", "sent"), FAILURES, ids=[row[0] for row in FAILURES])
@respx.mock
def test_a_failed_create_says_what_is_known_of_its_effect(
    name: str, outcome: str, made: int | None, another: bool, sent: int
) -> None:
    route = respx.put(CREATE).mock(side_effect=replies(name))
    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    error = caught.value
    assert (error.outcome, error.created_instance_id, error.try_another) == (outcome, made, another)
    assert route.call_count == sent
    assert "31224551" in error.what
    assert ("not known" in error.what) == (outcome == "unknown")
    assert made is None or str(made) in error.what


def test_every_sample_of_a_failed_create_is_in_the_table() -> None:
    failing = {name for name in samples() if name.startswith("create_") and not name.startswith("create_ok")}
    assert failing <= {row[0] for row in FAILURES}


@pytest.mark.parametrize(
    "body",
    [{"success": True}, {"success": True, "new_contract": None}, {"success": True, "new_contract": "soon"}, {}],
)
@respx.mock
def test_a_success_that_names_no_instance_is_an_unknown_outcome(body: dict[str, object]) -> None:
    respx.put(CREATE).mock(return_value=httpx.Response(200, json=body))
    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("status", [308, 409, 500, 504])
@respx.mock
def test_a_contract_in_any_error_is_an_instance(status: int) -> None:
    respx.put(CREATE).mock(return_value=httpx.Response(status, json={"error": "odd", "new_contract": 77}))
    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    assert (caught.value.outcome, caught.value.created_instance_id) == ("created", 77)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (httpx.ConnectError, "not_created"),
        (httpx.ConnectTimeout, "not_created"),
        (httpx.PoolTimeout, "not_created"),
        (httpx.ProxyError, "not_created"),
        (httpx.WriteTimeout, "unknown"),
        (httpx.WriteError, "unknown"),
        (httpx.ReadTimeout, "unknown"),
        (httpx.ReadError, "unknown"),
        (httpx.CloseError, "unknown"),
        (httpx.RemoteProtocolError, "unknown"),
        (httpx.LocalProtocolError, "unknown"),
        (httpx.DecodingError, "unknown"),
    ],
)
def test_only_a_connection_that_never_was_proves_that_nothing_was_made(
    error: type[httpx.RequestError], outcome: str
) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("It broke.")

    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST), transport=httpx.MockTransport(fail))
    assert caught.value.outcome == outcome
    assert not re.search(r"\.[;),]|\.$", str(caught.value))


@pytest.mark.parametrize("name", ["err_429_text", "err_429_detail_json", "create_connect_error"])
@respx.mock
def test_a_create_that_was_not_executed_is_sent_again_after_a_wait(name: str) -> None:
    clock = Clock()
    route = respx.put(CREATE).mock(side_effect=replies(name, "create_ok"))
    assert use_client(lambda c: c.create(31224551, REQUEST), clock=clock) == 41873205
    assert route.call_count == 2
    assert sum(clock.slept) >= (12 if "429" in name else 1)


@respx.mock
def test_the_reason_of_a_failed_create_stays_with_it() -> None:
    respx.put(CREATE).mock(side_effect=replies("create_400_insufficient_credit"))
    with pytest.raises(CreateFailed, match="lacks credit") as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    assert isinstance(caught.value.__cause__, VastCreditTooLow)
    assert caught.value.remedy == VastCreditTooLow.default_remedy


@respx.mock
def test_an_expired_login_is_not_a_wrong_key() -> None:
    respx.put(CREATE).mock(side_effect=replies("err_404_session_expired"))
    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    assert isinstance(caught.value.__cause__, VastKeyRejected)
    assert "Log in again" in (caught.value.remedy or "")


@respx.mock
def test_a_key_without_the_right_is_told_which_rights_it_needs() -> None:
    respx.put(CREATE).mock(side_effect=replies("create_403_scope"))
    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    assert "instance_write" in (caught.value.remedy or "")


@respx.mock
def test_creates_go_out_one_after_another() -> None:
    inside, most = 0, 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return sample_response("create_ok")

    respx.put(url__startswith=f"{URL}/api/v0/asks/").mock(side_effect=slow)

    async def work(client: VastClient) -> None:
        await asyncio.gather(*(client.create(number, REQUEST) for number in (1, 2, 3)))

    clock = Clock()
    use_client(work, clock=clock)
    assert most == 1
    assert clock.slept == [5.0, 5.0]


@pytest.mark.parametrize("first", ["create_ok", "create_read_timeout", "create_404_no_such_ask"])
@respx.mock
def test_an_offer_is_not_rented_twice(first: str) -> None:
    route = respx.put(CREATE).mock(side_effect=replies(first))

    async def work(client: VastClient) -> CreateFailed:
        with suppress(CreateFailed):
            await client.create(31224551, REQUEST)
        with pytest.raises(CreateFailed, match="used before") as caught:
            await client.create(31224551, REQUEST)
        return caught.value

    assert use_client(work).outcome == "not_created"
    assert route.call_count == 1


@respx.mock
def test_an_offer_that_was_never_asked_for_may_be_tried_later() -> None:
    route = respx.put(CREATE).mock(side_effect=replies(*["create_connect_error"] * 6, "create_ok"))

    async def work(client: VastClient) -> int:
        with pytest.raises(CreateFailed):
            await client.create(31224551, REQUEST)
        return await client.create(31224551, REQUEST)

    assert use_client(work) == 41873205
    assert route.call_count == 7


def test_a_create_that_is_cancelled_leaves_the_client_usable() -> None:
    started = asyncio.Event()

    async def hang(request: httpx.Request) -> httpx.Response:
        if "/asks/1/" in request.url.path:
            started.set()
            await asyncio.Event().wait()
        return sample_response("create_ok")

    async def work(client: VastClient) -> int:
        task = asyncio.create_task(client.create(1, REQUEST))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(CreateFailed, match="used before"):
            await client.create(1, REQUEST)
        return await client.create(2, REQUEST)

    assert use_client(work, transport=httpx.MockTransport(hang)) == 41873205


@respx.mock
def test_nothing_secret_is_in_a_request_or_error_that_is_shown() -> None:
    respx.put(CREATE).mock(return_value=httpx.Response(400, json={**samples()["create_ok"]["body"], "success": False}))
    with pytest.raises(CreateFailed) as caught:
        use_client(lambda c: c.create(31224551, REQUEST))
    assert "SECRET" not in repr(REQUEST) + str(caught.value) + repr(caught.value.__cause__)
