"""Where no lab can be made its tests say so: a failure in CI, a skip with the reason elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).parents[2]
_PATIENCE_S = 120.0
_WHY = "network namespaces with NAT and TUN devices cannot be had here"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes root's rights away, with setpriv")
@pytest.mark.parametrize(("ci", "status", "counted"), [("true", 1, "1 error"), ("", 0, "1 skipped")])
def test_a_lab_that_cannot_be_had_fails_in_ci_and_is_skipped_elsewhere(
    ci: str, status: int, counted: str, lab_possible: None
) -> None:
    may_not = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all"]
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rs",
        "tests/netlab/test_lab.py",
        "-k",
        "without_udp",
    ]
    done = subprocess.run(
        [*may_not, *tests],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert done.returncode == status, done.stdout
    assert counted in done.stdout.splitlines()[-1]
    assert _WHY in " ".join(done.stdout.split())
