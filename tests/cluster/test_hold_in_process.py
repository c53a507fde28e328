"""A held chain in one process: one chain answers prompt after prompt, until the dialog has no other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ppsmoke.errors import EnvironmentFault
from ppsmoke.messages import Feedback, Generation
from ppsmoke.orchestrator.hold import Answer, Prompt
from ppsmoke.orchestrator.options import OutputGone, RunOptions
from ppsmoke.orchestrator.result import RunResult
from ppsmoke.orchestrator.run import LocalRun
from ppsmoke.request import open_model
from ppsmoke.stub_model import parse_stub_model, stub_encode, stub_tokens
from tests.cluster.test_chain_in_process import RUN, NodeInProcess, Watcher

MODEL = "stub:layers=5"
FIRST = "the first prompt"


@dataclass
class Talk:
    """Gives these prompts in turn; `at_end` is raised where there is none left."""

    prompts: list[Prompt]
    at_end: Exception | None = None
    gone_after: int = 99
    answers: list[Answer] = field(default_factory=list)

    def ask_again(self) -> None: ...

    async def answered(self, answer: Answer) -> None:
        self.answers.append(answer)
        if len(self.answers) == self.gone_after:
            raise OutputGone

    async def next(self) -> Prompt | None:
        if self.prompts:
            return self.prompts.pop(0)
        if self.at_end is not None:
            raise self.at_end
        return None


def talk_to_chain(stages: int, feedback: Feedback, folder: Path, talk: Talk) -> tuple[RunResult, Watcher]:
    model = open_model(MODEL, None)
    options = RunOptions(
        run_id=RUN,
        model=model,
        num_stages=stages,
        prompt_tokens=tuple(stub_encode(FIRST)),
        generation=Generation(max_tokens=9, eos_token_ids=model.stop_token_ids, feedback=feedback),
        context=64,
        log_dir=folder,
        prefill_part=8,
    )
    watcher = Watcher()

    async def run() -> RunResult:
        return await LocalRun(options, watcher, hold=talk, make_child=NodeInProcess).execute()

    return asyncio.run(run()), watcher


def prompts(*texts: str, most: int = 9) -> list[Prompt]:
    return [Prompt(tuple(stub_encode(text)), most) for text in texts]


@pytest.mark.parametrize(
    ("stages", "feedback"), [(2, Feedback.DIRECT), (3, Feedback.DIRECT), (3, Feedback.ORCHESTRATOR)]
)
def test_each_prompt_gets_the_answer_that_it_alone_would_get(stages: int, feedback: Feedback, tmp_path: Path) -> None:
    texts = ["a second one that takes several parts", "x", FIRST, "the last"]
    talk = Talk(prompts(*texts))
    result, watcher = talk_to_chain(stages, feedback, tmp_path, talk)
    assert result.error is None
    expected = [stub_tokens(stub_encode(text), 9, parse_stub_model(MODEL)) for text in (FIRST, *texts)]
    assert [list(answer.tokens) for answer in talk.answers] == expected
    assert "".join(watcher.pieces) == "".join(answer.text for answer in talk.answers)
    assert (result.answers, result.tokens) == (5, expected[-1])


@pytest.mark.parametrize("feedback", list(Feedback))
def test_a_prompt_that_fills_the_context_ends_where_it_does(feedback: Feedback, tmp_path: Path) -> None:
    """The chain knows it by itself, whatever the first prompt's limit was."""
    talk = Talk([*prompts("x" * 60, most=5), *prompts("x" * 64, most=1), *prompts("x")])
    result, _ = talk_to_chain(2, feedback, tmp_path, talk)
    assert result.error is None
    assert [(len(answer.tokens), answer.finish_reason) for answer in talk.answers] == [
        (count, "max_tokens") for count in (9, 5, 1, 9)
    ]


def test_a_dialog_that_fails_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    talk = Talk([], EnvironmentFault("standard input cannot be read"))
    result, _ = talk_to_chain(2, Feedback.DIRECT, tmp_path, talk)
    assert (str(result.error), result.exit_status, result.answers) == ("standard input cannot be read", 3, 1)


def test_nobody_reads_why_a_prompt_is_refused(tmp_path: Path) -> None:
    result, _ = talk_to_chain(2, Feedback.DIRECT, tmp_path, Talk([], OutputGone()))
    assert (result.error, result.answers) == (None, 1)


def test_nobody_reads_the_answers_any_more(tmp_path: Path) -> None:
    talk = Talk(prompts("two", "three"), gone_after=2)
    result, _ = talk_to_chain(2, Feedback.DIRECT, tmp_path, talk)
    assert (result.error, result.answers, len(talk.prompts)) == (None, 2, 1)
