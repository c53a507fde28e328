"""A whole rented run by the command line, its machines being processes here: what comes out, and what must not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ppsmoke.bundle.reader import read_bundle
from ppsmoke.run_events import ErrorSeen, MoneySpent, RunEnded, StageDoing, StagePlaced, StageState
from ppsmoke.stub_model import parse_stub_model, stub_decode, stub_encode, stub_tokens
from tests.vast.commanding import STUB, Office, Said, office
from tests.vast.emulated import KEY
from tests.vast.rented import SCALE, machines
from tests.vast_emulator.account import Rental

RUN = ("--vastai", "-n", "2", *STUB, "--max-tokens", "6", "--yes")


def secrets_of(shop: Office) -> set[str]:
    """The user's key, what each machine was told in secret, and each instance's own key."""
    ours = [x for x in shop.cloud.service.account.rentals.values() if x.instance_id not in shop.cloud.foreign]
    environments = [x.wish["env"] for x in ours]
    told = {environment[name] for environment in environments for name in ("PP_JOIN_TOKEN", "PP_NODE_KEY")}
    assert len(told) == 1 + len(ours), "one token, and a key each"
    return {KEY, *told, *(x.key for x in ours)}


def what_was_written(shop: Office, said: Said) -> Iterator[tuple[str, str]]:
    """Every place where a secret could have gone."""
    yield "stdout", said.out
    yield "stderr", said.err
    for path in sorted(shop.home.rglob("*")):
        if path.is_file() and shop.home / "config" not in path.parents:
            yield str(path.relative_to(shop.home)), path.read_bytes().decode(errors="replace")


def assert_no_secrets(shop: Office, said: Said) -> None:
    secrets = secrets_of(shop)
    for where, text in what_was_written(shop, said):
        assert not any(secret in text for secret in secrets), f"a secret is in {where}"


def test_a_rented_run_prints_the_text_and_what_it_cost_and_leaves_no_machine_and_no_secret(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with machines(tmp_path) as nodes, office(home, nodes=nodes, scale=SCALE) as shop:
        said = shop.run(*RUN, "--debug")
        assert said.status == 0, said.err
        model = parse_stub_model(STUB[1])
        assert said.out == stub_decode(stub_tokens(stub_encode("hello"), 6, model))
        assert "rented  2 machines, at most 0.0" in said.err
        assert shop.alive() == set()
        assert_no_secrets(shop, said)
        calls = next((home / "state").rglob("vast-calls.log")).read_text()
        for words in (
            "search answered 200",
            "a search gave ",
            "create answered 200",
            "destroy answered 200",
            "listed: ",
        ):
            assert words in calls, calls
        offers = json.loads(next((home / "state").rglob("offers.json")).read_text())
        assert [row["stage"] for row in offers["offers"]] == [0, 1]
        (folder,) = (home / "state" / "pp-smoke-run" / "runs").iterdir()
        bundle = read_bundle(folder)
        assert bundle.run is not None
        assert bundle.run["rental"] == bundle.rental
        assert {span.step.stage for span in bundle.spans} == {0, 1}
        assert {event.host.split(",")[0].split(" ")[0] for _, event in bundle.of_kind(StagePlaced)} == {"instance"}
        states = [event.state for _, event in bundle.of_kind(StageDoing) if event.stage == 0]
        passed = [StageState.RENTING, StageState.STARTING, StageState.LOADING, StageState.PREFILL, StageState.STOPPED]
        assert [state for state in dict.fromkeys(states) if state in passed] == passed
        assert max(event.per_hour for _, event in bundle.of_kind(MoneySpent)) > 0


def test_as_json_a_rented_run_tells_its_machines_and_money(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with machines(tmp_path) as nodes, office(home, nodes=nodes, scale=SCALE) as shop:
        said = shop.run(*RUN, "--json", "--debug", "--api-key", KEY, VAST_API_KEY="")
        assert said.status == 0, said.err
        body = said.json
        assert (body["exit_status"], len(body["tokens"]), body["finish_reason"]) == (0, 6, "max_tokens")
        rental = body["rental"]
        assert [row["stage"] for row in rental["instances"]] == [0, 1]
        assert {row["state"] for row in rental["instances"]} == {"gone"}
        prices = [row["price_per_hour_usd"] for row in rental["instances"]]
        assert rental["price_per_hour_usd"] == round(sum(prices), 4)
        assert 0 <= rental["spent_usd"] < 0.1
        assert shop.alive() == set()
        assert_no_secrets(shop, said)


_TALKATIVE = """#!/bin/sh
[ $# -gt 0 ] && exec {python} -P -m ppsmoke.node_cli "$@"
env
env >&2
echo "I was told $PP_JOIN_TOKEN and $PP_NODE_KEY."
{python} -c 'import base64, json, os; told = dict(os.environ); print(json.dumps(told), repr(told)); \
[print(base64.b64encode(bytes.fromhex(told[name])), told[name].upper()) for name in ("PP_JOIN_TOKEN", "PP_NODE_KEY")]'
exec {python} -P -m ppsmoke.node_cli
"""


def test_a_run_that_fails_tells_why_leaves_no_machine_and_no_secret(tmp_path: Path) -> None:
    """Also where the machines' programs print all that they were told, and vast.ai repeats it."""
    home = tmp_path / "home"
    home.mkdir()
    broken = ("--vastai", "-n", "2", "--model", "stub:layers=6,load_fail=1", "--yes", "--replacements", "0")
    with machines(tmp_path, _TALKATIVE) as nodes, office(home, nodes=nodes, scale=SCALE) as shop:
        repeat_what_was_told(shop)
        said = shop.run(*broken, "--json", "--debug", HF_TOKEN="hf_of-the-users-shell")
        body = json.loads(said.out)
        assert said.status == body["exit_status"] != 0
        assert body["error"]["stage"] in (0, 1), body
        assert {row["state"] for row in body["rental"]["instances"]} == {"gone"}
        assert shop.alive() == set()
        assert_no_secrets(shop, said)
        assert_no_other_spelling(shop, said)
        (folder,) = (home / "state" / "pp-smoke-run" / "runs").iterdir()
        assert f"pp-smoke-run report {folder}" in said.err
        bundle = read_bundle(folder)
        assert bundle.run is not None
        assert bundle.run["error"] == body["error"]
        assert bundle.rental == body["rental"]
        assert [event.exit_status for _, event in bundle.of_kind(RunEnded)] == [said.status]
        assert [event.code for _, event in bundle.of_kind(ErrorSeen)][:1] == [body["error"]["code"]]
        assert [event.per_hour for _, event in bundle.of_kind(MoneySpent)][-1] == 0
        assert any(row.get("left_out") for row in bundle.offers["considered"])
        assert len(bundle.instance_logs) == 2
        logs = "\n".join(path.read_text() for path in bundle.instance_logs.values())
        assert "I was told [secret] and [secret]." in logs
        assert "they say [secret] [secret]" in logs, "the status message"


def repeat_what_was_told(shop: Office) -> None:
    """From now on the state of every instance is told with its secrets in the message."""
    account = shop.cloud.service.account
    row = account.row

    def with_secrets(rental: Rental, now: float) -> dict[str, Any]:
        told = rental.wish.get("env") or {}
        shown = row(rental, now)
        if "PP_JOIN_TOKEN" in told:
            shown["status_msg"] = f"{shown['status_msg']}; they say {told['PP_JOIN_TOKEN']} {rental.key}"
        return shown

    account.row = with_secrets  # type: ignore[method-assign]


def assert_no_other_spelling(shop: Office, said: Said) -> None:
    """What is hexadecimal is not there in capitals or as base64 either, and nothing of the user's shell is."""
    keys = [secret for secret in secrets_of(shop) if len(secret) == 64 and secret != KEY]
    spelled = {key.upper() for key in keys} | {base64.b64encode(bytes.fromhex(key)).decode() for key in keys}
    for where, text in what_was_written(shop, said):
        assert not any(spelling in text for spelling in spelled), f"a secret is in {where}"
        assert "hf_of-the-users-shell" not in text, where


def test_the_key_is_in_no_childs_environment_or_arguments(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    slow = ("--vastai", "-n", "2", "--model", "stub:layers=6,step_ms=20", "--max-tokens", "400", "--yes")
    with (
        machines(tmp_path) as nodes,
        office(home, nodes=nodes, scale=SCALE) as shop,
        shop.at_a_terminal(*slow) as person,
    ):
        person.wait_for("stage 1  blocks")
        seen = 0
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                if environment.get("PP_VAST_URL") == shop.cloud.url:
                    seen += 1
                    assert not any(KEY in word for word in (*process.cmdline(), *environment.values()))
            except (psutil.Error, OSError):
                continue
        assert seen >= 2 * 3, "a shell, a node and a worker of each machine were looked at"
        assert psutil.Process(person.process.pid).children() == []
        person.process.terminate()
        said = person.end()
        assert said.status == 143, said.err
        assert shop.alive() == set()


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_the_run_and_leaves_no_machine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    slow = ("--vastai", "-n", "2", "--model", "stub:layers=6,step_ms=100", "--max-tokens", "200", "--yes")
    with (
        machines(tmp_path) as nodes,
        office(home, nodes=nodes, scale=SCALE) as shop,
        shop.at_a_terminal(*slow) as person,
    ):
        person.wait_for("stage 1  blocks")
        assert len(shop.alive()) == 2
        person.hang_up()
        assert person.end().status == 129
        assert shop.alive() == set()
