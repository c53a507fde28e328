"""A teardown finds what earlier runs left, by journal and by label, and touches nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault, LeasesLeft, UsageError, VastFailed
from ppsmoke.process_mark import Life
from ppsmoke.vast.client import VastClient
from ppsmoke.vast.journal import Journal, read_journals
from ppsmoke.vast.lease_book import LeaseBook
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.lease_labels import check_scope, in_scope, is_ours, run_label, scope_of_id, stage_label
from ppsmoke.vast.lease_owner import header_of_this_process
from ppsmoke.vast.teardown import Choice, LeftRun, TornDown, choose, describe, find_leftovers, tear_down, warning
from ppsmoke.vast.teardown_dialog import destroy_leftovers
from tests.vast.emulated import FOREIGN_LABEL, KEY, OTHER_RUN_LABEL, RUN_ID, Emulated, SmallRun, dead_header, emulated

SCOPE = run_label(RUN_ID)


class Left:
    """An account on which a run of ours left things, and the journal directory."""

    def __init__(self, cloud: Emulated, client: VastClient, directory: Path) -> None:
        self.cloud = cloud
        self.client = client
        self.directory = directory

    def rent(self, label: str | None, *, age_s: float = 600.0, **wish: object) -> int:
        """An instance that runs since `age_s` of the service's seconds."""
        service = self.cloud.service
        taken = service.account.taken_machines()
        offer = next(x for x in service.offers if x["machine_id"] not in taken)
        now = service.settle()
        return service.account.rent(offer, {"image": "x", "label": label, **wish}, "runs", now - age_s).instance_id

    def journal(self, *entries: Entry, run_id: str = RUN_ID, alive: bool = False, **header: object) -> Journal:
        told = header_of_this_process(run_id, self.cloud.url, None) if alive else dead_header(run_id, self.cloud.url)
        journal = Journal.begin(self.directory, replace(told, **header), at=time.time())  # type: ignore[arg-type]
        for entry in entries:
            journal.append(entry, at=time.time())
        journal.close()
        return journal

    def wall(self) -> float:
        """What the service's clock shows."""
        return self.cloud.service.clock.date(self.cloud.service.settle())

    async def find(self, account: str | None = None) -> list[LeftRun]:
        return await find_leftovers(self.client, self.directory, url=self.cloud.url, account=account)

    async def choose(self, label: str | None = None, everything: bool = False) -> Choice:
        return choose(await self.find(), label=label, everything=everything)

    async def tear_down(self, label: str | None = None, everything: bool = False) -> TornDown:
        """As the command does it."""
        chosen = (await self.choose(label, everything)).chosen
        return await tear_down(self.client, chosen, times=self.cloud.times())

    def alive(self) -> set[int]:
        self.cloud.service.wait_for_late_effects()
        return {x.instance_id for x in self.cloud.service.account.ledger.alive()} - set(self.cloud.foreign)


def scenario(directory: Path, body: Callable[[Left], Awaitable[None]], faults: str = "") -> None:
    async def main() -> None:
        async with emulated(faults) as cloud, cloud.client() as client:
            await body(Left(cloud, client, directory))
            assert set(cloud.foreign) <= {x.instance_id for x in cloud.service.account.ledger.alive()}
            assert cloud.service.broken == []

    asyncio.run(main())


def label(stage: int = 0, nonce: str = "a", run_id: str = RUN_ID) -> str:
    return stage_label(run_id, stage, nonce)


def intent(stage: int = 0, nonce: str = "a") -> Entry:
    return Entry(Kind.INTENT, label(stage, nonce), stage=stage, offer_id=5, machine_id=6, price_per_hour=0.5)


def created(instance_id: int, stage: int = 0) -> Entry:
    return Entry(Kind.CREATED, label(stage), instance_id, stage)


# ---- finding and destroying


def test_what_a_dead_run_left_is_destroyed_and_verified(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        ids = [left.rent(label(0)), left.rent(label(1))]
        left.journal(intent(0), created(ids[0], 0), intent(1), created(ids[1], 1))
        torn = await left.tear_down()
        assert torn == TornDown(tuple(ids), ())
        assert left.alive() == set()
        (record,) = read_journals(tmp_path)
        assert record.closed
        assert SCOPE not in [run.scope for run in await left.find()]

    scenario(tmp_path, body)


def test_an_instance_whose_id_was_never_written_is_found_by_its_label(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.rent(label(0))
        left.journal(intent(0))
        await left.tear_down()
        assert left.alive() == set()

    scenario(tmp_path, body)


def test_an_instance_whose_label_was_edited_is_found_by_its_id_or_its_environment(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        known = left.rent("mine now")
        marked = left.rent("mine too", env={"PP_INSTANCE_LABEL": label(1)})
        left.journal(intent(0), created(known), intent(1))
        (run,) = [x for x in await left.find() if x.scope == SCOPE]
        assert {x.id for x in run.instances} == {known, marked}
        await left.tear_down()
        assert left.alive() == set()

    scenario(tmp_path, body)


def test_an_instance_that_shows_up_after_the_kill_is_waited_for(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.journal(intent(0))
        service = left.cloud.service
        offer = service.offers[3]
        service.put_off(30.0, lambda at: service.account.rent(offer, {"label": label(0)}, "runs", at))
        torn = await left.tear_down()
        assert len(torn.gone) == 1
        assert left.alive() == set()

    scenario(tmp_path, body)


def test_a_dead_run_that_left_nothing_is_closed(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        gone = left.rent(label(0))
        left.cloud.service.account.destroy(gone, left.cloud.service.settle())
        left.journal(intent(0), created(gone))
        torn = await left.tear_down()
        assert torn.unverified == ()
        assert read_journals(tmp_path)[0].closed

    scenario(tmp_path, body)


def test_faults_during_a_teardown_are_sat_out(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        torn = await left.tear_down()
        assert torn == TornDown((instance_id,), ())
        assert left.alive() == set()

    scenario(tmp_path, body, "destroy:1=500,destroy:2=429_json,destroy:3=lies,list:2=short_page,list:4=502_html")


def test_an_error_that_is_not_a_list_finds_nothing_and_says_so(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.rent(label(0))
        with pytest.raises(VastFailed):
            await left.find()

    scenario(tmp_path, body, "list:*=session_expired")


def test_what_cannot_be_destroyed_is_named_and_stays_open(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        chosen = (await left.choose()).chosen
        times = replace(left.cloud.times(), release=1.0)
        torn = await tear_down(left.client, chosen, times=times)
        assert [x.instance_id for x in torn.unverified] == [instance_id]
        assert torn.gone == ()
        assert not read_journals(tmp_path)[0].closed
        left.cloud.service.faults.rules = ()
        assert (await left.tear_down()).gone == (instance_id,)
        assert read_journals(tmp_path)[0].closed

    scenario(tmp_path, body, "destroy:*=500")


def test_one_run_that_cannot_be_ended_does_not_keep_another_open(tmp_path: Path) -> None:
    other = "e" * 32

    async def body(left: Left) -> None:
        stuck = left.rent(label(0))
        left.journal(intent(0), created(stuck))
        left.journal(Entry(Kind.INTENT, label(0, run_id=other), stage=0), run_id=other)
        opened: list[LeaseBook] = []

        def news(entry: Entry) -> None:
            if entry.kind is Kind.GONE:
                opened[0].give_up("enough was seen")

        chosen = (await left.choose()).chosen
        torn = await tear_down(left.client, chosen, times=left.cloud.times(), news=news, opened=opened.append)
        assert len(torn.unverified) == 1
        assert {x.run_id: x.closed for x in read_journals(tmp_path)} == {RUN_ID: False, other: True}

    scenario(tmp_path, body, "destroy:*=500")


def test_a_second_and_a_third_ctrl_c_end_a_teardown(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        opened: list[LeaseBook] = []
        chosen = (await left.choose()).chosen
        running = tear_down(left.client, chosen, times=left.cloud.times(), opened=opened.append)
        task = asyncio.create_task(running)
        await asyncio.sleep(0.05)
        opened[0].hurry()
        opened[0].give_up("interrupted")
        torn = await task
        assert [x.instance_id for x in torn.unverified] == [instance_id]

    scenario(tmp_path, body, "destroy:*=timeout_before")


# ---- what is left alone


def test_a_run_in_progress_is_left_alone_unless_it_is_named(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id), alive=True)
        for everything in (False, True):
            choice = await left.choose(everything=everything)
            assert SCOPE not in [run.scope for run in choice.chosen]
            ((_, reason),) = [x for x in choice.left_alone if x[0].scope == SCOPE]
            assert f"in progress, process {os.getpid()}" in reason
        assert [run.scope for run in (await left.choose(label=SCOPE)).chosen] == [SCOPE]
        assert (await left.tear_down(label=SCOPE)).gone == (instance_id,)

    scenario(tmp_path, body)


def test_what_no_journal_here_tells_of_is_left_alone_unless_asked_for(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        choice = await left.choose()
        assert choice.chosen == ()
        assert any("--all" in reason for _, reason in choice.left_alone)
        assert (await left.tear_down(label=SCOPE)).gone == (instance_id,)

    scenario(tmp_path, body)


def test_an_edited_label_does_not_hide_an_instance_from_all(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.rent("mine", env={"PP_INSTANCE_LABEL": label(1)})
        chosen = (await left.choose(label=SCOPE)).chosen
        assert [x.scope for x in chosen] == [SCOPE]
        await left.tear_down(label=SCOPE)
        assert left.alive() == set()

    scenario(tmp_path, body)


def test_a_run_of_another_machine_is_left_alone_unless_asked_for(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id), host="elsewhere")
        assert SCOPE not in [run.scope for run in (await left.choose()).chosen]
        assert SCOPE in [run.scope for run in (await left.choose(everything=True)).chosen]

    scenario(tmp_path, body)


def test_a_run_whose_journal_is_damaged_is_left_alone_and_called_that(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.rent(label(0))
        path = left.journal(intent(0)).path
        path.write_bytes(b"\0" * 100)
        alone = {run.scope: why for run, why in (await left.choose()).left_alone}
        assert alone[SCOPE].startswith(f"its journal {path} is damaged")
        assert SCOPE in [run.scope for run in (await left.choose(everything=True)).chosen]

    scenario(tmp_path, body)


def test_all_means_all_of_this_tool_and_nobody_elses(tmp_path: Path) -> None:
    async def main() -> None:
        async with emulated() as cloud, cloud.client() as client:
            left = Left(cloud, client, tmp_path)
            left.rent(label(0))
            strange = [left.rent("pp-smoke"), left.rent("pp-smoke-notes"), left.rent(None), left.rent(f"my-{label(1)}")]
            await left.tear_down(everything=True)
            alive = {x.instance_id: x.label for x in cloud.service.account.ledger.alive()}
            assert set(strange) <= set(alive)
            assert FOREIGN_LABEL in alive.values()
            assert OTHER_RUN_LABEL not in alive.values(), "another run of this tool counts as all"
            assert len(alive) == len(strange) + 1

    asyncio.run(main())


def test_a_label_takes_just_what_is_under_it(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        first, second = left.rent(label(0)), left.rent(label(1))
        left.journal(intent(0), created(first, 0), intent(1), created(second, 1))
        torn = await left.tear_down(label=label(1))
        assert torn.gone == (second,)
        assert left.alive() == {first}
        assert not read_journals(tmp_path)[0].closed

    scenario(tmp_path, body)


def test_another_accounts_journal_proves_nothing_here(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.journal(intent(0), created(99), account="77")
        choice = choose(await left.find("123456"), label=None, everything=False)
        ((run, reason),) = [x for x in choice.left_alone if x[0].scope == SCOPE]
        assert "account 77" in reason
        assert not read_journals(tmp_path)[0].closed
        assert warning([run], left.wall(), url=left.cloud.url) is None
        assert SCOPE in [x.scope for x in choose(await left.find("77"), label=None, everything=False).chosen]

    scenario(tmp_path, body)


def test_another_services_journal_proves_nothing_here(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.journal(intent(0), created(99), url="https://console.vast.ai")
        choice = await left.choose()
        assert choice.chosen == ()
        assert any("https://console.vast.ai" in reason for _, reason in choice.left_alone)

    scenario(tmp_path, body)


# ---- what is said


def test_the_user_sees_age_state_and_cost(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(1), age_s=7260.0)
        left.journal(intent(1), created(instance_id, 1), intent(0))
        (run,) = [x for x in await left.find() if x.scope == SCOPE]
        header, head, line, waiting = describe(run, left.wall())
        assert header == f"run {SCOPE}: ended"
        assert head.split() == ["instance", "label", "state", "age", "USD/h", "so", "far"]
        price = next(x.price_per_hour for x in left.cloud.service.account.ledger.lives if x.instance_id == instance_id)
        assert line.split() == [str(instance_id), label(1), "running", "2", "h", f"{price:.3f}", f"{price * 2.02:.2f}"]
        assert label(0) in waiting

    scenario(tmp_path, body)


def test_a_start_warns_of_what_earlier_runs_left(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        assert warning([x for x in await left.find() if x.scope == SCOPE], left.wall(), url=left.cloud.url) is None
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        mine = [x for x in await left.find() if x.scope == SCOPE]
        said = warning(mine, left.wall(), url=left.cloud.url)
        assert said is not None
        assert said.startswith("earlier runs left 1 rented instance, ")
        assert f"pp-smoke-run --teardown --vast-url {left.cloud.url} shows" in said
        there = warning(mine, left.wall(), url="https://console.vast.ai")
        assert there is not None
        assert "pp-smoke-run --teardown shows" in there
        assert "another machine" not in said
        assert "another machine" in (warning(await left.find(), left.wall(), url=left.cloud.url) or "")
        assert warning([replace(x, owner=Life.ALIVE) for x in mine], left.wall(), url=left.cloud.url) is None

    scenario(tmp_path, body)


class Dialog:
    """The command, with the answers a user gives."""

    def __init__(self, left: Left, *answers: bool) -> None:
        self.left = left
        self.answers = list(answers)
        self.asked: list[str] = []
        self.said: list[str] = []

    async def run(self, *, label: str | None = None, everything: bool = False, yes: bool = False) -> TornDown:
        return await destroy_leftovers(
            self.left.client,
            self.left.directory,
            url=self.left.cloud.url,
            account=None,
            label=label,
            everything=everything,
            yes=yes,
            confirm=self.confirm if self.answers else None,
            say=self.said.append,
            wall=self.left.wall,
            times=self.left.cloud.times(),
        )

    async def confirm(self, question: str) -> bool:
        self.asked.append(question)
        return self.answers.pop(0)


def test_nothing_is_destroyed_without_a_yes(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        with pytest.raises(UsageError, match="no terminal"):
            await Dialog(left).run()
        refused = Dialog(left, False)
        await refused.run()
        assert "Destroy 1 instance (" in refused.asked[0]
        assert refused.said[-1] == "Nothing was destroyed."
        assert left.alive() == {instance_id}
        agreed = Dialog(left, True)
        await agreed.run()
        assert f"instance {instance_id} is destroyed, verified by two listings" in agreed.said
        assert left.alive() == set()
        again = Dialog(left)
        await again.run()
        assert again.said[-1] == "There is nothing to destroy."

    scenario(tmp_path, body)


def test_a_run_is_destroyed_by_the_id_that_it_printed(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        nothing = Dialog(left)
        await nothing.run(label="0" * 8, yes=True)
        assert nothing.said == ["There is nothing to destroy of 00000000."]
        assert left.alive() == {instance_id}
        await Dialog(left).run(label=RUN_ID[:8], yes=True)
        assert left.alive() == set()

    scenario(tmp_path, body)


def test_yes_is_enough_without_a_terminal(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        left.journal(intent(0), created(left.rent(label(0))))
        await Dialog(left).run(yes=True)
        assert left.alive() == set()

    scenario(tmp_path, body)


def test_a_run_in_progress_is_asked_about_by_itself(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id), alive=True)
        await Dialog(left).run(everything=True, yes=True)
        assert left.alive() == {instance_id}, "with --yes nobody was asked"

        left.rent(label(0, run_id="d" * 32))
        careful = Dialog(left, False, True)
        await careful.run(everything=True)
        assert "in progress. End it too?" in careful.asked[0]
        assert left.alive() == {instance_id}

        bold = Dialog(left, True, True)
        await bold.run(everything=True)
        assert left.alive() == set()

    async def main() -> None:
        async with emulated() as cloud, cloud.client() as client:
            await body(Left(cloud, client, tmp_path))

    asyncio.run(main())


def test_what_is_left_in_spite_of_a_teardown_is_an_error_of_its_own(tmp_path: Path) -> None:
    async def body(left: Left) -> None:
        instance_id = left.rent(label(0))
        left.journal(intent(0), created(instance_id))
        with pytest.raises(LeasesLeft, match=f"instance {instance_id} may still be there") as caught:
            await Dialog(left).run(yes=True)
        assert caught.value.exit_status == 4

    scenario(tmp_path, body, "destroy:*=bad_key_404")


# ---- labels


def test_labels_of_this_tool_are_told_from_others() -> None:
    assert is_ours(label())
    for other in (None, "", "pp-smoke", "pp-smoke-notes", f"{label()} ", f"x{label()}", label().upper(), SCOPE):
        assert not is_ours(other)
    assert in_scope(label(1), SCOPE)
    assert in_scope(label(1, "ab"), label(1, "ab"))
    assert not in_scope(label(1, "ab"), label(1, "a"))
    assert not in_scope(label(11), f"{SCOPE}-1")
    assert not in_scope(None, SCOPE)


def test_a_run_is_meant_by_the_first_digits_of_its_id_where_no_other_is() -> None:
    one, other = "0123456789abcdef" * 2, "0123456789ff" + "0" * 20
    for given in (one, one[:8], one[:12]):
        assert scope_of_id(given, [run_label(one), SCOPE]) == run_label(one)
    assert scope_of_id(one[:12], [run_label(one), run_label(other)]) == run_label(one)
    assert scope_of_id("0" * 8, [SCOPE]) == "0" * 8
    assert scope_of_id(label(1), [SCOPE]) == label(1)
    with pytest.raises(UsageError, match="2 runs' ids begin with 01234567: 0123456789ab, 0123456789ff"):
        scope_of_id(one[:8], [run_label(one), run_label(other)])


@pytest.mark.parametrize("given", ["", "pp-smoke", "pp-smoke-", "pp-smoke-5eed", "notebook", f"{SCOPE}*", f"x-{SCOPE}"])
def test_a_label_that_could_hit_other_runs_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="--label"):
        check_scope(given)


@pytest.mark.parametrize("given", [SCOPE, f"{SCOPE}-", f"{SCOPE}-3", label(3, "k2q8"), RUN_ID, RUN_ID[:8]])
def test_a_label_of_a_run_or_an_instance_is_taken(given: str) -> None:
    assert check_scope(given) == given.rstrip("-")


# ---- a real kill


def test_a_run_killed_while_it_rents_is_found_and_ended(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, pathlib\n"
        "from tests.vast.test_teardown import rent_for_ever\n"
        "asyncio.run(rent_for_ever(sys.argv[1], pathlib.Path(sys.argv[2])))\n"
    )

    async def body(left: Left) -> None:
        second = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_call(call: str, number: int) -> None:
            if call == "create" and number == 2:
                loop.call_soon_threadsafe(second.set)

        left.cloud.service.on_call = on_call
        child = start([sys.executable, "-c", program, left.cloud.url, str(tmp_path)])
        try:
            async with asyncio.timeout(60):
                await second.wait()
            child.send_signal(signal.SIGKILL)
        finally:
            child.kill()
            await asyncio.to_thread(child.wait)
        assert left.alive()
        (record,) = read_journals(tmp_path)
        assert not record.closed
        await left.tear_down()
        assert left.alive() == set()
        assert read_journals(tmp_path)[0].closed

    scenario(tmp_path, body, "create:2=timeout_after")


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


async def rent_for_ever(url: str, directory: Path) -> None:
    """What the killed process does."""
    async with emulated() as cloud:
        cloud.url = url
        async with cloud.client(KEY) as client:
            run = SmallRun(cloud, client, directory)
            journal = Journal.begin(directory, header_of_this_process(RUN_ID, url, None), at=1.0)
            await run.book(journal).acquire((await run.search())[:2])
            raise EnvironmentFault("it was to be killed before")
