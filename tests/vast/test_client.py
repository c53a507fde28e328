"""The client over HTTP: searches, single instances, destroys, and what is waited for."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import respx

from ppsmoke.errors import (
    PpError,
    VastKeyRejected,
    VastRateLimited,
    VastRequestRefused,
    VastUnavailable,
)
from ppsmoke.vast.answers import Call
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.pacing import INTERVALS_S
from tests.vast.kit import URL, Clock, replies, sample_body, sample_response, use_client

LIST = f"{URL}/api/v1/instances/"
ONE = f"{URL}/api/v0/instances/41873205/"
SEARCH = f"{URL}/api/v0/bundles/"
ACCOUNT = f"{URL}/api/v0/users/current/"


@respx.mock
def test_a_search_sends_the_query_as_its_body_and_reads_the_offers() -> None:
    route = respx.post(SEARCH).mock(side_effect=replies("search_offers_6"))
    offers = use_client(lambda c: c.search_offers({"num_gpus": {"eq": 1}}))
    assert json.loads(route.calls[0].request.content) == {"num_gpus": {"eq": 1}}
    assert [offer.id for offer in offers] == [31220107, 31224551, 31224552, 30981764, 31190338, 31201993]
    assert (offers[4].datacenter, offers[4].country, offers[5].country) == (True, "CZ", "US")


@respx.mock
def test_a_search_needs_no_key() -> None:
    route = respx.post(SEARCH).mock(side_effect=replies("search_offers_empty"))
    assert use_client(lambda c: c.search_offers({}), key=None) == []
    assert "authorization" not in route.calls[0].request.headers


@respx.mock
def test_a_single_offer_without_a_list_around_it_is_read() -> None:
    respx.post(SEARCH).mock(side_effect=replies("search_offers_single_object"))
    assert [offer.id for offer in use_client(lambda c: c.search_offers({}))] == [31224551]


@respx.mock
def test_an_offer_without_id_or_price_is_left_out() -> None:
    row = sample_body("search_offers_single_object")["offers"]
    rows = [{**row, "dph_total": None}, {**row, "machine_id": None}, {**row, "id": 9}]
    respx.post(SEARCH).mock(return_value=httpx.Response(200, json={"offers": rows}))
    assert [offer.id for offer in use_client(lambda c: c.search_offers({}))] == [9]


@pytest.mark.parametrize("body", [{}, {"offers": None}, {"offers": "none"}, {"offers": [1]}])
@respx.mock
def test_a_search_without_a_list_is_no_empty_market(body: dict[str, Any]) -> None:
    respx.post(SEARCH).mock(return_value=httpx.Response(200, json=body))
    with pytest.raises(VastUnavailable, match="without a list of offers"):
        use_client(lambda c: c.search_offers({}))


@respx.mock
def test_a_quota_is_not_waited_for() -> None:
    route = respx.post(SEARCH).mock(side_effect=replies("search_429_quota"))
    with pytest.raises(VastRateLimited, match="used up") as caught:
        use_client(lambda c: c.search_offers({}))
    assert caught.value.remedy == "Try again after 2026-10-08 00:00 UTC."
    assert route.call_count == 1


@respx.mock
def test_the_account_tells_its_credit_and_keeps_its_secrets() -> None:
    respx.get(ACCOUNT).mock(side_effect=replies("user_current_ok"))
    account = use_client(lambda c: c.account())
    assert account.credit_usd == 25.0
    assert "SECRET" not in repr(account)


@respx.mock
def test_a_missing_credit_is_unknown_not_zero() -> None:
    respx.get(ACCOUNT).mock(return_value=httpx.Response(200, json={"balance": 3.0}))
    assert use_client(lambda c: c.account()).credit_usd is None


@respx.mock
def test_one_instance_is_shown_without_its_secrets() -> None:
    respx.get(ONE).mock(side_effect=replies("instance_running"))
    found = use_client(lambda c: c.show_instance(41873205))
    assert found is not None
    assert (found.id, found.actual_status, found.machine_id, found.host_id) == (41873205, "running", 52077, 80114)
    assert (found.price_per_hour_usd, found.started_at, found.disk_gb) == (0.3089, 1791380411.52, 16.0)
    assert "SECRET" not in repr(found)


@respx.mock
def test_one_instance_in_a_list_of_one_is_read() -> None:
    respx.get(ONE).mock(side_effect=replies("instance_as_list_shape"))
    found = use_client(lambda c: c.show_instance(41873205))
    assert found is not None
    assert found.id == 41873205


@pytest.mark.parametrize("name", ["instance_gone_null", "instance_404_no_such_instance"])
@respx.mock
def test_an_instance_that_the_service_does_not_know_is_none(name: str) -> None:
    respx.get(ONE).mock(side_effect=replies(name))
    assert use_client(lambda c: c.show_instance(41873205)) is None


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, json={}),
        httpx.Response(200, json={"instances": "gone"}),
        httpx.Response(200, json={"instances": {"id": 7}}),
        httpx.Response(200, json={"instances": {"label": "x"}}),
        httpx.Response(404),
        httpx.Response(404, json={"msg": "not found"}),
        httpx.Response(404, html="<h1>Not Found</h1>"),
    ],
)
@respx.mock
def test_an_odd_answer_about_an_instance_does_not_mean_it_is_gone(answer: httpx.Response) -> None:
    respx.get(ONE).mock(return_value=answer)
    with pytest.raises(VastUnavailable):
        use_client(lambda c: c.show_instance(41873205))


@respx.mock
def test_destroy_sends_an_empty_object() -> None:
    route = respx.delete(ONE).mock(side_effect=replies("destroy_ok"))
    assert use_client(lambda c: c.destroy(41873205)) == "accepted"
    assert route.calls[0].request.content == b"{}"


@pytest.mark.parametrize(
    "name", ["destroy_404_no_such_instance", "destroy_404_not_found", "destroy_200_no_such_instance"]
)
@respx.mock
def test_an_instance_that_is_gone_counts_as_destroyed(name: str) -> None:
    respx.delete(ONE).mock(side_effect=replies(name))
    assert use_client(lambda c: c.destroy(41873205)) == "no_such_instance"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("destroy_404_auth", VastKeyRejected),
        ("err_404_session_expired", VastKeyRejected),
        ("err_401_2fa_required", VastKeyRejected),
        ("destroy_400_invalid", VastRequestRefused),
        ("destroy_200_success_false", VastUnavailable),
        ("destroy_500_html", VastUnavailable),
        ("destroy_read_timeout", VastUnavailable),
        ("create_200_empty_body", VastUnavailable),
        ("err_429_text", VastRateLimited),
    ],
)
@respx.mock
def test_a_destroy_that_was_not_confirmed_is_an_error_that_names_the_instance(name: str, error: type[PpError]) -> None:
    respx.delete(ONE).mock(side_effect=replies(name))
    with pytest.raises(error, match="41873205"):
        use_client(lambda c: c.destroy(41873205))


@pytest.mark.parametrize("body", [{}, {"msg": "ok"}, {"success": 1}, {"success": None}])
@respx.mock
def test_a_destroy_is_accepted_only_in_so_many_words(body: dict[str, Any]) -> None:
    respx.delete(ONE).mock(return_value=httpx.Response(200, json=body))
    with pytest.raises(VastUnavailable):
        use_client(lambda c: c.destroy(41873205))


@pytest.mark.parametrize(
    "name",
    ["destroy_200_success_false", "destroy_500_html", "destroy_read_timeout", "create_connect_error", "err_429_text"],
)
@respx.mock
def test_a_destroy_is_repeated_after_a_passing_failure(name: str) -> None:
    route = respx.delete(ONE).mock(side_effect=replies(name, "destroy_ok"))
    assert use_client(lambda c: c.destroy(41873205)) == "accepted"
    assert route.call_count == 2


@pytest.mark.parametrize("name", ["err_429_text", "err_502_html", "create_read_timeout", "create_connect_error"])
@respx.mock
def test_a_passing_failure_is_waited_out_within_the_patience(name: str) -> None:
    clock = Clock()
    route = respx.get(LIST).mock(side_effect=replies(name, name, name, "instances_v1_empty"))
    assert use_client(lambda c: c.list_instances(), clock=clock) == []
    assert route.call_count == 4
    assert clock.slept == sorted(clock.slept), "each pause at least as long as the one before"


@respx.mock
def test_patience_ends() -> None:
    clock = Clock()
    respx.get(LIST).mock(side_effect=replies("err_502_html"))
    with pytest.raises(VastUnavailable):
        use_client(lambda c: c.list_instances(patience_s=20), clock=clock)
    assert 10 <= sum(clock.slept) <= 20


@respx.mock
def test_no_patience_is_one_try() -> None:
    route = respx.get(LIST).mock(side_effect=replies("err_502_html"))
    with pytest.raises(VastUnavailable):
        use_client(lambda c: c.list_instances(patience_s=0))
    assert route.call_count == 1


@respx.mock
def test_the_wait_that_the_service_asks_for_is_kept() -> None:
    clock = Clock()
    limited = httpx.Response(429, headers={"retry-after": "17"}, text="API requests too frequent")
    respx.get(LIST).mock(side_effect=[limited, sample_response("instances_v1_empty")])
    use_client(lambda c: c.list_instances(), clock=clock)
    assert sum(clock.slept) == 17


@pytest.mark.parametrize(
    "name", ["err_401_invalid_key", "instances_v1_bad_filter_400", "create_400_insufficient_credit"]
)
@respx.mock
def test_what_repeating_cannot_change_is_not_repeated(name: str) -> None:
    route = respx.get(LIST).mock(side_effect=replies(name))
    with pytest.raises(PpError):
        use_client(lambda c: c.list_instances())
    assert route.call_count == 1


@respx.mock
def test_calls_of_one_kind_are_spaced_and_others_do_not_wait_for_them() -> None:
    clock = Clock()
    respx.delete(url__startswith=f"{URL}/api/v0/instances/").mock(side_effect=replies("destroy_ok"))
    respx.get(LIST).mock(side_effect=replies("instances_v1_empty"))
    starts: list[float] = []

    async def work(client: VastClient) -> None:
        for number in (1, 2, 3):
            await client.destroy(number)
        starts.append(clock.now())
        await client.list_instances()
        starts.append(clock.now())

    use_client(work, clock=clock)
    assert clock.slept == [INTERVALS_S[Call.DESTROY]] * 2
    assert starts[0] == starts[1]


@respx.mock
def test_one_factor_shrinks_every_wait() -> None:
    clock = Clock()
    respx.get(LIST).mock(side_effect=replies("err_429_json_retry_after", "err_502_html", "instances_v1_empty"))
    use_client(lambda c: c.list_instances(), clock=clock, time_scale=0.01)
    assert 0 < sum(clock.slept) < 0.1
