"""The limits on what a rented run costs, and what becomes of its text and its logs when nobody can take them."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.errors import TooFewOffers
from ppsmoke.orchestrator.options import OutputGone
from ppsmoke.vast.lease_events import FindOffer
from ppsmoke.vast.lease_records import Candidate, Lease, Standing
from ppsmoke.vast.rented_nodes import RentedNodes, lease_times
from tests.vast.emulated import emulated
from tests.vast.kit import offer
from tests.vast.rented import Watcher, once, rent_and_run, rental_options, stub_options

SLOW = "stub:layers=6,step_ms=200"


class OneOffer:
    """A market with this and nothing else."""

    def __init__(self, price: float) -> None:
        self._price = price

    async def another(self, wish: FindOffer) -> object:
        return offer(dph_total=self._price)


def candidate(stage: int, price: float) -> Candidate:
    return Candidate(f"pp-smoke-x-{stage}-n", stage, stage, stage, stage, price)


@pytest.mark.parametrize(("price", "fits"), [(0.30, True), (0.31, False)])
def test_another_machine_may_not_lift_the_price_of_all_over_the_limit(price: float, fits: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            options = stub_options(tmp_path, 3)
            rental = await rental_options(cloud.url, 1.0, client, options, tmp_path, max_price=0.75)
            nodes = RentedNodes(options, replace(rental, market=OneOffer(price)), Watcher(), client)
            leases = [Lease(candidate(0, 0.25), Standing.RUNNING, 0.0), Lease(candidate(1, 9.0), Standing.ENDING, 0.0)]
            nodes._book = type("Book", (), {"state": state_of(leases, [candidate(2, 0.20)])})()
            wish = FindOffer(1, frozenset(), frozenset(), ())
            if fits:
                assert (await nodes.another(wish)).price_per_hour_usd == price
                return
            with pytest.raises(TooFewOffers, match=r"all would cost 0.760 USD an hour, more than --max-price 0.750"):
                await nodes.another(wish)

    asyncio.run(scenario())


@pytest.mark.parametrize(("ports", "loopback", "asked"), [(62, False, True), (1, False, False), (62, True, False)])
def test_a_udp_port_is_asked_of_a_machine_that_has_some(
    ports: int, loopback: bool, asked: bool, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            options = stub_options(tmp_path, 2)
            rental = await rental_options(cloud.url, 1.0, client, options, tmp_path, loopback_only=loopback)
            offers = (offer(id=7, direct_port_count=ports),)
            nodes = RentedNodes(options, replace(rental, offers=offers), Watcher(), client)
            nodes._site = SmallSite()
            nodes._terms = nodes._make_terms(SmallSite())
            request = nodes._request_for(Candidate("pp-smoke-x-0-n", 0, 7, 7, 7, 0.1))
            assert ("-p 4433:4433/udp" in request.env, "PP_UDP_PORT" in request.env) == (asked, asked)

    asyncio.run(scenario())


class SmallSite:
    run_id = "ab" * 16
    ticket = "endpointx"
    join_token = "cd" * 32

    def renew_node_key(self, stage: int) -> bytes:
        return bytes(32)


def state_of(leases: list[Lease], waiting: list[Candidate]) -> object:
    return type("State", (), {"leases": tuple(leases), "waiting": tuple(waiting)})()


def test_a_run_that_has_spent_what_it_may_gives_everything_back(tmp_path: Path) -> None:
    options = stub_options(tmp_path, 2, SLOW, max_tokens=200)
    done = rent_and_run(tmp_path, options, max_spend=0.03)
    assert done.result.error is not None
    assert done.result.error.what.startswith("the run has spent "), done.told()
    assert "--max-spend" in (done.result.error.remedy or "")
    assert 0.03 <= done.report.spent_usd < 0.3
    assert done.left == []


def test_a_reader_that_goes_away_ends_the_run_well(tmp_path: Path) -> None:
    def leave(text: str) -> None:
        if text.startswith("text "):
            raise OutputGone

    done = rent_and_run(tmp_path, stub_options(tmp_path, 2, SLOW), on_news=lambda cloud, text: leave(text))
    assert done.result.error is None, done.told()
    assert done.left == []


def test_logs_that_cannot_be_kept_do_not_keep_a_machine_alive(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2), on_news=once("^text ", lambda cloud: shutil.rmtree(logs)))
    assert done.result.error is None, done.told()
    assert done.left == []
    assert sum("could not be kept: No such file or directory" in line for line in done.watcher.lines) == 2


def test_no_secret_of_the_run_is_shown_or_kept(tmp_path: Path) -> None:
    program = '#!/bin/sh\n[ -n "$1" ] || env\nexec {python} -P -m ppsmoke.node_cli "$@"\n'
    done = rent_and_run(tmp_path, stub_options(tmp_path, 2), program=program)
    assert done.result.error is None, done.told()
    secrets = {create["env"][name] for create in done.creates for name in ("PP_JOIN_TOKEN", "PP_NODE_KEY")}
    secrets.add("emulated-key")
    assert len(secrets) == 4
    kept = [path.read_text() for folder in ("logs", "journal") for path in (tmp_path / folder).iterdir()]
    assert any("PP_JOIN_TOKEN=[secret]" in text for text in kept)
    for text in [*kept, done.watcher.all]:
        assert not [secret for secret in secrets if secret in text]


def test_the_times_of_an_emulator_leave_real_processes_their_time() -> None:
    assert lease_times(1.0).running == 300.0
    short = lease_times(0.001)
    assert short.poll == pytest.approx(0.01)
    assert (short.running, short.logs, short.release) == (20.0, 10.0, 60.0)
