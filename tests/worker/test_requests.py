from __future__ import annotations

import pytest
from ppsmoke_worker.requests import RequestBook

from ppsmoke.errors import ContextExceeded, OutOfOrder, RequestRejected, UnknownRequest


def test_a_request_goes_on_only_where_it_stopped() -> None:
    book = RequestBook(context=10)
    book.check("r", 0, 4)
    book.advance("r", 0, 4)
    for position in (0, 3, 5):
        with pytest.raises(OutOfOrder, match="position 4"):
            book.check("r", position, 1)
    book.check("r", 4, 6)
    with pytest.raises(ContextExceeded):
        book.check("r", 4, 7)


def test_a_request_that_is_not_open_begins_at_0() -> None:
    with pytest.raises(UnknownRequest):
        RequestBook(10).check("r", 1, 1)


def test_a_step_that_failed_may_be_tried_again() -> None:
    book = RequestBook(10)
    book.check("r", 0, 2)
    book.check("r", 0, 2)


def test_too_many_open_requests_are_refused_until_one_is_reset() -> None:
    book = RequestBook(10, max_requests=2)
    for name in ("a", "b"):
        book.check(name, 0, 1)
        book.advance(name, 0, 1)
    with pytest.raises(RequestRejected, match="2 requests"):
        book.check("c", 0, 1)
    book.forget("a")
    book.check("c", 0, 1)
    book.forget(None)
    with pytest.raises(UnknownRequest):
        book.check("b", 1, 1)
