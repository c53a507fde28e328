"""The caller's own code on rented machines: shipped when they are rented, and again, changed, while they are held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed_code import NEW_TOKEN, changed_code
from tests.vast.bare_machines import machines_that_install
from tests.vast.commanding import Office, office
from tests.vast.rented import SCALE, machines
from tests.vast.test_rented_hold import HOLD, text


@pytest.mark.parametrize("ship", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_machines_run_what_is_shipped_and_then_what_is_redeployed(ship: bool, tmp_path: Path) -> None:
    """The second without renting or destroying one."""
    home = tmp_path / "home"
    home.mkdir()
    logs = tmp_path / "logs"
    options = (*HOLD, "--log-dir", str(logs), *(("--ship", "--join-timeout", "240") if ship else ()))
    place = machines_that_install if ship else machines
    with (
        place(tmp_path) as nodes,
        office(home, nodes=nodes, scale=SCALE) as shop,
        shop.at_a_terminal(*options) as person,
    ):
        person.wait_for("\r\n> ")
        rented = shop.alive()
        assert len(rented) == 2
        redeploy(shop, tmp_path)
        assert shop.alive() == rented
        person.types("two\n")
        person.wait_for("answer  6 tokens")
        person.seen = ""
        person.wait_for("\r\n> ")
        person.types("\x04")
        said = person.end()
        assert said.status == 0, said.err
        assert said.out == f"{text('hello')}\n{chr(NEW_TOKEN) * 6}\n"
        assert "rented  2 machines, " in said.err
        assert shop.alive() == set()
        assert len(shop.cloud.service.account.rentals) == 2 + len(shop.cloud.foreign)
    told = [path.read_text() for path in logs.glob("instance-*.log")]
    assert len(told) == 2
    for log in told:
        assert ("pp-smoke-run: installing the code of the caller as pp-smoke-run==" in log) == ship
        assert "the new code begins" in log


def redeploy(shop: Office, folder: Path) -> None:
    sent = shop.redeploy(**changed_code(folder / "new"))
    assert sent.status == 0, sent.err
    assert "redeployed  0.1.0  code " in sent.err


@pytest.mark.slow
def test_machines_that_do_not_come_back_are_given_back_and_the_stage_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    broken = "\n\ndef parse_settings(environ):\n    raise BadNodeEnvironment('it gave up')\n"
    with (
        machines(tmp_path) as nodes,
        office(home, nodes=nodes, scale=SCALE) as shop,
        shop.at_a_terminal(*HOLD, "--join-timeout", "15") as person,
    ):
        person.wait_for("\r\n> ")
        sent = shop.redeploy(**changed_code(tmp_path / "new", **{"stage/settings": broken}))
        sent.refused(1, "stage 0 did not come back with the new code within 15 s")
        said = person.end()
        said.refused(1, "stage 0 did not come back with the new code within 15 s", "redeploy")
        assert said.out == f"{text('hello')}\n"
        assert shop.alive() == set()
