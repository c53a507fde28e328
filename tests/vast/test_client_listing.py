"""Listings: complete, or an error; an error is never an empty list."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import respx

from ppsmoke.errors import (
    ListingIncomplete,
    PpError,
    VastCreditTooLow,
    VastKeyRejected,
    VastRateLimited,
    VastRequestRefused,
    VastUnavailable,
)
from tests.vast.kit import URL, replies, sample_body, use_client

LIST = f"{URL}/api/v1/instances/"


def page(rows: list[dict[str, Any]], total: int, token: object = None) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "total_instances": total, "next_token": token, "instances": rows})


@respx.mock
def test_a_listing_is_asked_of_v1_in_the_order_of_ids() -> None:
    route = respx.get(LIST).mock(side_effect=replies("instances_v1_list"))
    rows = use_client(lambda c: c.list_instances())
    asked = route.calls[0].request.url.params
    assert (asked["limit"], json.loads(asked["order_by"])) == ("25", [{"col": "id", "dir": "asc"}])
    assert "select_filters" not in asked
    assert [row.id for row in rows] == [39980412, 40110007, 41600990, 41873205, 41873211, 41873218]
    assert [row.label for row in rows][:2] == ["", "my notebook"]
    assert "SECRET" not in repr(rows)


@respx.mock
def test_labels_are_filtered_by_the_service() -> None:
    route = respx.get(LIST).mock(side_effect=replies("instances_v1_by_label_found"))
    rows = use_client(lambda c: c.list_instances(labels=["a", "b"]))
    assert json.loads(route.calls[0].request.url.params["select_filters"]) == {"label": {"in": ["a", "b"]}}
    assert [row.id for row in rows] == [41873205]


def test_a_listing_of_no_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="no labels"):
        use_client(lambda c: c.list_instances(labels=[]))


@respx.mock
def test_pages_are_followed_by_after_token() -> None:
    route = respx.get(LIST).mock(side_effect=replies("instances_v1_page1", "instances_v1_page2"))
    rows = use_client(lambda c: c.list_instances())
    assert [row.id for row in rows] == [40110007, 41873205, 41873211, 41873218]
    assert "after_token" not in route.calls[0].request.url.params
    assert route.calls[1].request.url.params["after_token"] == sample_body("instances_v1_page1")["next_token"]


@respx.mock
def test_an_empty_listing_is_believed_only_with_its_total() -> None:
    respx.get(LIST).mock(side_effect=replies("instances_v1_empty"))
    assert use_client(lambda c: c.list_instances()) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (page([{"id": 1}], 2), "1 rows of 2"),
        (page([], 1), "0 rows of 1"),
        (page([{"id": 1}], 0), "1 rows of 0"),
        (page([{"id": 1}, {"id": 1}], 2), "twice"),
        (page([{"id": 1}, {"label": "x"}], 2), "no id"),
        (page([{"id": 1}, None], 2), "no id"),  # type: ignore[list-item]
        (page([{"id": 1}], 9, token="again"), "instance 1 is in it twice"),
        (page([], 9, token="again"), "do not end"),
        (page([], 9, token=7), "do not end"),
        (httpx.Response(200, json={"success": True, "instances": []}), "no rows or no total"),
        (httpx.Response(200, json={"success": True, "total_instances": 0}), "no rows or no total"),
        (httpx.Response(200, json={"total_instances": 0, "instances": None}), "no rows or no total"),
        (httpx.Response(200, json={"total_instances": 0, "instances": {}}), "no rows or no total"),
        (httpx.Response(200, json={"total_instances": "0", "instances": []}), "no rows or no total"),
        (httpx.Response(200, json={}), "no rows or no total"),
    ],
)
@respx.mock
def test_a_listing_that_does_not_add_up_proves_nothing(answer: httpx.Response, reason: str) -> None:
    respx.get(LIST).mock(return_value=answer)
    with pytest.raises(ListingIncomplete, match=reason):
        use_client(lambda c: c.list_instances())


@respx.mock
def test_a_listing_that_changed_under_the_reader_is_read_anew() -> None:
    grown = [page([{"id": 1}], 1, token="t"), page([{"id": 2}], 3), page([{"id": 1}, {"id": 2}, {"id": 3}], 3)]
    respx.get(LIST).mock(side_effect=grown)
    assert [row.id for row in use_client(lambda c: c.list_instances())] == [1, 2, 3]


ERRORS: list[tuple[str, type[PpError]]] = [
    ("err_401_invalid_key", VastKeyRejected),
    ("err_401_2fa_required", VastKeyRejected),
    ("err_404_invalid_key", VastKeyRejected),
    ("err_404_session_expired", VastKeyRejected),
    ("err_410_v0_list_deprecated", VastRequestRefused),
    ("err_429_text", VastRateLimited),
    ("err_429_text_short", VastRateLimited),
    ("err_429_detail_json", VastRateLimited),
    ("err_429_json_retry_after", VastRateLimited),
    ("err_502_html", VastUnavailable),
    ("err_503_html_empty_title", VastUnavailable),
    ("create_200_html", VastUnavailable),
    ("create_200_empty_body", VastUnavailable),
    ("create_500_json", VastUnavailable),
    ("create_read_timeout", VastUnavailable),
    ("create_connect_error", VastUnavailable),
    ("instances_v1_bad_filter_400", VastRequestRefused),
    ("instances_v1_bad_token_400", VastRequestRefused),
    ("create_400_insufficient_credit", VastCreditTooLow),
]


@pytest.mark.parametrize(("name", "error"), ERRORS, ids=[name for name, _ in ERRORS])
@respx.mock
def test_no_error_is_an_empty_listing(name: str, error: type[PpError]) -> None:
    respx.get(LIST).mock(side_effect=replies(name))
    with pytest.raises(error) as caught:
        use_client(lambda c: c.list_instances())
    assert caught.value.phase == "list"
    assert caught.value.remedy or error is VastRequestRefused


@respx.mock
def test_an_error_on_the_second_page_is_no_short_listing() -> None:
    respx.get(LIST).mock(side_effect=replies("instances_v1_page1", "err_401_invalid_key"))
    with pytest.raises(VastKeyRejected):
        use_client(lambda c: c.list_instances())
