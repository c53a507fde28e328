"""The worker over its pipes: every op, every role, every form, and every way to get a request wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from ppsmoke.roles import Role
from ppsmoke.stub_model import StubModel, stub_tokens
from ppsmoke.worker_protocol import ROLE_OPS, STEP_OPS, Form, Op, Sampling, Step, encode_step
from tests.worker.harness import PipedWorker

STUB = StubModel(layers=8, hidden=128)
CONTEXT = 96
ROLES = (Role.FIRST, Role.MIDDLE, Role.LAST)
PROMPT = (72, 101, 108, 108, 111)
HIDDEN_DIM = 128  # of both models


@dataclass
class Chain:
    """Three workers of one model; `binary` after the first configure."""

    model: str
    workers: dict[Role, PipedWorker]
    ready: dict[Role, dict[str, object]]

    def run(self, request_id: str, count: int, form: Form, sampling: Sampling) -> list[int]:
        tokens: list[int] = []
        position = 0
        step = Step(Op.EMBED_AND_FORWARD, request_id, 0, len(PROMPT), True, PROMPT)
        while len(tokens) < count:
            hidden = self.workers[Role.FIRST].step(step, form)
            assert (hidden.form, hidden.fields["seq_len"]) == (form, step.seq_len)
            step = replace(step, op=Op.FORWARD_RANGE, tokens=(), hidden=hidden.hidden or b"")
            hidden = self.workers[Role.MIDDLE].step(step, form)
            step = replace(step, op=Op.FORWARD_AND_SAMPLE, hidden=hidden.hidden or b"", sampling=sampling)
            reply = self.workers[Role.LAST].step(step, form)
            assert reply.fields["request_id"] == request_id
            assert (reply.form is Form.BINARY) == (form is Form.BINARY)
            tokens.append(reply.fields["token_id"])
            position += step.seq_len
            step = Step(Op.DECODE_STEP, request_id, position, 1, False, (tokens[-1],))
        for worker in self.workers.values():
            assert worker.ask(op="reset", request_id=request_id) == {"status": "reset"}
        return tokens


@pytest.fixture(scope="module", params=["stub", "real"])
def chain(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[Chain]:
    model = str(STUB) if request.param == "stub" else str(tiny_model)
    arguments = ("--model", model, "--context", str(CONTEXT), "--num-stages", "3")
    if request.param == "stub":
        arguments += ("--stub",)
    with ExitStack() as stack:
        workers = {
            role: stack.enter_context(PipedWorker((*arguments, "--stage", str(stage))))
            for stage, role in enumerate(ROLES)
        }
        yield Chain(model, workers, {role: worker.ready() for role, worker in workers.items()})
        for worker in workers.values():
            assert worker.ask(op="shutdown") == {"status": "stopped"}
            assert worker.process.wait(20) == 0


@pytest.fixture
def binary_chain(chain: Chain) -> Chain:
    for role, worker in chain.workers.items():
        start, end = chain.ready[role]["layers"]  # type: ignore[misc]
        reply = worker.ask(
            op="configure", model=chain.model, layer_start=start, layer_end=end, context=CONTEXT, frames="binary"
        )
        assert reply["status"] == "configured"
        assert (reply["layers"], reply["role"]) == ([start, end], role.value)
    return chain


def test_ready_says_what_was_loaded(chain: Chain) -> None:
    for stage, role in enumerate(ROLES):
        ready = chain.ready[role]
        assert (ready["stage"], ready["role"], ready["pid"]) == (stage, role.value, chain.workers[role].process.pid)
        assert ready["layers"] == ([0, 3], [3, 6], [6, 8])[stage]
        assert isinstance(ready["bytes"], int)
        assert ready["bytes"] > 0
        facts = ready["facts"]
        assert isinstance(facts, dict)
        assert (facts["num_layers"], facts["hidden_dim"], facts["dtype_width_bytes"]) == (8, HIDDEN_DIM, 4)


def test_binary_frames_have_to_be_asked_for(chain: Chain) -> None:
    frame = encode_step(Step(Op.DECODE_STEP, "r", 0, 1, False, (1,)), Form.BINARY)
    assert chain.workers[Role.FIRST].error_code(frame) == "malformed_request"


def test_every_form_gives_the_same_tokens(binary_chain: Chain) -> None:
    runs = [binary_chain.run(f"request {form.value}", 12, form, Sampling(1.0, 0.9, 5)) for form in Form]
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) > 1
    if binary_chain.model == str(STUB):
        assert runs[0] == stub_tokens(PROMPT, 12, STUB, seed=5)


def test_two_requests_side_by_side_do_not_touch_each_other(chain: Chain) -> None:
    first = chain.workers[Role.FIRST]
    steps = [Step(Op.EMBED_AND_FORWARD, name, 0, 2, True, tokens) for name, tokens in (("a", (5, 6)), ("b", (7, 8)))]
    alone = [first.step(step, Form.RAW).hidden for step in steps]
    decode = [Step(Op.DECODE_STEP, name, 2, 1, False, (9,)) for name in "ab"]
    together = [first.step(step, Form.RAW).hidden for step in decode]
    first.ask(op="reset")
    assert [first.step(steps[1], Form.RAW).hidden, first.step(decode[1], Form.RAW).hidden] == [alone[1], together[1]]
    assert alone[0] != alone[1]
    first.ask(op="reset")


def test_a_part_that_is_not_the_last_yields_no_token(chain: Chain) -> None:
    hidden = b"".join(
        chain.workers[Role.FIRST].step(Step(Op.EMBED_AND_FORWARD, "p", 0, 5, True, PROMPT), Form.RAW).hidden or b""
        for _ in range(1)
    )
    hidden = (
        chain.workers[Role.MIDDLE].step(Step(Op.FORWARD_RANGE, "p", 0, 5, True, (), hidden), Form.RAW).hidden or b""
    )
    row = HIDDEN_DIM * 4
    last = chain.workers[Role.LAST]
    part = Step(Op.FORWARD_AND_SAMPLE, "p", 0, 3, True, (), hidden[: 3 * row], last=False)
    assert last.step(part, Form.RAW).fields["token_id"] is None
    rest = Step(Op.FORWARD_AND_SAMPLE, "p", 3, 2, True, (), hidden[3 * row :])
    token = last.step(rest, Form.RAW).fields["token_id"]
    last.ask(op="reset")
    assert last.step(replace(part, seq_len=5, hidden=hidden, last=True), Form.RAW).fields["token_id"] == token
    for worker in chain.workers.values():
        worker.ask(op="reset")


def test_text_goes_to_tokens_and_back(chain: Chain) -> None:
    for role in (Role.FIRST, Role.LAST):
        tokens = chain.workers[role].ask(op="tokenize", text="Héllo the")["tokens"]
        assert chain.workers[role].ask(op="detokenize", tokens=tokens) == {"text": "Héllo the"}
        assert chain.workers[role].ask(op="detokenize", tokens=[10**6])["error"]["code"] == "malformed_request"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("op", Op)
def test_an_op_outside_the_role_is_refused_and_the_worker_lives_on(chain: Chain, op: Op, role: Role) -> None:
    if op in ROLE_OPS[role]:
        return
    worker = chain.workers[role]
    line = json.dumps({"op": op, "request_id": "r", "position": 0, "tokens": [1], "token": 1, "text": "x"})
    assert worker.error_code(line.encode() + b"\n") == "wrong_role"
    if op in STEP_OPS:
        hidden = b"" if op in (Op.EMBED_AND_FORWARD, Op.DECODE_STEP) else bytes(HIDDEN_DIM * 4)
        tokens = () if hidden else (1,)
        assert worker.error_code(encode_step(Step(op, "r", 0, 1, False, tokens, hidden), Form.RAW)) == "wrong_role"
    assert worker.ask(op="reset") == {"status": "reset"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{\n", "malformed_request"),
        (b'{"op": "nonsense"}\n', "malformed_request"),
        (b'{"op": "decode_step", "request_id": "x", "token": 1000000, "position": 0}\n', "bad_payload"),
        (b'{"op": "decode_step", "request_id": "x", "token": 1, "position": 7}\n', "unknown_request"),
        (
            b'{"op": "decode_step", "request_id": "x", "token": 1, "position": 0, "hidden_bytes": 4}\nabcd',
            "bad_payload",
        ),
        (b'{"op": "configure", "model": "m"}\n', "malformed_request"),
        (b'{"op": "reset", "request_id": 5}\n', "malformed_request"),
        (b'{"op": "tokenize"}\n', "malformed_request"),
        (b'{"op": "' + b"x" * 2_000_000 + b'"}\n', "malformed_request"),
        (
            json.dumps({"op": "embed_and_forward", "request_id": "x", "tokens": [1] * 97, "position": 0}).encode()
            + b"\n",
            "context_exceeded",
        ),
    ],
)
def test_a_bad_request_is_answered_and_the_worker_lives_on(chain: Chain, line: bytes, code: str) -> None:
    worker = chain.workers[Role.FIRST]
    assert worker.error_code(line) == code
    assert worker.ask(op="reset") == {"status": "reset"}


def test_rows_of_the_wrong_size_are_refused_in_every_form(binary_chain: Chain) -> None:
    worker = binary_chain.workers[Role.MIDDLE]
    for form in Form:
        for size in (0, HIDDEN_DIM * 4 - 1, HIDDEN_DIM * 8):
            step = Step(Op.FORWARD_RANGE, "r", 0, 1, True, (), bytes(size))
            assert worker.error_code(encode_step(step, form)) == "bad_payload", (form, size)
    too_long = Step(Op.FORWARD_RANGE, "r", 0, CONTEXT + 1, True, (), bytes(HIDDEN_DIM * 4 * (CONTEXT + 1)))
    assert worker.error_code(encode_step(too_long, Form.BINARY)) == "bad_payload"
    assert worker.ask(op="reset") == {"status": "reset"}


def test_a_position_out_of_order_is_refused_and_the_request_goes_on(chain: Chain) -> None:
    worker = chain.workers[Role.FIRST]
    prefill = Step(Op.EMBED_AND_FORWARD, "o", 0, 5, True, PROMPT)
    worker.step(prefill, Form.RAW)
    for position in (0, 4, 6):
        wrong = encode_step(Step(Op.DECODE_STEP, "o", position, 1, False, (1,)), Form.JSON)
        assert worker.error_code(wrong) == "out_of_order"
    hidden = worker.step(Step(Op.DECODE_STEP, "o", 5, 1, False, (1,)), Form.RAW).hidden
    assert hidden is not None
    assert np.isfinite(np.frombuffer(hidden, np.float32)).all()
    worker.ask(op="reset")


def test_too_many_requests_at_once_are_refused_until_a_reset(chain: Chain) -> None:
    worker = chain.workers[Role.FIRST]
    step = Step(Op.DECODE_STEP, "", 0, 1, False, (1,))
    for number in range(8):
        assert worker.step(replace(step, request_id=f"q{number}"), Form.RAW).hidden
    assert worker.error_code(encode_step(replace(step, request_id="q8"), Form.RAW)) == "request_rejected"
    worker.ask(op="reset", request_id="q3")
    assert worker.step(replace(step, request_id="q8"), Form.RAW).hidden
    worker.ask(op="reset")


def test_configure_refuses_what_is_not_this_stage_and_keeps_the_old_range(chain: Chain) -> None:
    worker = chain.workers[Role.MIDDLE]

    def configure(start: int, end: int, model: str = chain.model) -> str:
        reply = worker.ask(op="configure", model=model, layer_start=start, layer_end=end, context=CONTEXT)
        return str(reply["error"]["code"])

    assert configure(0, 3) == "malformed_request"
    assert configure(0, 8) == "malformed_request"
    assert configure(6, 8) == "malformed_request"
    assert configure(5, 9) == "malformed_request"
    assert configure(3, 6, "no such file") in ("model_not_found", "usage")
    step = Step(Op.FORWARD_RANGE, "r", 0, 1, True, (), bytes(HIDDEN_DIM * 4))
    if chain.model != str(STUB):
        assert worker.step(step, Form.RAW).hidden
    worker.ask(op="reset")


def test_configure_moves_the_range(chain: Chain) -> None:
    worker = chain.workers[Role.MIDDLE]
    reply = worker.ask(op="configure", model=chain.model, layer_start=2, layer_end=7, context=64)
    assert (reply["layers"], reply["context"]) == ([2, 7], 64)
    reply = worker.ask(op="configure", model=chain.model, layer_start=3, layer_end=6, context=CONTEXT)
    assert reply["layers"] == [3, 6]
