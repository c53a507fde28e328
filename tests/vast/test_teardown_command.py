"""`pp-smoke-run --teardown` as a user meets it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from ppsmoke.vast.journal import Journal, read_journals
from ppsmoke.vast.lease_events import Entry, Kind
from ppsmoke.vast.lease_labels import run_label, stage_label
from tests.cli.kit import PATIENCE_S
from tests.vast.commanding import Office, office
from tests.vast.emulated import OTHER_RUN_LABEL, RUN_ID, dead_header

LABEL = stage_label(RUN_ID, 0, "a")


def leave(shop: Office, stage: int = 0) -> int:
    """An instance of a run whose process is dead, with its journal."""
    label = stage_label(RUN_ID, stage, "a")
    instance_id = shop.rent(label)
    directory = shop.home / "state" / "pp-smoke-run" / "leases"
    journal = Journal.begin(directory, dead_header(url=shop.cloud.url), at=1.0)
    journal.append(Entry(Kind.INTENT, label, stage=stage, offer_id=5, machine_id=6, price_per_hour=0.5), at=1.0)
    journal.append(Entry(Kind.CREATED, label, instance_id, stage), at=1.0)
    journal.close()
    return instance_id


def test_there_may_be_nothing_to_destroy(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        said = shop.run("--teardown")
        assert said.status == 0
        assert said.out.splitlines()[-1] == "There is nothing to destroy."
        assert OTHER_RUN_LABEL.rpartition("-")[0].rpartition("-")[0] in said.out, "another machine's run is named"


def test_leftovers_are_shown_destroyed_and_verified(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        instance_id = leave(shop)
        said = shop.run("--teardown", "--yes")
        assert (said.status, said.err) == (0, "")
        for words in (
            f"{instance_id}  {LABEL}  running",
            " min  0.",
            "so far",
            f"instance {instance_id} is destroyed, verified",
        ):
            assert words in said.out, said.out
        assert max(map(len, said.out.splitlines())) <= 80, said.out
        assert shop.alive() == set()
        assert all(record.closed for record in read_journals(tmp_path / "state" / "pp-smoke-run" / "leases"))


def test_a_journal_that_cannot_be_read_keeps_no_other_runs_machine_alive(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        leave(shop)
        broken, scope = "0b0b" * 8, run_label("0b0b" * 8)
        other = shop.rent(stage_label(broken, 0, "a"))
        (tmp_path / "state" / "pp-smoke-run" / "leases" / f"{broken}.jsonl").mkdir()
        said = shop.run("--teardown", "--yes", "--json")
        assert said.status == said.json["exit_status"] == 3
        assert said.json["error"]["message"].startswith(f"what run {scope} left is not known: the journal of rented")
        assert shop.alive() == {other}, "of which it cannot be known whether its run is in progress"
        said = shop.run("--teardown", "--yes", "--label", scope)
        assert said.status == 0, said.err
        assert shop.alive() == set()


def test_nobody_is_asked_where_there_is_no_terminal(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        instance_id = leave(shop)
        said = shop.run("--teardown")
        said.refused(2, "there is no terminal to ask on", "--yes")
        assert LABEL in said.out
        assert shop.alive() == {instance_id}


def test_the_answer_at_the_terminal_decides(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        instance_id = leave(shop)
        for answer, left in (("\n", {instance_id}), ("yes\n", set())):
            with shop.at_a_terminal("--teardown") as person:
                person.wait_for("[y/N] ")
                person.types(answer)
                said = person.end()
            assert said.status == 0, said.err
            assert shop.alive() == left
            assert ("Nothing was destroyed." in said.out) == bool(left)


def test_a_label_takes_one_instance_and_all_takes_every_run_of_this_tool(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        first, second = leave(shop, 0), shop.rent(stage_label(RUN_ID, 1, "b"))
        foreign = shop.cloud.foreign
        body = shop.run("--teardown", "--label", stage_label(RUN_ID, 1, "b"), "--yes", "--json").json
        assert body["destroyed"] == [second]
        assert shop.alive() == {first}
        assert shop.run("--teardown", "--all", "--yes").status == 0
        shop.cloud.foreign = foreign[:1]  # the other one is of this tool
        assert shop.alive() == set()
        assert foreign[0] in {x.instance_id for x in shop.cloud.service.account.ledger.alive()}


def test_as_json_it_is_one_object(tmp_path: Path) -> None:
    with office(tmp_path) as shop:
        instance_id = leave(shop)
        said = shop.run("--teardown", "--yes", "--json")
        body = said.json
        assert (said.status, body["exit_status"], body["destroyed"]) == (0, 0, [instance_id])
        (mine,) = [run for run in body["runs"] if run["label"] == run_label(RUN_ID)]
        assert (mine["owner"], mine["left_alone"]) == ("ended", None)
        (row,) = mine["instances"]
        assert (row["id"], row["label"], row["stage"], row["status"]) == (instance_id, LABEL, 0, "running")
        assert row["age_s"] > 0
        assert row["price_per_hour_usd"] > 0
        (other,) = [run for run in body["runs"] if run["label"] != run_label(RUN_ID)]
        assert "--all" in other["left_alone"]


def test_what_cannot_be_verified_is_named_with_exit_status_4(tmp_path: Path) -> None:
    with office(tmp_path, "destroy:*=bad_key_404") as shop:
        instance_id = leave(shop)
        said = shop.run("--teardown", "--yes", "--json")
        said.refused(
            4,
            f"instance {instance_id} may still be there",
            "USD an hour",
            f"--teardown --vast-url {shop.cloud.url} --label {LABEL} --yes",
        )
        body = json.loads(said.out)
        assert (body["exit_status"], body["error"]["code"], body["destroyed"]) == (4, "leases_left", [])


def test_what_is_left_is_never_guessed(tmp_path: Path) -> None:
    with office(tmp_path, "list:*=session_expired") as shop:
        leave(shop)
        said = shop.run("--teardown", "--yes")
        said.refused(1, "Session expired", "log in again")
        assert shop.calls("destroy") == 0
    with office(tmp_path / "b") as shop:
        shop.run("--teardown", VAST_API_KEY="").refused(2, "There is no vast.ai key")
        shop.run("--teardown", "--label", "pp-smoke").refused(2, "--label 'pp-smoke' is not the label")
        assert shop.cloud.service.heard == []


def test_signals_hurry_a_teardown_and_the_third_one_names_what_is_left(tmp_path: Path) -> None:
    with office(tmp_path, "destroy:*=500", scale=0.1) as shop:
        instance_id, asked = leave(shop), shop.hears("destroy")
        with shop.at_a_terminal("--teardown", "--yes") as person:
            assert asked.wait(PATIENCE_S)
            for words in ("what was begun is brought to its end", "at most a minute more", "could not be verified"):
                person.process.send_signal(signal.SIGINT)
                person.wait_for(words)
            said = person.end()
        assert said.status == 4
        assert f"instance {instance_id} may still be there" in " ".join(said.err.split())
        assert shop.alive() == {instance_id}


def test_a_teardown_that_was_interrupted_and_is_done_says_both(tmp_path: Path) -> None:
    with office(tmp_path, "destroy:1=500,destroy:2=500,destroy:3=500,destroy:4=500") as shop:
        leave(shop)
        asked = shop.hears("destroy")
        with shop.at_a_terminal("--teardown", "--yes") as person:
            assert asked.wait(PATIENCE_S)
            person.process.terminate()
            said = person.end()
        assert said.status == 143, said.err
        assert "Nothing is left of these runs." in said.out
        assert shop.alive() == set()
