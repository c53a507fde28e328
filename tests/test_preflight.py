"""What is known before anything is spawned: the plan in words, and memory."""

from __future__ import annotations

import errno
import socket
from datetime import datetime
from pathlib import Path

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from ppsmoke.errors import BadStageCount, EnvironmentFault, NotEnoughMemory, PromptTooLong, UsageError
from ppsmoke.gguf_file import open_gguf
from ppsmoke.messages import Feedback, Generation
from ppsmoke.model_facts import read_model_facts
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.preflight import check_announced_model, check_loopback, check_memory, describe_plan, stage_memories
from ppsmoke.request import fit_to_context, open_model
from ppsmoke.stage_memory import StageMemory


def options(path: Path, stages: int = 3, feedback: Feedback = Feedback.DIRECT, context: int = 256) -> RunOptions:
    model = open_model("tiny", path)
    tokens = model.encode_prompt("Hello", raw=False, system=None, now=datetime(2026, 1, 1))
    return RunOptions(
        run_id="ab" * 16,
        model=model,
        num_stages=stages,
        prompt_tokens=tuple(tokens),
        generation=Generation(max_tokens=7, eos_token_ids=model.stop_token_ids, feedback=feedback),
        context=context,
        log_dir=Path(),
    )


def test_the_plan_shows_every_stage_edge_and_size(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=8)
    text = "\n".join(describe_plan(options(path), free=8_000_000_000))
    rows = [line.split() for line in text.splitlines()]
    assert [row[:3] for row in rows if row[:1] in (["0"], ["1"], ["2"]) and row[1] in ("First", "Middle", "Last")] == [
        ["0", "First", "0-2"],
        ["1", "Middle", "3-5"],
        ["2", "Last", "6-7"],
    ]
    assert [row[1] for row in rows if len(row) > 1 and row[1] in ("TokenIn", "Activation", "TokenOut", "Feedback")] == [
        "TokenIn",
        "Activation",
        "Activation",
        "TokenOut",
        "Feedback",
    ]
    hidden = open_model("tiny", path).hidden_dim
    assert f"activation   {hidden * 4} B a token (float32, hidden size {hidden})" in text


def test_orchestrator_feedback_has_no_feedback_edge(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=8)
    assert "Feedback" not in "\n".join(describe_plan(options(path, feedback=Feedback.ORCHESTRATOR), free=None))


def test_the_first_stage_that_does_not_fit_is_named() -> None:
    each = StageMemory(file_bytes=0, weight_bytes=1_000_000, kv_bytes=0, scratch_bytes=0)
    check_memory([each] * 3, 3_000_000)
    with pytest.raises(
        NotEnoughMemory, match=r"stage 2 does not fit: stages 0 to 2 need 3.0 MB of memory, 2.5 MB"
    ) as e:
        check_memory([each] * 4, 2_500_000)
    assert e.value.stage == 2
    assert e.value.exit_status == 3


def test_a_longer_context_needs_more_memory(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", blocks=8)
    short, long = (sum(m.kv_bytes for m in stage_memories(options(path, context=c))) for c in (256, 4096))
    assert long > 8 * short


def test_a_model_is_judged_by_its_headers_before_it_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", blocks=8)) as gguf:
        facts = read_model_facts(gguf)
        check_announced_model(8, 256)(facts, gguf)
        with pytest.raises(BadStageCount, match="8 blocks, too few for 9 stages"):
            check_announced_model(9, 256)(facts, gguf)
        monkeypatch.setattr("ppsmoke.preflight.available_memory", lambda: 1_000_000)
        with pytest.raises(NotEnoughMemory, match="stage 0 does not fit"):
            check_announced_model(2, 256)(facts, gguf)


@pytest.mark.parametrize(
    ("prompt", "wanted", "context", "fits"),
    [(10, 64, 2048, 64), (10, 64, 20, 11), (20, 64, 20, 1), (1, 1, 1, 1)],
)
def test_new_tokens_fit_behind_the_prompt(prompt: int, wanted: int, context: int, fits: int) -> None:
    assert fit_to_context(prompt, wanted, context) == fits


def test_a_prompt_longer_than_the_context_is_refused_with_the_context_it_needs() -> None:
    with pytest.raises(PromptTooLong, match="21 tokens, more than the context of 20") as caught:
        fit_to_context(21, 64, 20)
    assert "84" in (caught.value.remedy or "")
    assert caught.value.exit_status == 2


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        fit_to_context(0, 64, 20)


def test_a_machine_that_cannot_reach_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loopback()

    def unreachable(_probe: socket.socket, _address: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    with pytest.raises(EnvironmentFault, match=r"cannot reach itself at 127.0.0.1 or ::1: Network is unreachable") as e:
        check_loopback()
    assert "ip link set lo up" in str(e.value.remedy)
