"""What the lease book's entries are to the user."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ppsmoke.errors import PpError
from ppsmoke.run_events import StageState
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.records import CreateRequest, parse_instance
from ppsmoke.vast.rental_news import RentalNews, WatchedListings
from tests.vast.kit import offer
from tests.vast.rented import Watcher

LABEL = "pp-smoke-x-1-n"


class StageNews:
    """What the run hears of its stages, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str, StageState]] = []
        self.anew: list[str] = []

    def node_state(self, stage: int, doing: str, state: StageState = StageState.RENTING, *, anew: bool = False) -> None:
        self.told.append((stage, doing, state))
        if anew:
            self.anew.append(doing)

    def renting_began(self) -> None: ...

    def node_ended(self, stage: int, error: PpError) -> None: ...

    def source_failed(self, error: PpError) -> None: ...


def intent(label: str = LABEL) -> Entry:
    return Entry(Kind.INTENT, label=label, stage=1, offer_id=7)


def test_a_create_call_that_is_not_answered_is_told_and_stays_known_as_the_cause() -> None:
    was_told = asyncio.Event()
    view, stages = Watcher(on_news=lambda text: was_told.set() if "create call" in text else None), StageNews()
    told = RentalNews(view, stages, {}, 3)

    class Slow:
        """Answers when it was told that it did not."""

        async def create(self, offer_id: int, request: CreateRequest) -> int:
            await asyncio.wait_for(was_told.wait(), 30.0)
            return 42

    async def scenario() -> int:
        told.entry(intent())
        request = CreateRequest(LABEL, "image", 10.0, "", {})
        return await WatchedListings(Slow(), told, unanswered_s=0.01).create(7, request)

    assert asyncio.run(scenario()) == 42
    assert view.lines == [
        "stage 1: the create call has had no clear answer for 0.01 s; if it rented, the listing will show it"
    ]
    told.listed([parse_instance({"id": 42, "label": LABEL, "actual_status": "loading"})])
    told.entry(Entry(Kind.CREATED, label=LABEL, stage=1, instance_id=42))
    cause = "no clear answer to its create call within 0.01 s"
    told.entry(Entry(Kind.RUNNING, label=LABEL, stage=1, instance_id=42))
    assert stages.told == [
        (1, "being rented", StageState.RENTING),
        (1, cause, StageState.RENTING),
        (0, "kept waiting by the create call of stage 1", StageState.RENTING),
        (2, "kept waiting by the create call of stage 1", StageState.RENTING),
        (1, f"pulling the image; {cause}", StageState.RENTING),
        (1, f"being set up; {cause}", StageState.RENTING),
        (1, "starting its node", StageState.STARTING),
    ]


def test_a_create_call_that_is_answered_is_not_spoken_of() -> None:
    view, stages = Watcher(), StageNews()
    told = RentalNews(view, stages, {}, 3)

    class Prompt:
        async def create(self, offer_id: int, request: CreateRequest) -> int:
            return 42

    async def scenario() -> None:
        told.entry(intent())
        request = CreateRequest(LABEL, "image", 10.0, "", {})
        await WatchedListings(Prompt(), told, unanswered_s=0.01).create(7, request)
        await asyncio.sleep(0.05)

    asyncio.run(scenario())
    assert view.lines == []


def test_in_the_end_a_stage_shows_what_becomes_of_its_last_machine() -> None:
    stages = StageNews()
    told = RentalNews(Watcher(), stages, {}, 2)
    for entry in (
        intent("first"),
        Entry(Kind.CREATED, label="first", stage=1, instance_id=42),
        Entry(Kind.FAILED, label="first", stage=1, instance_id=42, reason="it was destroyed"),
        Entry(Kind.DESTROY, label="first", stage=1, instance_id=42),
        intent("second"),
        Entry(Kind.CREATED, label="second", stage=1, instance_id=43),
        Entry(Kind.GONE, label="first", stage=1),
    ):
        told.entry(entry)
    assert {state for _, _, state in stages.told} == {StageState.RENTING}
    assert stages.anew == ["being rented", "being replaced", "being rented"]
    stages.told.clear()
    told.entry(Entry(Kind.RELEASE, reason="interrupted"))
    told.entry(Entry(Kind.DESTROY, label="second", stage=1, instance_id=43))
    told.entry(Entry(Kind.GONE, label="second", stage=1))
    assert stages.told == [
        (0, "nothing was rented", StageState.STOPPED),
        (1, "destroying", StageState.STOPPING),
        (1, "destroyed", StageState.STOPPED),
    ]


def test_another_machine_is_told_with_what_is_known_of_it() -> None:
    view, offers = Watcher(), {7: offer(id=7, gpu_name="RTX 3060", geolocation="Sweden, SE", dph_total=0.081)}
    told = RentalNews(view, StageNews(), offers, 2)
    offers[8] = offer(id=8, gpu_name="RTX 4090", geolocation="Norway, NO", dph_total=0.3)  # found later
    told.entry(replace(intent("second"), offer_id=8))
    told.entry(Entry(Kind.CREATED, label="second", stage=1, instance_id=43))
    assert view.lines == ["stage 1: rented instance 43, RTX 4090, Norway, NO, 0.300 USD an hour"]
