"""The stage actor in process: what each role does with each message, and that wrong ones harm nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ppsmoke.errors import EdgeFaulted, PeerLost, WorkerDied, WorkerFailed
from ppsmoke.messages import Feedback, Generation
from ppsmoke.objects import StreamObject
from ppsmoke.request import fit_to_context
from ppsmoke.roles import Role
from ppsmoke.stage.actor import (
    Activation,
    Inference,
    Message,
    NextToken,
    Process,
    Reset,
    SetNeighbors,
    StageActor,
)
from ppsmoke.stub_model import StubModel, stub_tokens
from ppsmoke.worker_protocol import Sampling
from tests.fake_worker import STUB, FakeWorker, Inbox, rows
from tests.samples import EOS, OTHER_REQUEST, REQUEST, generation, token_object

STAGES = {Role.FIRST: 0, Role.MIDDLE: 1, Role.LAST: 2}
PROMPT = (104, 105, 33)


class Bench:
    """One stage of 3 with its neighbours' inboxes, its log and its worker."""

    def __init__(self, role: Role, wanted: Generation | None = None, stub: StubModel = STUB, context: int = 32) -> None:
        self.to_next: list[StreamObject] = []
        self.to_reply: list[StreamObject] = []
        self.log: list[str] = []
        self.news: list[Exception] = []
        self.worker = FakeWorker(STAGES[role], stub)
        self.actor = StageActor(
            stage_index=STAGES[role],
            stage_count=3,
            worker=self.worker,
            generation=wanted or generation(),
            context=context,
            log=self.log.append,
            on_worker_news=self.news.append,
        )
        self.handle(SetNeighbors(next=Inbox(self.to_next), reply_to=Inbox(self.to_reply)))

    def handle(self, *messages: Message) -> None:
        for message in messages:
            self.actor.handle(message)


def prompt(*tokens: int, **changes: Any) -> StreamObject:
    return token_object(*(tokens or PROMPT), **changes)


def activation(*tokens: int, stage: int, sequence: int = 0, position: int = 0, **changes: Any) -> StreamObject:
    """What stage `stage` gets from its predecessor."""
    obj = token_object(*tokens, sequence=sequence, position=position, **changes)
    return replace(obj, payload=rows(tokens, position, stage))


# ---- First ----


def test_first_embeds_the_prompt_and_passes_the_rows_on() -> None:
    bench = Bench(Role.FIRST)
    obj = prompt(part=0, last_part=False)
    bench.handle(Inference(obj))
    assert bench.worker.calls == [("embed_and_forward", REQUEST, PROMPT, 0)]
    assert bench.to_next == [replace(obj, payload=rows(PROMPT, 0, 1))]
    assert bench.to_next[0].is_prefill


def test_first_takes_the_next_token_as_a_step_of_one_row() -> None:
    bench = Bench(Role.FIRST)
    obj = token_object(7, sequence=1, position=3)
    bench.handle(Inference(prompt()), NextToken(obj))
    assert bench.worker.calls[-1] == ("decode_step", REQUEST, 7, 3)
    sent = bench.to_next[-1]
    assert (sent.seq_len, sent.is_prefill, sent.sequence, sent.position) == (1, False, 1, 3)
    assert sent.payload == rows([7], 3, 1)


def test_first_computes_nothing_for_a_token_that_is_the_last() -> None:
    bench = Bench(Role.FIRST)
    bench.handle(NextToken(token_object(7, sequence=1, position=3, finish_reason="eos")))
    assert (bench.worker.calls, bench.to_next, bench.actor.dropped) == ([], [], 0)


# ---- Middle ----


@pytest.mark.parametrize("is_prefill", [True, False])
def test_middle_changes_nothing_but_the_rows(is_prefill: bool) -> None:
    bench = Bench(Role.MIDDLE)
    obj = activation(7, 8, stage=1, is_prefill=is_prefill, part=0, last_part=False)
    bench.handle(Activation(obj))
    assert bench.worker.calls == [("forward_range", REQUEST, 0, 2, is_prefill)]
    assert bench.to_next == [replace(obj, payload=rows([7, 8], 0, 2))]
    assert bench.to_reply == []


# ---- Last ----


def test_last_sends_its_token_to_first_and_to_the_orchestrator() -> None:
    bench = Bench(Role.LAST)
    bench.handle(Activation(activation(*PROMPT, stage=2)))
    (token,) = stub_tokens(PROMPT, 1, STUB)
    (sent,) = bench.to_next
    assert bench.to_reply == [sent]
    assert sent.tokens == [token]
    assert (sent.request_id, sent.sequence, sent.position, sent.seq_len) == (REQUEST, 0, 3, 1)
    assert (sent.is_prefill, sent.last_part, sent.finish_reason) == (False, True, None)


def test_last_sends_only_to_the_orchestrator_when_that_feeds_tokens_back() -> None:
    bench = Bench(Role.LAST, generation(Feedback.ORCHESTRATOR, max_tokens=1))
    bench.handle(Activation(activation(*PROMPT, stage=2)))
    assert bench.to_next == []
    assert [obj.finish_reason for obj in bench.to_reply] == [None]


def test_last_yields_nothing_for_a_part_that_is_not_the_last() -> None:
    bench = Bench(Role.LAST)
    bench.handle(Activation(activation(104, stage=2, last_part=False)))
    assert (bench.to_next, bench.to_reply) == ([], [])
    bench.handle(Activation(activation(105, 33, stage=2, part=1, position=1)))
    (sent,) = bench.to_reply
    assert sent.tokens == stub_tokens(PROMPT, 1, STUB)
    assert (sent.part, sent.position) == (0, 3)
    assert [call[5] for call in bench.worker.calls] == [False, True]


def steps_of_last(bench: Bench, count: int) -> list[StreamObject]:
    """The prompt and decode steps until Last says done, at most `count`."""
    bench.handle(Activation(activation(*PROMPT, stage=2)))
    while len(bench.to_reply) < count and not bench.to_reply[-1].done:
        out = bench.to_reply[-1]
        following = activation(*out.tokens, stage=2, sequence=out.sequence + 1, position=out.position)
        bench.handle(Activation(following))
    return bench.to_reply


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_last_marks_the_token_that_reaches_the_limit(limit: int) -> None:
    bench = Bench(Role.LAST, generation(max_tokens=limit))
    out = steps_of_last(bench, limit + 3)
    assert [obj.finish_reason for obj in out] == [None] * (limit - 1) + ["max_tokens"]
    assert bench.to_next == out
    assert [obj.sequence for obj in out] == list(range(limit))


@pytest.mark.parametrize("room", [1, 2, 4])
def test_last_marks_the_token_behind_which_the_context_ends(room: int) -> None:
    """As many as fit_to_context allows: the last one needs no position of its own."""
    bench = Bench(Role.LAST, generation(max_tokens=9), context=len(PROMPT) + room - 1)
    out = steps_of_last(bench, room + 3)
    assert len(out) == fit_to_context(len(PROMPT), 9, len(PROMPT) + room - 1) == room
    assert [obj.finish_reason for obj in out] == [None] * (room - 1) + ["max_tokens"]


@pytest.mark.parametrize(("eos_after", "limit"), [(0, 9), (2, 9), (2, 3)])
def test_last_marks_the_end_token(eos_after: int, limit: int) -> None:
    stub = StubModel(eos_after=eos_after)
    first = stub_tokens(PROMPT, 1, stub)[0]
    ends = (EOS,) if eos_after else (first,)
    wanted = Generation(max_tokens=limit, eos_token_ids=ends)
    out = steps_of_last(Bench(Role.LAST, wanted, stub), 9)
    assert len(out) == eos_after + 1
    assert [obj.finish_reason for obj in out] == [None] * eos_after + ["eos"]
    assert out[-1].tokens[0] in ends


def test_last_samples_as_the_run_wants() -> None:
    bench = Bench(Role.LAST, generation(temperature=0.5, top_p=0.9, sample_seed=3))
    bench.handle(Activation(activation(*PROMPT, stage=2)))
    assert bench.worker.calls[0][4] == Sampling(temperature=0.5, top_p=0.9, seed=3)


# ---- messages of other roles ----

FOR_ROLE = {Role.FIRST: {Inference, NextToken}, Role.MIDDLE: {Activation}, Role.LAST: {Activation}}
WRONG = [(role, kind) for role in Role for kind in (Inference, Activation, NextToken) if kind not in FOR_ROLE[role]]


@pytest.mark.parametrize(("role", "kind"), WRONG, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_message_of_another_role_is_logged_and_dropped_and_the_actor_lives_on(role: Role, kind: Any) -> None:
    bench = Bench(role)
    bench.handle(kind(token_object(7)), kind(token_object(7, finish_reason="eos")))
    assert bench.actor.dropped == 2
    assert bench.log == [f"dropped {kind.__name__}: it is not for a {role.value} stage"] * 2
    assert (bench.worker.calls, bench.to_next, bench.to_reply) == ([], [], [])
    index = STAGES[role]
    bench.handle(Inference(prompt()) if role is Role.FIRST else Activation(activation(*PROMPT, stage=index)))
    assert len(bench.to_next) == 1
    assert bench.actor.dropped == 2


# ---- SetNeighbors, Reset, Process, errors ----


def test_a_neighbour_not_named_keeps_its_place() -> None:
    bench = Bench(Role.LAST)
    replies: list[StreamObject] = []
    bench.handle(SetNeighbors(reply_to=Inbox(replies)), SetNeighbors(prev=Inbox([])), SetNeighbors())
    bench.handle(Activation(activation(*PROMPT, stage=2)))
    assert len(bench.to_next) == len(replies) == 1
    assert bench.to_reply == []


@pytest.mark.parametrize(
    ("role", "message", "who"),
    [
        (Role.FIRST, Inference(prompt()), "next stage"),
        (Role.MIDDLE, Activation(activation(1, stage=1)), "next stage"),
        (Role.LAST, Activation(activation(1, stage=2)), "first stage"),
    ],
)
def test_an_output_without_an_edge_is_an_error_that_names_the_stage(role: Role, message: Message, who: str) -> None:
    index = STAGES[role]
    actor = StageActor(
        stage_index=index,
        stage_count=3,
        worker=FakeWorker(index),
        generation=generation(),
        context=32,
        log=lambda _line: None,
    )
    with pytest.raises(EdgeFaulted, match=f"stage {index} has an output for the {who}") as caught:
        actor.handle(message)
    assert caught.value.stage == index


@pytest.mark.parametrize("role", list(Role))
def test_reset_reaches_the_worker(role: Role) -> None:
    bench = Bench(role)
    bench.handle(Reset(REQUEST), Reset())
    assert bench.worker.calls == [("reset", REQUEST), ("reset", None)]


@pytest.mark.parametrize("role", list(Role))
def test_news_of_the_worker_is_heard_by_every_role(role: Role) -> None:
    bench = Bench(role)
    died = WorkerDied("killed by SIGKILL", stage=STAGES[role])
    bench.handle(Process(died))
    assert bench.news == [died]
    assert bench.actor.dropped == 0


@pytest.mark.parametrize("role", list(Role))
def test_an_error_of_the_worker_comes_out_and_nothing_is_sent(role: Role) -> None:
    bench = Bench(role)
    bench.worker.error = WorkerFailed("no memory", stage=STAGES[role])
    message = Inference(prompt()) if role is Role.FIRST else Activation(activation(1, stage=STAGES[role]))
    with pytest.raises(WorkerFailed, match="no memory"):
        bench.handle(message)
    assert (bench.to_next, bench.to_reply) == ([], [])


def test_an_error_of_a_neighbour_comes_out() -> None:
    class Broken(Inbox):
        def send(self, payload: bytes) -> None:
            raise PeerLost("stage 1 is gone", stage=1)

    bench = Bench(Role.FIRST)
    bench.handle(SetNeighbors(next=Broken([])))
    with pytest.raises(PeerLost, match="stage 1 is gone"):
        bench.handle(Inference(prompt()))


def test_requests_do_not_mix() -> None:
    bench = Bench(Role.FIRST)
    bench.handle(Inference(prompt(1, 2)), Inference(replace(prompt(3), request_id=OTHER_REQUEST)))
    assert [obj.request_id for obj in bench.to_next] == [REQUEST, OTHER_REQUEST]
