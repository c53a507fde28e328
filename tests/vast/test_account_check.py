"""The check before anything is rented."""

from __future__ import annotations

import httpx
import pytest
import respx

from ppsmoke.errors import ListingIncomplete, VastCreditTooLow, VastKeyRejected, VastUnavailable
from ppsmoke.vast.account_check import check_account
from tests.vast.kit import URL, replies, use_client


def mock(listing: str, account: str) -> None:
    respx.get(f"{URL}/api/v1/instances/").mock(side_effect=replies(listing))
    respx.get(f"{URL}/api/v0/users/current/").mock(side_effect=replies(account))


@respx.mock
def test_a_good_account_passes_and_shows_what_it_runs() -> None:
    mock("instances_v1_list", "user_current_ok")
    found = use_client(lambda c: check_account(c, 1.0))
    assert found.credit_usd == 25.0
    assert len(found.instances) == 6
    assert found.account is not None
    assert found.account.isdigit()


@respx.mock
def test_too_little_credit_is_said_before_anything_is_rented() -> None:
    mock("instances_v1_empty", "user_current_low_credit")
    with pytest.raises(VastCreditTooLow, match=r"has 0\.04 USD, and this run may need 1\.00 USD") as caught:
        use_client(lambda c: check_account(c, 1.0))
    assert caught.value.phase == "preflight"
    assert use_client(lambda c: check_account(c, 0.04)).credit_usd == 0.04


@pytest.mark.parametrize("name", ["err_401_invalid_key", "err_404_invalid_key", "err_404_session_expired"])
@respx.mock
def test_a_bad_key_is_noticed_whatever_its_status(name: str) -> None:
    mock(name, "user_current_ok")
    with pytest.raises(VastKeyRejected):
        use_client(lambda c: check_account(c, 1.0))


@respx.mock
def test_a_key_that_may_not_see_the_account_is_enough() -> None:
    mock("instances_v1_empty", "create_403_scope")
    assert use_client(lambda c: check_account(c, 1.0)).credit_usd is None


@respx.mock
def test_an_account_that_cannot_be_read_stops_the_run() -> None:
    mock("instances_v1_empty", "err_502_html")
    with pytest.raises(VastUnavailable):
        use_client(lambda c: check_account(c, 1.0))


@respx.mock
def test_an_incomplete_listing_stops_the_run() -> None:
    mock("instances_v1_empty", "user_current_ok")
    respx.get(f"{URL}/api/v1/instances/").mock(return_value=httpx.Response(200, json={"instances": []}))
    with pytest.raises(ListingIncomplete):
        use_client(lambda c: check_account(c, 1.0))
