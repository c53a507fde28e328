"""A signal again and again, faster than anything can be written: what may still cost money is named all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

from tests.cli.kit import PATIENCE_S
from tests.vast.commanding import STUB, Office, Said, office
from tests.vast.test_teardown_command import leave

NOTHING_IS_DESTROYED = "destroy:*=lies"
GAP_S = 0.003


def hammered(shop: Office, call: str, *arguments: str) -> Said:
    """SIGTERM without end from the first call of a kind on; a job in the background would ignore SIGINT."""
    heard = shop.hears(call)
    process = subprocess.Popen(
        shop.arguments(*arguments),
        env=shop.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ended = threading.Event()

    def strike() -> None:
        heard.wait(PATIENCE_S)
        while not ended.wait(GAP_S):
            os.kill(process.pid, signal.SIGTERM)  # not waited for yet, so the id is still its own

    hammer = threading.Thread(target=strike)
    with process:
        hammer.start()
        assert process.stdout is not None
        assert process.stderr is not None
        err = process.stderr.read()
        out = process.stdout.read()
        ended.set()
        hammer.join()
        return Said(process.wait(PATIENCE_S), out, err)


def test_a_run_that_is_hammered_at_names_what_it_leaves(tmp_path: Path) -> None:
    with office(tmp_path, NOTHING_IS_DESTROYED) as shop:
        said = hammered(
            shop, "destroy", "--vastai", "-n", "2", *STUB, "--yes", "--join-timeout", "1", "--replacements", "0"
        )
        assert said.status == 4, said.err
        for instance_id in shop.alive():
            assert f"instance {instance_id} may still be there" in said.err, said.err
        assert shop.alive()


def test_a_teardown_that_is_hammered_at_names_what_it_leaves(tmp_path: Path) -> None:
    with office(tmp_path, NOTHING_IS_DESTROYED) as shop:
        instance_id = leave(shop)
        said = hammered(shop, "destroy", "--teardown", "--yes")
        assert said.status == 4, said.err
        assert f"instance {instance_id} may still be there" in said.err, said.err
