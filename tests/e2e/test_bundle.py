"""What a run leaves behind, whatever became of it: whole where it could be, readable anyhow, without a secret."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from ppsmoke.bundle.reader import Bundle, read_bundle
from ppsmoke.run_events import ErrorSeen, MemberSeen, PhaseEntered, RunBegan, RunEnded, StageIsReady, TokenArrived
from tests.e2e.kit import CLI, Box, stub_text

DEFAULT_PROMPT = "Say hello"
MODEL = "stub:layers=8,step_ms=5"

_REPEATS = """
import os, sys
if os.environ.get("PP_JOIN_TOKEN"):
    told = [os.environ["PP_JOIN_TOKEN"], os.environ["PP_NODE_KEY"], os.environ["HF_TOKEN"]]
    with open(os.environ["TOLD"], "a") as file:
        file.write("".join(f"{word}\\n" for word in told))
    print("I was told", *told, dict(os.environ), file=sys.stderr, flush=True)
"""


def left_by(box: Box) -> Bundle:
    (folder,) = box.state.glob("pp-smoke-run/runs/*")
    return read_bundle(folder)


def test_a_run_leaves_all_that_is_known_of_it(box: Box) -> None:
    done = box.run("--seed", "-n", "3", "--model", MODEL, "--max-tokens", "12", "--json").expect(0)
    bundle = left_by(box)
    assert bundle.run == done.json
    assert bundle.skipped == 0
    assert bundle.environment is not None
    assert bundle.environment["run_id"] == done.json["run_id"]
    assert bundle.plan is not None
    assert len(bundle.plan["plan"]["stages"]) == 3
    assert next(event.option for _, event in bundle.of_kind(PhaseEntered)) == "--boot-timeout"
    assert [stage["gguf_source"]["key"] for stage in bundle.plan["plan"]["stages"]] == [MODEL] * 3
    assert [event.token for _, event in bundle.of_kind(TokenArrived)] == done.json["tokens"]
    assert {event.seen_by for _, event in bundle.of_kind(MemberSeen)} == {None, 0, 1, 2}
    assert sorted(bundle.stage_logs) == [0, 1, 2]
    for stage in range(3):
        spans = [span for span in bundle.spans if span.step.stage == stage]
        assert [span.step.sequence for span in spans] == list(range(12))
        assert all(span.step.done - span.step.began >= 0.005 for span in spans)
    # What one stage has written the next one gets, by clocks that were compared.
    arrivals = {(span.step.stage, span.step.sequence): span for span in bundle.spans}
    for (stage, sequence), span in arrivals.items():
        if stage > 0:
            before = arrivals[stage - 1, sequence]
            assert span.step.arrived >= before.step.done - span.within - before.within
    assert "pp-smoke-run report" not in done.err


def test_a_run_that_is_killed_leaves_what_was_written_until_then(box: Box) -> None:
    run = box.start("--seed", "--model", "stub:layers=8,step_ms=50", "--max-tokens", "400")
    run.wait_output()
    run.strike(run.process.pid)
    run.process.wait(60)
    box.wait_gone()
    assert run.end().status == -signal.SIGKILL
    bundle = left_by(box)
    assert bundle.run is None
    assert any(bundle.of_kind(RunBegan))
    assert len(list(bundle.of_kind(StageIsReady))) == 2
    indices = [event.index for _, event in bundle.of_kind(TokenArrived)]
    assert indices == list(range(len(indices)))
    assert indices, "the text had begun"
    assert not any(bundle.of_kind(RunEnded))


def test_a_run_that_is_interrupted_says_where_all_of_it_lies(box: Box) -> None:
    run = box.start("--seed", "--model", "stub:layers=8,step_ms=50", "--max-tokens", "400", "--quiet")
    run.wait_output()
    run.signal(signal.SIGINT)
    done = run.end()
    assert done.status == 130
    bundle = left_by(box)
    assert f"to see what happened: pp-smoke-run report {bundle.directory}" in done.err
    assert bundle.run is not None
    assert (bundle.run["exit_status"], bundle.run["error"]["code"]) == (130, "interrupted")
    assert [event.code for _, event in bundle.of_kind(ErrorSeen)] == ["interrupted"]
    assert [event.exit_status for _, event in bundle.of_kind(RunEnded)] == [130]
    assert [event.phase for _, event in bundle.of_kind(PhaseEntered)][-1] == "Done"
    assert bundle.spans


def test_what_programs_repeat_of_their_secrets_is_in_no_file(box: Box, tmp_path: Path) -> None:
    """Each process prints its environment where nothing of this project has a say: on its bare standard error."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_REPEATS)
    told = tmp_path / "told"
    more = {"PYTHONPATH": str(site), "TOLD": str(told), "HF_TOKEN": "hf_of-the-users-shell"}
    prompt = "hello hf_of-the-users-shell"
    box.start("--seed", "--model", MODEL, "--max-tokens", "2", "--prompt", prompt, env=more).end().expect(0)
    secrets = set(told.read_text().split())
    assert len(secrets) == 4, "a join token, two keys, and the shell's own"
    bundle = left_by(box)
    for path in bundle.directory.iterdir():
        text = path.read_text()
        assert not any(secret in text for secret in secrets), path
    for log in bundle.stage_logs.values():
        assert "I was told [secret] [secret] [secret]" in log.read_text()
        assert "worker: I was told [secret] [secret] [secret]" in log.read_text()


def test_a_disk_that_takes_no_more_costs_one_warning_and_not_the_run(box: Box) -> None:
    limited = ("/bin/sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *CLI)
    done = box.run("--seed", "--model", MODEL, "--max-tokens", "60", "--json", program=limited).expect(0)
    assert json.loads(done.out)["text"] == stub_text(DEFAULT_PROMPT, 60, MODEL)
    assert done.err.count("are incomplete") == 1
