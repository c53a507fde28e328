"""Local nodes that meet through a relay, as far ones would."""

from __future__ import annotations

import re

from tests.e2e.kit import Box, stub_text
from tests.transport.relay import relay

MODEL = "stub:layers=8"
TOKEN = "a-secret-of-the-relay"
TRIED_BY = 4
"""Two clients try each relay."""


def test_nodes_meet_through_a_relay_that_wants_a_token(box: Box) -> None:
    with relay(TOKEN) as made, relay(TOKEN) as other:
        program = box.start(
            *("--seed", "--model", MODEL, "--prompt", "hello", "--max-tokens", "20", "--debug"),
            *("--relay-url", made.url, "--relay-url", other.url),
            env={"PP_RELAY_TOKEN": TOKEN},
        )
        done = program.end()
    assert done.expect(0).text == stub_text("hello", 20, MODEL)
    for url in (made.url, other.url):
        assert f"relay        {url} answers in " in done.err
    assert len(made.came | other.came) == TRIED_BY + 3, "the orchestrator and two nodes use one of them"
    ways = {line.split("  ")[0] for line in done.err.splitlines() if re.search(" -> .* ms ", line)}
    assert {"orchestrator -> stage 0", "stage 0 -> stage 1", "stage 1 -> stage 0", "stage 1 -> orchestrator"} <= ways
    assert TOKEN not in done.err
    files = [path for path in box.state.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not any(TOKEN.encode() in path.read_bytes() for path in files)
    assert "public" not in done.err


def test_a_relay_that_does_not_let_us_in_ends_the_run_before_anything_is_started(box: Box) -> None:
    with relay(TOKEN) as made:
        done = box.run("--seed", "--model", MODEL, "--relay-url", made.url, "--relay-token", "another-one")
        done.failed(1, f"the relay {made.url} refuses the token; nothing was started")
        assert "PP_RELAY_TOKEN" in done.err
        assert "another-one" not in done.err
        assert made.came == set()
