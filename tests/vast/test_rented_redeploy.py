"""New code for rented machines that are held: the same machines, the same leases, another answer."""

from __future__ import annotations

from pathlib import Path

from tests.changed_code import NEW_TOKEN, changed_code
from tests.vast.test_rented_hold import HOLD, shop_of, text


def test_rented_machines_run_new_code_and_none_is_rented_or_destroyed_for_it(tmp_path: Path) -> None:
    with shop_of(tmp_path) as shop, shop.at_a_terminal(*HOLD) as person:
        person.wait_for("\r\n> ")
        rented = shop.alive()
        assert len(rented) == 2
        sent = shop.redeploy(**changed_code(tmp_path / "new"))
        assert sent.status == 0, sent.err
        assert "redeployed  0.1.0  code " in sent.err
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
