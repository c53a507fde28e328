"""Logs in their two steps: asked for, then fetched from where the answer says."""

from __future__ import annotations

import json

import httpx
import pytest
import respx

from ppsmoke.errors import (
    PpError,
    VastKeyRejected,
    VastRequestRefused,
    VastUnavailable,
)
from tests.vast.kit import KEY, URL, Clock, replies, samples, use_client

REQUEST_LOGS = f"{URL}/api/v0/instances/request_logs/41873205/"
LOG_URL = samples()["logs_request_ok"]["body"]["result_url"]


@respx.mock
def test_logs_are_requested_then_fetched_when_they_are_there() -> None:
    clock = Clock()
    asked = respx.put(REQUEST_LOGS).mock(side_effect=replies("logs_request_ok"))
    place = respx.get(LOG_URL).mock(side_effect=replies("logs_s3_403_pending", "logs_s3_404_pending", "logs_s3_ok"))
    text = use_client(lambda c: c.instance_logs(41873205, tail=50), clock=clock)
    assert text == samples()["logs_s3_ok"]["text"]
    assert json.loads(asked.calls[0].request.content) == {"tail": "50"}
    assert place.call_count == 3
    assert clock.slept == [1.0, 2.0]


@respx.mock
def test_the_daemons_log_is_asked_for_with_a_word() -> None:
    asked = respx.put(REQUEST_LOGS).mock(side_effect=replies("logs_request_ok"))
    respx.get(LOG_URL).mock(side_effect=replies("logs_s3_ok_empty"))
    assert use_client(lambda c: c.instance_logs(41873205, daemon=True)) == ""
    assert json.loads(asked.calls[0].request.content) == {"tail": "1000", "daemon_logs": "true"}


@respx.mock
def test_the_key_is_not_sent_to_where_the_logs_are() -> None:
    asked = respx.put(REQUEST_LOGS).mock(side_effect=replies("logs_request_ok"))
    place = respx.get(LOG_URL).mock(side_effect=replies("logs_s3_ok"))
    use_client(lambda c: c.instance_logs(41873205))
    assert asked.calls[0].request.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(place.calls[0].request.headers.raw)


@respx.mock
def test_logs_that_do_not_arrive_end_with_an_error() -> None:
    clock = Clock()
    respx.put(REQUEST_LOGS).mock(side_effect=replies("logs_request_ok"))
    respx.get(LOG_URL).mock(side_effect=replies("logs_s3_404_pending"))
    with pytest.raises(VastUnavailable, match="did not arrive"):
        use_client(lambda c: c.instance_logs(41873205, patience_s=30), clock=clock)
    assert 20 < sum(clock.slept) <= 30


@respx.mock
def test_a_broken_connection_to_the_logs_is_waited_out() -> None:
    respx.put(REQUEST_LOGS).mock(side_effect=replies("logs_request_ok"))
    respx.get(LOG_URL).mock(side_effect=replies("create_read_timeout", "logs_s3_ok"))
    assert use_client(lambda c: c.instance_logs(41873205)) == samples()["logs_s3_ok"]["text"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("logs_request_no_url", VastRequestRefused),
        ("logs_request_404", VastRequestRefused),
        ("logs_request_403", VastKeyRejected),
    ],
)
@respx.mock
def test_an_instance_without_logs_is_an_error_with_the_services_words(name: str, error: type[PpError]) -> None:
    route = respx.put(REQUEST_LOGS).mock(side_effect=replies(name))
    with pytest.raises(error, match=samples()[name]["body"]["msg"]):
        use_client(lambda c: c.instance_logs(41873205))
    assert route.call_count == 1


@pytest.mark.parametrize("url", [None, 7, "", "file:///etc/passwd", "not an address", "http://[::1/x", "https://"])
@respx.mock
def test_logs_at_no_usable_place_are_an_error(url: object) -> None:
    respx.put(REQUEST_LOGS).mock(return_value=httpx.Response(200, json={"success": True, "result_url": url}))
    with pytest.raises(VastUnavailable, match="no place"):
        use_client(lambda c: c.instance_logs(41873205))
