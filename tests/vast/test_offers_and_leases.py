"""The parts of renting together, over the emulator: offers chosen, machines told what they are, bad ones replaced,
remembered and avoided the next time, logs kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.errors import HostFailed, TooFewOffers
from ppsmoke.stage_memory import StageMemory
from ppsmoke.vast.account_check import check_account
from ppsmoke.vast.bad_machines import read_bad_machines, remember_failures
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_records import Candidate
from ppsmoke.vast.market import StageOffers
from ppsmoke.vast.offers import OfferWishes
from ppsmoke.vast.records import CreateRequest, Offer
from ppsmoke.vast.stage_need import stage_needs
from ppsmoke.vast.stage_request import NodeTerms, create_request
from tests.vast.emulated import RUN_ID, Emulated, SmallRun, emulated

GB = 1000**3
NOW = 1791381000.0
STAGES = 3
NEEDS = stage_needs([StageMemory(GB, 2 * GB, GB, GB)] * STAGES, image_gb=0.05)
TERMS = NodeTerms(
    run_id=RUN_ID,
    num_stages=STAGES,
    seed_addr="endpointaexample",
    seed_relay="https://relay.test/",
    join_token="aa" * 32,
    model="https://models.test/llama.gguf",
    context=2048,
    version="1.2.3",
    package="pp-smoke-run==1.2.3",
)


def request_for(candidate: Candidate) -> CreateRequest:
    return create_request(TERMS, NEEDS[candidate.stage], label=candidate.label, node_key=bytes([candidate.stage]) * 32)


class OfferedRun(SmallRun):
    """A small run whose machines come from the market as in a real one, with a memory of bad ones."""

    def source(self, wishes: OfferWishes | None = None) -> StageOffers:
        known = read_bad_machines(self.memory, NOW)
        return StageOffers(self.client, NEEDS, wishes or OfferWishes(), bad_machines=known)

    @property
    def memory(self) -> Path:
        return self.directory / "bad-machines.json"

    async def rent(self, wishes: OfferWishes | None = None) -> tuple[Offer, ...]:
        """Rents, holds, releases; the offers chosen at first."""
        source = self.source(wishes)
        chosen = await source.choose()
        journal = self.journal()
        try:
            rents = replace(self.renting(), request_for=request_for, offers=source)
            async with LeaseBook(self.client, journal, self.fresh(), rents) as book:
                await book.acquire(chosen)
                await self.hold()
            return chosen
        finally:
            remember_failures(self.memory, dict(self.remembered), NOW)
            journal.close()


def rented(cloud: Emulated) -> list[dict[str, str]]:
    """The environments that were sent, in the order of the creates."""
    ours = [x for x in cloud.service.account.rentals.values() if x.instance_id not in cloud.foreign]
    return [x.wish["env"] for x in sorted(ours, key=lambda x: x.instance_id)]


def test_a_run_takes_the_cheapest_offers_that_fit_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = OfferedRun(cloud, client, tmp_path, stages=STAGES)
            assert (await check_account(client, 0.1)).credit_usd is not None
            chosen = await run.rent(OfferWishes(not_countries=("CN",), gpu_names=("RTX_3060", "RTX_3090")))
            assert len({offer.machine_id for offer in chosen}) == STAGES
            assert all(offer.gpu_name in ("RTX 3060", "RTX 3090") and offer.country != "CN" for offer in chosen)
            sent = rented(cloud)
            assert [env["STAGE"] for env in sent] == ["0", "1", "2"]
            assert len({env["PP_NODE_KEY"] for env in sent}) == STAGES
            assert {env["SEED_RELAY"] for env in sent} == {"https://relay.test/"}
            assert cloud.left() == []

    asyncio.run(scenario())
    logs = [log.read_text() for log in tmp_path.glob("instance-*.log")]
    assert len(logs) == STAGES
    assert all("--- container ---" in log for log in logs)


def test_a_bad_machine_is_replaced_and_not_drawn_again_by_the_next_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("host:1-2=device") as cloud, cloud.client() as client:
            run = OfferedRun(cloud, client, tmp_path, stages=STAGES)
            chosen = await run.rent()
            assert len(rented(cloud)) == STAGES + 2
            assert cloud.left() == []
            bad = {machine for machine, _ in run.remembered}
            assert len(bad) == 2
            assert bad <= {offer.machine_id for offer in chosen}
            next_choice = await run.source().choose()
            assert bad.isdisjoint(offer.machine_id for offer in next_choice)
            assert {offer.machine_id for offer in chosen} - bad <= {offer.machine_id for offer in next_choice}

    asyncio.run(scenario())


def test_an_image_that_no_host_can_pull_is_not_tried_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("host:*=manifest") as cloud, cloud.client() as client:
            with pytest.raises(HostFailed, match="no such tag"):
                await OfferedRun(cloud, client, tmp_path, stages=STAGES).rent()
            assert len(rented(cloud)) <= STAGES
            assert cloud.left() == []

    asyncio.run(scenario())


def test_wishes_that_the_market_cannot_meet_rent_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            with pytest.raises(TooFewOffers) as caught:
                await OfferedRun(cloud, client, tmp_path, stages=STAGES).rent(OfferWishes(max_price_per_hour_usd=0.01))
            assert any(line.startswith("price per hour") for line in caught.value.log_tail)
            assert rented(cloud) == []

    asyncio.run(scenario())
