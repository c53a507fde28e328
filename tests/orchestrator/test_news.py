"""What the orchestrator takes from a stage, and what it drops."""

from __future__ import annotations

import pytest

from ppsmoke.errors import CompilerUnavailable, MalformedRequest, StageFaulted, WorkerDied
from ppsmoke.messages import ProvisionStage, StageFault, StageReady, StopRun, encode_message
from ppsmoke.orchestrator.news import NotNews, stage_fault_error, stage_news, waiting_line
from tests.samples import OTHER_RUN, RUN, STRANGER, node_id, plan, provision


def ready(index: int, run_id: str = RUN, node: str | None = None) -> StageReady:
    return StageReady(run_id=run_id, stage_index=index, node_id=node or node_id(index))


def test_a_stage_speaks_for_itself() -> None:
    assert stage_news(plan(3), node_id(1), encode_message(ready(1))) == ready(1)


@pytest.mark.parametrize(
    ("sender", "message", "says"),
    [
        (node_id(2), ready(1), "about stage 1, which is not its own"),
        (node_id(1), ready(1, node=node_id(2)), "not its own"),
        (node_id(1), ready(7), "about stage 7"),
        (STRANGER, ready(1), "not its own"),
        (node_id(1), ready(1, run_id=OTHER_RUN), "another run"),
        (node_id(1), StopRun(run_id=RUN, reason="x"), "is for stages"),
        (node_id(1), provision(1), "is for stages"),
    ],
)
def test_a_message_that_is_not_the_senders_to_say_is_dropped(
    sender: str, message: StageReady | StopRun | ProvisionStage, says: str
) -> None:
    with pytest.raises(NotNews, match=says):
        stage_news(plan(3), sender, encode_message(message))


def test_what_is_no_message_is_told_apart() -> None:
    with pytest.raises(MalformedRequest):
        stage_news(plan(3), node_id(1), {"type": "StageReady", "stage_index": "one"})


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [("worker_died", WorkerDied, 1), ("compiler_unavailable", CompilerUnavailable, 3), ("unheard_of", StageFaulted, 1)],
)
def test_a_fault_keeps_its_class_stage_and_log(code: str, kind: type, status: int) -> None:
    message = StageFault(
        run_id=RUN, stage_index=2, node_id=node_id(2), reason="it broke", code=code, log_tail=("last words",)
    )
    error = stage_fault_error(message, ["from the node's log"])
    assert type(error) is kind
    assert (str(error), error.stage, error.log_tail) == ("stage 2: it broke", 2, ("last words",))
    assert error.exit_status == status


def test_a_fault_without_log_lines_gets_those_of_the_node() -> None:
    message = StageFault(run_id=RUN, stage_index=2, node_id=node_id(2), reason="it broke")
    assert stage_fault_error(message, ["the node's last line"]).log_tail == ("the node's last line",)


def test_a_stage_that_the_reason_names_is_not_named_twice() -> None:
    message = StageFault(run_id=RUN, stage_index=2, node_id=node_id(2), reason="stage 2's worker died")
    assert str(stage_fault_error(message, [])) == "stage 2's worker died"


def test_the_waiting_line_groups_stages_by_what_they_do() -> None:
    line = waiting_line({0, 1, 3}, {0: "loading", 3: "loading"}, ())
    assert line == "waiting for stages 0, 3: loading; stage 1: preparing"
    assert waiting_line((), {}, ["pp-entry"]) == "waiting for pp-entry"
