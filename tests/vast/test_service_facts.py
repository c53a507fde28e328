"""What a run's calls say of the open questions about the service."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ppsmoke.bundle.names import SERVICE
from ppsmoke.redaction import Redactor
from ppsmoke.vast.call_log import CallLog
from ppsmoke.vast.service_facts import service_facts

RUN = """\
23:59:50.000 vast.ai: search answered 200, 35782 bytes
23:59:50.000 a search gave 40 offers
23:59:51.000 a search gave 64 offers
23:59:52.000 vast.ai: create answered 400, 131 bytes
23:59:52.000 vast.ai: create /api/v0/asks/1/, try 1: credit (no credit left) after 0.01 s
23:59:52.100 vast.ai: list answered 200, 118 bytes
23:59:52.100 vast.ai: list /api/v1/instances/, try 1: ok after 0.01 s
23:59:52.500 vast.ai: create /api/v0/asks/2/, try 1: unsent (no connection) after 0.01 s
23:59:53.000 created: 41
23:59:53.100 listed: nothing
23:59:53.500 created: 42
23:59:54.000 listed: 41=loading
00:00:03.500 listed: 41=running 42=loading
00:00:04.000 vast.ai: list answered 429, 20 bytes {'retry-after': '7'}
00:00:04.100 vast.ai: list answered 429, 20 bytes
00:00:05.000 vast.ai: the place of an upload: status 403
00:00:06.000 vast.ai: the place of an upload: status 200
00:00:07.000 asked for the end of 41: accepted
00:00:07.000 asked for the end of 42: accepted
00:00:08.000 listed: 42=exited
00:00:09.000 listed: nothing
not a line of this log
""".splitlines()


def test_every_question_is_answered_from_the_calls_of_a_run_over_midnight() -> None:
    assert service_facts(RUN) == {
        "how a refused create call is answered": (
            "create: status 400, no credit left; create: no status, no connection"
        ),
        "how a refused key is answered": "did not happen in this run",
        "how long until a new instance is listed": "1.0 to 10.0 s, of 2 instances",
        "how many offers one search gives": "at most 64, in 2 searches",
        "what answers at the place of a log before it is there": "status 200: 1 x, status 403: 1 x",
        "whether a refusal for too many requests says how long to wait": "1 of 2 did: {'retry-after': '7'}",
        "how long a destroyed instance is still listed": "0.0 to 1.0 s, of 2 instances",
    }


def test_a_run_that_asked_nothing_says_so() -> None:
    assert set(service_facts([]).values()) == {"did not happen in this run"}


def test_the_answers_are_left_beside_the_calls(tmp_path: Path) -> None:
    with CallLog() as calls:
        logging.getLogger("ppsmoke.vast").debug("a search gave %d offers", 40)
        calls.write_to(tmp_path, Redactor())
    facts = json.loads((tmp_path / SERVICE).read_text())
    assert facts["how many offers one search gives"] == "at most 40, in 1 searches"
