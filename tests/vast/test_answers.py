"""Answers are judged by their bodies: every sample, and the error forms that have no sample."""

from __future__ import annotations

import json

import pytest

from ppsmoke.vast.answers import Call, Failure, FailureKind, created_instance_id, read_answer
from tests.vast.kit import sample_content, samples

K = FailureKind

EXPECTED: dict[str, FailureKind | None] = {
    # search
    "search_offers_6": None,
    "search_offers_6_after_rent": None,
    "search_offers_empty": None,
    "search_offers_single_object": None,
    "search_bad_filter_400": K.REFUSED,
    "search_bad_key_404": K.KEY,
    "search_429_quota": K.QUOTA,
    # create
    "create_ok": None,
    "create_ok_2": None,
    "create_404_no_such_ask": K.OFFER_GONE,
    "create_410_no_such_ask": K.OFFER_GONE,
    "create_400_no_such_ask": K.OFFER_GONE,
    "create_200_no_such_ask": K.OFFER_GONE,
    "create_200_bid_too_low_with_contract": K.OFFER_GONE,
    "create_400_with_contract": K.OFFER_GONE,
    "create_400_invalid_args": K.REFUSED,
    "create_400_invalid_price": K.REFUSED,
    "create_400_insufficient_credit": K.CREDIT,
    "create_400_spend_rate_limit": K.CREDIT,
    "create_401_invalid_key": K.KEY,
    "create_403_scope": K.KEY,
    "create_403_hosts_only_own": K.REFUSED,
    "create_200_html": K.UNREADABLE,
    "create_200_empty_body": K.UNREADABLE,
    "create_500_json": K.UNREADABLE,
    # any call
    "err_401_invalid_key": K.KEY,
    "err_401_2fa_required": K.KEY,
    "err_404_invalid_key": K.KEY,
    "err_404_session_expired": K.KEY,
    "err_410_v0_list_deprecated": K.REFUSED,
    "err_429_text": K.RATE_LIMITED,
    "err_429_text_short": K.RATE_LIMITED,
    "err_429_detail_json": K.RATE_LIMITED,
    "err_429_json_retry_after": K.RATE_LIMITED,
    "err_502_html": K.UNREADABLE,
    "err_503_html_empty_title": K.UNREADABLE,
    # one instance
    "instance_404_no_such_instance": K.GONE,
    # lists
    "instances_v1_list": None,
    "instances_v1_page1": None,
    "instances_v1_page2": None,
    "instances_v1_empty": None,
    "instances_v1_by_label_found": None,
    "instances_v1_bad_filter_400": K.REFUSED,
    "instances_v1_bad_token_400": K.REFUSED,
    # destroy
    "destroy_ok": None,
    "destroy_404_no_such_instance": K.GONE,
    "destroy_404_not_found": K.GONE,
    "destroy_200_no_such_instance": K.GONE,
    "destroy_404_auth": K.KEY,
    "destroy_200_success_false": K.UNREADABLE,
    "destroy_400_invalid": K.REFUSED,
    "destroy_500_html": K.UNREADABLE,
    # logs
    "logs_request_ok": None,
    "logs_request_no_url": K.REFUSED,
    "logs_request_404": K.GONE,
    "logs_request_403": K.KEY,
    # account
    "user_current_ok": None,
    "user_current_low_credit": None,
    "user_current_401": K.KEY,
    "user_current_404_session": K.KEY,
}


def judged(name: str) -> FailureKind | None:
    sample = samples()[name]
    answer = read_answer(Call(sample["call"]), sample["status"], sample["headers"], sample_content(name))
    return answer.kind if isinstance(answer, Failure) else None


@pytest.mark.parametrize("name", EXPECTED)
def test_each_sample_has_its_meaning(name: str) -> None:
    assert judged(name) == EXPECTED[name]


@pytest.mark.parametrize(
    "name", [n for n in samples() if n.startswith("instance_") and n != "instance_404_no_such_instance"]
)
def test_a_state_of_an_instance_is_an_answer_however_bad_the_state(name: str) -> None:
    assert judged(name) is None


def test_no_sample_is_left_out() -> None:
    others = {n for n in samples() if n.startswith(("instance_", "logs_s3_")) or "transport_error" in samples()[n]}
    assert set(samples()) - set(EXPECTED) <= others


def failure(call: Call, status: int, body: object, **headers: str) -> Failure:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = read_answer(call, status, headers, content)
    assert isinstance(answer, Failure)
    return answer


FORMS: list[tuple[str, Call, int, object, FailureKind]] = [
    ("a bare 404 proves nothing", Call.DESTROY, 404, {}, K.UNREADABLE),
    ("a 404 page proves nothing", Call.DESTROY, 404, b"<html><title>404 Not Found</title></html>", K.UNREADABLE),
    ("an unknown code with 404 proves nothing", Call.SHOW, 404, {"error": "route_missing"}, K.UNREADABLE),
    ("no such instance is said about instances only", Call.SEARCH, 404, {"error": "not_found"}, K.UNREADABLE),
    ("a missing instance in words alone is no mark", Call.DESTROY, 404, {"msg": "Instance not found"}, K.UNREADABLE),
    ("a 401 without a body", Call.LIST, 401, b"", K.KEY),
    ("a deleted key with status 200", Call.LIST, 200, {"success": False, "msg": "Invalid user key"}, K.KEY),
    ("a second factor that expired", Call.DESTROY, 404, {"msg": "Session expired. Please log in again."}, K.KEY),
    ("a gateway's 403 page", Call.CREATE, 403, b"<html><h1>Forbidden</h1></html>", K.UNREADABLE),
    ("offer gone, only in words", Call.CREATE, 404, {"msg": "Instance type 5 is no longer available."}, K.OFFER_GONE),
    ("offer gone with 500", Call.CREATE, 500, {"error": "no_such_ask"}, K.OFFER_GONE),
    ("offer words elsewhere mean nothing", Call.LIST, 404, {"msg": "this page is not available"}, K.UNREADABLE),
    ("no credit, only in words", Call.CREATE, 400, {"msg": "Your account lacks credit; see billing"}, K.CREDIT),
    ("no credit with status 200", Call.CREATE, 200, {"success": False, "error": "insufficient_credit"}, K.CREDIT),
    ("422 of a validator", Call.CREATE, 422, {"detail": "field required"}, K.REFUSED),
    (
        "too frequent with status 200",
        Call.LIST,
        200,
        {"success": False, "msg": "API requests too frequent"},
        K.RATE_LIMITED,
    ),
    ("429 as a page", Call.LIST, 429, b"<html><h1>Too Many Requests</h1></html>", K.RATE_LIMITED),
    ("429 without a body", Call.CREATE, 429, b"", K.RATE_LIMITED),
    ("JSON that is no object", Call.LIST, 200, b"[]", K.UNREADABLE),
    ("null", Call.LIST, 200, b"null", K.UNREADABLE),
    ("cut off", Call.LIST, 200, b'{"success": true, "instances": [', K.UNREADABLE),
    ("not text", Call.LIST, 200, b"\xff\xfe\x00", K.UNREADABLE),
    ("nested too deep", Call.LIST, 200, b"[" * 200_000, K.UNREADABLE),
    ("success false without a reason", Call.LIST, 200, {"success": False}, K.UNREADABLE),
    ("an error beside status 200", Call.LIST, 200, {"error": "internal", "instances": []}, K.UNREADABLE),
    ("a redirect", Call.CREATE, 308, b"", K.UNREADABLE),
    ("an unknown client error", Call.CREATE, 409, {"error": "conflict"}, K.UNREADABLE),
    ("500 without a body", Call.DESTROY, 500, b"", K.UNREADABLE),
    ("504 as JSON", Call.CREATE, 504, {"message": "upstream timed out"}, K.UNREADABLE),
]


@pytest.mark.parametrize(("call", "status", "body", "kind"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_each_error_form_has_its_meaning(call: Call, status: int, body: object, kind: FailureKind) -> None:
    assert failure(call, status, body).kind is kind


@pytest.mark.parametrize(
    ("name", "wait_s"),
    [
        ("err_429_text", 2.0),
        ("err_429_text_short", None),
        ("err_429_detail_json", 4.5),
        ("err_429_json_retry_after", 3.0),
    ],
)
def test_a_limit_says_how_long_to_wait(name: str, wait_s: float | None) -> None:
    sample = samples()[name]
    answer = read_answer(Call(sample["call"]), 429, sample["headers"], sample_content(name))
    assert isinstance(answer, Failure)
    assert answer.wait_s == wait_s


def test_the_longest_wait_asked_for_counts_within_reason() -> None:
    body = {"msg": "API requests too frequent endpoint threshold=3.0", "retry_after": 7}
    assert failure(Call.LIST, 429, body, **{"retry-after": "5"}).wait_s == 7
    assert failure(Call.LIST, 429, b"", **{"retry-after": "86400"}).wait_s == 60
    assert failure(Call.LIST, 429, b"", **{"retry-after": "Wed, 07 Oct 2026 12:00:00 GMT"}).wait_s is None
    assert failure(Call.LIST, 429, {"retry_after": True}).wait_s is None
    assert failure(Call.LIST, 429, b"", **{"retry-after": "nan"}).wait_s is None


def test_a_used_up_quota_says_when_it_resets() -> None:
    body = {"error": "search_quota_exceeded"}
    assert failure(Call.SEARCH, 429, body, **{"x-ratelimit-reset": "1791417600"}).quota_resets_at == 1791417600


@pytest.mark.parametrize("name", ["create_200_bid_too_low_with_contract", "create_400_with_contract"])
def test_a_failed_create_names_the_instance_it_made_all_the_same(name: str) -> None:
    sample = samples()[name]
    answer = read_answer(Call.CREATE, sample["status"], sample["headers"], sample_content(name))
    assert isinstance(answer, Failure)
    assert answer.created_instance_id == sample["body"]["new_contract"]


@pytest.mark.parametrize(
    ("value", "found"), [(7, 7), ("7", 7), (None, None), (True, None), (0, None), ("x", None), (1.5, None), ([7], None)]
)
def test_only_a_number_is_an_instance(value: object, found: int | None) -> None:
    assert created_instance_id({"new_contract": value}) == found


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "no_such_ask", "msg": "gone"}, "no_such_ask: gone"),
        ({"error": "spend_rate_limit", "msg": "spend_rate_limit"}, "spend_rate_limit"),
        ({"detail": "why"}, "why"),
        ({}, "an answer without a reason (status 500)"),
        (b"", "an empty answer (status 500)"),
        (b"<html><head><title>502 Bad Gateway</title>", "a web page (status 500): 502 Bad Gateway"),
        (b"plain\n\x1b[31mtext", "plain [31mtext"),
        (b"x" * 500, "x" * 197 + "..."),
    ],
)
def test_the_reason_is_short_and_on_one_line(body: object, message: str) -> None:
    assert failure(Call.LIST, 500, body).message == message
