"""Control messages: each survives the wire, and whatever else arrives is a MalformedRequest that names the field."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import MISSING, FrozenInstanceError, fields
from typing import Any

import pytest

from ppsmoke.errors import MalformedRequest
from ppsmoke.messages import (
    ControlMessage,
    Feedback,
    ObjectSpec,
    StageFault,
    StageProgress,
    StageReady,
    StageStopped,
    StopRun,
    decode_message,
    encode_message,
)
from tests.samples import RUN, node_id, provision

HERE = {"run_id": RUN, "stage_index": 1, "node_id": node_id(1)}
MESSAGES: list[ControlMessage] = [
    *(provision(index, 3, feedback) for index in range(3) for feedback in Feedback),
    StopRun(run_id=RUN, reason="completed: eos"),
    StageReady(**HERE, device="CPU", timings={"load": 1.5, "compile": 0.0}),
    StageFault(**HERE, reason="the worker died", code="worker_died", log_tail=("one", "two")),
    StageStopped(**HERE, timings={"decode_p50": 0.01}),
    StageProgress(**HERE, phase="loading"),
]
ALL = pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)


def body(message: ControlMessage) -> dict[str, Any]:
    """What the receiver gets: through JSON text, as on the wire."""
    received: dict[str, Any] = json.loads(json.dumps(encode_message(message)))
    return received


def refusal(received: Any) -> str:
    with pytest.raises(MalformedRequest) as caught:
        decode_message(received)
    return str(caught.value)


@ALL
def test_every_message_survives_the_wire(message: ControlMessage) -> None:
    assert decode_message(body(message)) == message


@ALL
def test_a_field_of_another_version_is_refused_by_name(message: ControlMessage) -> None:
    assert "surprise" in refusal(body(message) | {"surprise": 1})


@ALL
def test_a_required_field_missing_is_refused_by_name(message: ControlMessage) -> None:
    required = [f.name for f in fields(message) if f.default is MISSING and f.default_factory is MISSING]
    assert "run_id" in required
    for name in required:
        left = {key: value for key, value in body(message).items() if key != name}
        assert f"{message.type}.{name}" in refusal(left)


@ALL
def test_a_value_of_another_kind_is_refused_by_name(message: ControlMessage) -> None:
    """Each field of the message and of the records in it is replaced in turn by values of every other JSON kind."""
    for path, value in leaves(body(message)):
        for wrong in wrong_for(value):
            if path[-1] == "type":
                assert "'type'" in refusal(replaced(body(message), path, wrong))
            else:
                assert ".".join(map(str, path)) in refusal(replaced(body(message), path, wrong))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, value) of every scalar, and of every container below the top."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    here = [(path, value)] if path else []
    return here + [leaf for key, item in inner for leaf in leaves(item, (*path, key))]


def wrong_for(value: Any) -> list[Any]:
    samples = [None, True, 1.5, "text", [[]], {"a": []}]
    if isinstance(value, str):
        samples.remove("text")
    if isinstance(value, (int, float)):
        samples += [-1, 10**400, str(value), float("nan"), float("inf")]
    if isinstance(value, float):
        samples = [wrong for wrong in samples if wrong not in (1.5, -1)]
    return samples


def replaced(whole: Any, path: tuple[Any, ...], value: Any) -> Any:
    at = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return whole


@pytest.mark.parametrize("received", [None, 1, "text", [], [{}], True, 1.5])
def test_what_is_no_object_is_refused(received: Any) -> None:
    assert "message" in refusal(received)


@pytest.mark.parametrize("kind", ["Nope", "stoprun", "", None, 7, [], {}, "\ud800"])
def test_an_unknown_type_is_refused_by_name(kind: Any) -> None:
    assert "'type'" in refusal({"type": kind, "run_id": RUN, "reason": "x"})


def test_a_message_without_a_type_is_refused() -> None:
    assert "'type'" in refusal({"run_id": RUN, "reason": "x"})


@pytest.mark.parametrize(
    "run_id",
    ["", "ab", "AB" * 16, "ab" * 16 + "\n", "ab" * 17, "zz" * 16, " " + "ab" * 16, "ａｂ" * 16, "ab" * 100_000],
)
def test_an_id_that_is_not_lower_case_hex_of_its_length_is_refused(run_id: str) -> None:
    assert "StopRun.run_id" in refusal({"type": "StopRun", "run_id": run_id, "reason": "x"})
    assert "StageReady.node_id" in refusal({"type": "StageReady", **HERE, "node_id": run_id})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("stage_count",), 1),
        (("stage_count",), 2**16),
        (("stage_index",), -1),
        (("stage_index",), 2**31),
        (("layer_start",), 10**400),
        (("model", "hidden_dim"), 0),
        (("model", "dtype_family"), "int"),
        (("model", "dtype_width_bytes"), 2),
        (("generation", "max_tokens"), 0),
        (("generation", "top_p"), 0.0),
        (("generation", "top_p"), 1.01),
        (("generation", "temperature"), -0.1),
        (("generation", "temperature"), 1e7),
        (("generation", "sample_seed"), 2**63),
        (("generation", "feedback"), "smoke signals"),
        (("inbound", 0, "kind"), "Sideways"),
        (("inbound", 0, "object_spec", "max_extent"), 0),
        (("inbound", 0, "object_spec", "payload"), "pixels"),
        (("outbound", 0, "ring_spec", "max_objects"), 0),
        (("gguf_source", "kind"), "tape"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_a_value_out_of_range_is_refused_by_name(path: tuple[Any, ...], value: Any) -> None:
    assert ".".join(map(str, path)) in refusal(replaced(body(provision()), path, value))


def test_keys_that_are_no_texts_are_refused() -> None:
    stop = {"type": "StopRun", "run_id": RUN, "reason": "x"}
    for key in (1, (1, 2), None, "\ud800"):
        assert refusal(stop | {key: 1})


def test_nested_garbage_is_refused_at_its_place() -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    assert "StopRun.reason" in refusal({"type": "StopRun", "run_id": RUN, "reason": deep})
    assert refusal(deep)
    assert "generation" in refusal(body(provision()) | {"generation": {"max_tokens": deep}})


def test_a_refusal_is_one_short_line_whatever_was_sent() -> None:
    stop = {"type": "StopRun", "run_id": RUN, "reason": "x"}
    for hostile in (stop | {"y" * 1_000_000: 1}, stop | {"a\nb\x1b[31m": 1}, stop | {"type": "z" * 1_000_000}):
        said = refusal(hostile)
        assert len(said) < 600
        assert said.isprintable()


def test_random_damage_is_refused_or_still_a_message() -> None:
    rng = random.Random(7)
    junk: list[Any] = [None, True, -1, 0, 2**80, 0.5, float("nan"), "", "x", "\ud800", [], {}, [[{}]], {"type": "x"}]
    for _ in range(1500):
        received = body(rng.choice(MESSAGES))
        for _ in range(rng.randint(1, 3)):
            path, _value = rng.choice(leaves(received))
            received = replaced(received, path, deepcopy(rng.choice(junk)))
        try:
            message = decode_message(received)
        except MalformedRequest:
            continue
        assert decode_message(body(message)) == message


def test_messages_cannot_be_changed() -> None:
    message = MESSAGES[-1]
    with pytest.raises(FrozenInstanceError):
        message.run_id = RUN  # type: ignore[misc]


def test_a_provision_knows_the_ids_of_its_edges() -> None:
    assert provision(0).edge_ids == [0, 4, 1]


@pytest.mark.parametrize(("payload", "dim", "rows", "size"), [("tokens", 0, 3, 12), ("hidden", 16, 3, 192)])
def test_an_object_spec_knows_how_many_bytes_positions_take(payload: Any, dim: int, rows: int, size: int) -> None:
    assert ObjectSpec(payload=payload, hidden_dim=dim, max_extent=999).payload_bytes(rows) == size
