"""The lease book's driver over the real client, against the emulator's server."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ppsmoke.errors import (
    CreateFailed,
    DeadlineExceeded,
    HostFailed,
    Interrupted,
    NotEnoughDisk,
    RunFailed,
    TooFewOffers,
)
from ppsmoke.signals import ending_signals, interruption
from ppsmoke.vast import lease
from ppsmoke.vast.journal import read_journals
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_events import Action, Created, DestroyAnswered, Entry, Event, Kind, Listed, LogsSaved
from ppsmoke.vast.lease_records import BookState, Candidate, LeaseLimits
from ppsmoke.vast.lease_report import leases_left
from ppsmoke.vast.records import CreateRequest
from tests.vast.emulated import KEY, RUN_ID, SmallRun, emulated, plain_request

ROOT = Path(__file__).parents[2]


def test_a_run_rents_holds_and_gives_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path, stages=3)
            journal = run.journal()
            async with run.book(journal) as book:
                instances = await book.acquire((await run.search())[:3])
                rows = {life.instance_id for life in cloud.service.account.ledger.alive()}
                assert {x.id for x in instances} <= rows
                assert [x.label.split("-")[3] for x in instances] == ["0", "1", "2"]
                assert {x.actual_status for x in instances} == {"running"}
                assert book.spent_usd > 0
            assert book.unverified == ()
            ended = cloud.service.settle()
            journal.close()
            assert cloud.left() == []
            assert cloud.billed_after(ended) == pytest.approx(0)
            assert run.remembered == []
            assert set(os.listdir(tmp_path)) >= {f"instance-{x.id}.log" for x in instances}
            assert read_journals(tmp_path)[0].closed

    asyncio.run(scenario())


def test_every_stage_is_told_its_own_number(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path, stages=5)
            journal = run.journal()
            async with run.book(journal) as book:
                await book.acquire((await run.search())[:5])
                rentals = [x for x in cloud.service.account.rentals.values() if x.instance_id not in cloud.foreign]
                assert sorted(x.wish["env"]["STAGE"] for x in rentals) == ["0", "1", "2", "3", "4"]
                assert len({x.label for x in rentals}) == 5
                assert len({x.offer["machine_id"] for x in rentals}) == 5
            journal.close()

    asyncio.run(scenario())


def test_a_partial_failure_rolls_back_what_was_rented(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("create:3=no_credit") as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path, stages=4)
            journal = run.journal()
            with pytest.raises(CreateFailed, match="lacks credit"):
                async with run.book(journal) as book:
                    await book.acquire((await run.search())[:4])
            journal.close()
            assert len(cloud.service.account.rentals) - len(cloud.foreign) == 2
            assert cloud.left() == []

    asyncio.run(scenario())


def test_a_host_that_fails_is_replaced_and_remembered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("host:1-2=device") as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            async with run.book(journal) as book:
                offers = await run.search()
                instances = await book.acquire(offers[:2])
                assert {x.machine_id for x in instances}.isdisjoint({offers[0].machine_id, offers[1].machine_id})
            journal.close()
            assert {machine for machine, _ in run.remembered} == {offers[0].machine_id, offers[1].machine_id}
            assert "GPU" in run.remembered[0][1]
            assert cloud.left() == []

    asyncio.run(scenario())


def test_hosts_that_all_fail_end_the_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("host:*=no_space") as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path, limits=LeaseLimits(replacements=1))
            journal = run.journal()
            with pytest.raises(HostFailed, match="disk is full"):
                async with run.book(journal) as book:
                    await book.acquire((await run.search())[:2])
            journal.close()
            assert cloud.left() == []

    asyncio.run(scenario())


def test_a_machine_that_runs_and_does_not_work_is_replaced_when_its_owner_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            async with run.book(journal) as book:
                before = await book.acquire((await run.search())[:2])
                after = await book.replace(1, "its node never joined")
                assert after[0].id == before[0].id
                assert after[1].id != before[1].id
            journal.close()
            assert run.remembered == [(before[1].machine_id, "its node never joined")]
            assert cloud.left() == []

    asyncio.run(scenario())


def test_the_owner_hears_of_a_host_that_is_lost_while_the_chain_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("host:2=offline_later") as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            async with run.book(journal) as book:
                await book.acquire((await run.search())[:2])
                async with asyncio.timeout(30):
                    await run.lost_one.wait()
            journal.close()
            assert [stage for stage, _ in run.lost] == [1]
            assert cloud.left() == []

    asyncio.run(scenario())


def test_a_budget_of_money_ends_the_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            offers = await SmallRun(cloud, client, tmp_path).search()
            seconds = 60.0 * cloud.scale  # the book counts real time
            most = seconds / 3600 * sum(x.price_per_hour_usd for x in offers[:2])
            run = SmallRun(cloud, client, tmp_path, limits=LeaseLimits(max_spend=most))
            journal = run.journal()
            async with run.book(journal) as book, asyncio.timeout(30):
                with suppress(DeadlineExceeded):  # it may be reached on the way already
                    await book.acquire(offers[:2])
                error = await book.failure()
            journal.close()
            assert isinstance(error, DeadlineExceeded)
            assert "has spent" in str(error)
            assert cloud.left() == []

    asyncio.run(scenario())


def test_being_cancelled_in_a_release_does_not_end_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            book = run.book(journal)
            await book.acquire((await run.search())[:2])
            task = asyncio.create_task(book.release("the run is over"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            journal.close()
            assert book.unverified == ()
            assert cloud.left() == []

    asyncio.run(scenario())


def test_being_cancelled_again_and_again_names_what_is_not_verified(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("destroy:*=timeout_before") as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            book = run.book(journal)
            instances = await book.acquire((await run.search())[:2])
            task = asyncio.create_task(book.release("the run is over"))
            for _ in range(3):
                await asyncio.sleep(0.02)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            journal.close()
            assert {x.instance_id for x in book.unverified} == {x.id for x in instances}
            error = leases_left(book.unverified, url="https://console.vast.ai")
            assert error.exit_status == 4
            for instance in instances:
                assert f"instance {instance.id} " in str(error)
                assert f"--teardown --label {instance.label}" in str(error)
            assert f"{instances[0].price_per_hour_usd:.3f} USD an hour" in str(error)

    asyncio.run(scenario())


def test_a_full_disk_before_the_first_create_rents_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            book = run.book(FullDisk())  # type: ignore[arg-type]
            with pytest.raises(NotEnoughDisk):
                await book.acquire((await run.search())[:2])
            assert await book.release("no journal") == ()
            assert cloud.service.faults.counts["create"] == 0

    asyncio.run(scenario())


def test_a_disk_that_fills_up_later_rolls_back_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            with pytest.raises(NotEnoughDisk):
                async with run.book(FullDisk(after=2)) as book:  # type: ignore[arg-type]
                    await book.acquire((await run.search())[:2])
            assert cloud.service.faults.counts["create"] == 1
            assert book.unverified == ()
            assert cloud.left() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [TooFewOffers("no request for stage 1"), KeyError("no request for stage 1")])
def test_a_request_that_cannot_be_made_rolls_back(error: Exception, tmp_path: Path) -> None:
    def request_for(candidate: Candidate) -> CreateRequest:
        if candidate.stage == 1:
            raise error
        return plain_request(candidate)

    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path, request_for=request_for)
            journal = run.journal()
            with pytest.raises(RunFailed, match="no request for stage 1"):
                async with run.book(journal) as book:
                    await book.acquire((await run.search())[:2])
            journal.close()
            assert cloud.left() == []

    asyncio.run(scenario())


def test_calls_that_have_not_begun_when_it_ends_are_dropped_quietly(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            book = run.book(journal)
            await book.acquire((await run.search())[:2])
            book.interrupt(interruption(signal.SIGINT))
            book.hurry()  # begins the destroys
            book.give_up("at once")  # before their tasks had a turn
            left = await book.release("the run is over")
            journal.close()
            gc.collect()  # a coroutine that nobody awaited would complain here
            assert len(left) == 2

    asyncio.run(scenario())


def test_a_call_that_never_comes_back_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            offers = await run.search()
            journal = run.journal()

            class Stuck:
                """A client whose first destroy hangs for ever."""

                hung = False

                def __getattr__(self, name: str) -> object:
                    return getattr(client, name)

                async def destroy(self, instance_id: int, *, patience_s: float | None = None) -> str:
                    if not self.hung:
                        self.hung = True
                        await asyncio.Event().wait()
                    return await client.destroy(instance_id, patience_s=patience_s)

            book = LeaseBook(Stuck(), journal, run.fresh(), run.renting(), call_limit_s=0.5)  # type: ignore[arg-type]
            await book.acquire(offers[:2])
            assert await book.release("the run is over") == ()
            journal.close()
            assert cloud.left() == []

    asyncio.run(scenario())


def test_an_error_that_nobody_expected_may_have_rented_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            offers = await run.search()
            journal = run.journal()

            class Broken:
                """A client whose first create breaks after it had its effect."""

                broke = False

                def __getattr__(self, name: str) -> object:
                    return getattr(client, name)

                async def create(self, offer_id: int, request: CreateRequest) -> int:
                    instance_id = await client.create(offer_id, request)
                    if not self.broke:
                        self.broke = True
                        raise RuntimeError("the answer has a shape that nobody has seen before")
                    return instance_id

            book = LeaseBook(Broken(), journal, run.fresh(), run.renting(), news=run.entries.append)  # type: ignore[arg-type]
            await book.acquire(offers[:2])
            assert await book.release("the run is over") == ()
            journal.close()
            told = [x.kind for x in run.entries]
            assert told.count(Kind.UNKNOWN) == 1
            assert told.count(Kind.REFUSED) == 0
            assert cloud.left() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [Created, Listed, DestroyAnswered, LogsSaved])
@pytest.mark.parametrize("times", [1, 2])
def test_a_fault_of_the_book_itself_gives_everything_back_or_names_it(
    at: type[Event], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lease.step
    broke: list[Event] = []

    def step(state: BookState, event: Event, now: float) -> tuple[BookState, tuple[Action, ...]]:
        if isinstance(event, at) and len(broke) < times:
            broke.append(event)
            raise ZeroDivisionError("a fault")
        return real(state, event, now)

    monkeypatch.setattr(lease, "step", step)

    async def scenario() -> None:
        async with emulated() as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            book = run.book(journal)
            with suppress(RunFailed):
                await book.acquire((await run.search())[:2])
            left = await book.release("the run is over")
            journal.close()
            assert broke
            assert "a fault of this program" in str(book.state.error)
            alive = cloud.left()
            if times == 1:
                assert left == ()
            assert all(any(x.label in life for x in left) for life in alive)

    asyncio.run(scenario())


def test_the_journal_tells_the_whole_story_and_no_secret(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with emulated("create:1=offer_gone_410,host:2=exits") as cloud, cloud.client() as client:
            run = SmallRun(cloud, client, tmp_path)
            journal = run.journal()
            async with run.book(journal) as book:
                await book.acquire((await run.search())[:2])
            journal.close()
            text = journal.path.read_text()
            assert KEY not in text
            assert all(x.key not in text for x in cloud.service.account.rentals.values())
            (record,) = read_journals(tmp_path)
            assert record.run_id == RUN_ID
            told = [x.entry.kind for x in record.entries]
            assert told == [x.kind for x in run.entries]
            assert told.count(Kind.REFUSED) == 1
            assert told.count(Kind.FAILED) <= 1  # it ran for a moment: held before that, or replaced
            assert told.index(Kind.INTENT) < told.index(Kind.CREATED)
            assert told[-1] is Kind.CLOSED

    asyncio.run(scenario())


# ---- real signals


@pytest.mark.parametrize(
    ("when", "signals", "status"),
    [
        ("held", [signal.SIGINT], 130),
        ("held", [signal.SIGTERM], 143),
        ("held", [signal.SIGHUP], 129),
        ("held", [signal.SIGINT, signal.SIGINT], 130),
        ("create", [signal.SIGINT], 130),
        ("list", [signal.SIGTERM, signal.SIGINT], 143),
    ],
)
def test_a_process_that_is_signalled_gives_everything_back(
    when: str, signals: list[signal.Signals], status: int, tmp_path: Path
) -> None:
    program = (
        "import asyncio, sys, pathlib\n"
        "from tests.vast.test_lease_book import rent_until_signalled\n"
        "sys.exit(asyncio.run(rent_until_signalled(sys.argv[1], pathlib.Path(sys.argv[2]))))\n"
    )

    async def scenario() -> None:
        async with emulated("create:2=timeout_after" if when == "create" else "") as cloud:
            reached = asyncio.Event()
            loop = asyncio.get_running_loop()

            def on_call(call: str, number: int) -> None:
                if call == when and number == 2:
                    loop.call_soon_threadsafe(reached.set)

            cloud.service.on_call = on_call
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, cloud.url, str(tmp_path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            assert child.stdout is not None
            try:
                async with asyncio.timeout(60):
                    await (child.stdout.readline() if when == "held" else reached.wait())
                    for number in signals:
                        child.send_signal(number)
                        await asyncio.sleep(0.05)
                    assert await child.wait() == status
            finally:
                if child.returncode is None:
                    child.kill()
                    await child.wait()
            assert cloud.left() == []
            assert read_journals(tmp_path)[0].closed

    asyncio.run(scenario())


async def rent_until_signalled(url: str, directory: Path) -> int:
    """What the signalled process does: as a run does it, with the book beside its own handlers."""
    async with emulated(timeout_s=1.0) as cloud:
        cloud.url = url
        async with cloud.client() as client:
            run = SmallRun(cloud, client, directory)
            journal = run.journal()
            book = run.book(journal)
            for number in ending_signals():
                asyncio.get_running_loop().add_signal_handler(number, lambda n=number: book.interrupt(interruption(n)))
            try:
                await book.acquire((await run.search())[:2])
                print("held", flush=True)
                error = await book.failure()
            except Interrupted as caught:
                error = caught
            left = await book.release("the run is over")
            journal.close()
            return 4 if left else error.exit_status


class FullDisk:
    """A journal on a disk that takes `after` lines."""

    def __init__(self, after: int = 0) -> None:
        self.left = after

    def append(self, entry: Entry, *, at: float) -> None:
        if self.left <= 0:
            raise NotEnoughDisk("the journal cannot be written: no space left on device")
        self.left -= 1
