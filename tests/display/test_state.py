"""What the events of a run come to for its operator."""

from __future__ import annotations

import pytest

from ppsmoke.display.frame import Paper, frame, phase_words
from ppsmoke.display.state import begin, fold
from ppsmoke.run_events import (
    EdgeMeasured,
    ErrorSeen,
    MemberSeen,
    PathChanged,
    PhaseEntered,
    PromptInjected,
    RunEnded,
    RunResumed,
    StageDoing,
    StageIsReady,
    StageState,
    StepRan,
    TokenArrived,
)
from tests.display.runs import DECODING, LOCAL, PREPARING, RENTED, RENTING, told


def test_a_stage_has_its_place_its_state_since_when_and_how_far() -> None:
    fetching, loading, ready = told(LOCAL, PREPARING).stages
    assert (fetching.host, fetching.state, fetching.since) == ("pid 4711", StageState.FETCHING, 2.0)
    assert (fetching.done, fetching.total, fetching.deadline_s) == (12_000_000, 345_000_000, 600.0)
    assert (loading.done, loading.total, loading.unit) == (4, 10, "blocks")
    assert (ready.state, ready.device, ready.load_s, ready.compile_s) == (StageState.READY, "CPU", 0.4, 1.2)
    assert ready.done is None


def test_progress_within_a_state_does_not_begin_its_time_again() -> None:
    state = told(LOCAL, PREPARING)
    state = fold(state, StageDoing(1, StageState.LOADING, "", 9, 10, "blocks"), 9.0)
    assert (state.stages[1].since, state.stages[1].done) == (2.5, 9)
    state = fold(state, StageDoing(1, StageState.COMPILING, "", 0, 2, "kernels"), 9.5)
    assert (state.stages[1].since, state.stages[1].done) == (9.5, 0)


@pytest.mark.parametrize("late", [StageState.STARTING, StageState.JOINING, StageState.LOADING, StageState.LINKING])
def test_a_message_that_was_overtaken_turns_no_ready_stage_back(late: StageState) -> None:
    state = told(LOCAL, PREPARING)
    assert fold(state, StageDoing(2, late), 4.0).stages[2].state is StageState.READY


def test_an_address_that_is_asked_for_late_does_not_hide_that_the_stage_loads() -> None:
    state = fold(told(LOCAL, PREPARING), StageDoing(1, StageState.JOINING), 4.0)
    assert state.stages[1].state is StageState.LOADING


def test_a_listing_that_is_older_than_the_node_does_not_take_its_place_away() -> None:
    state = told(RENTED, [*RENTING, (15.0, MemberSeen(None, 0, "alive", 0))])
    state = fold(state, StageDoing(0, StageState.STARTING, "pulling the image"), 16.0)
    assert (state.stages[0].state, state.stages[0].since) == (StageState.JOINING, 15.0)
    assert state.stages[0].host.startswith("instance 4242")


def test_a_member_that_comes_is_joining_and_one_that_works_stays_what_it_is() -> None:
    state = begin(LOCAL, 0.0)
    state = fold(state, MemberSeen(None, 0, "alive", 0), 1.0)
    assert state.stages[0].state is StageState.JOINING
    assert fold(told(LOCAL, PREPARING), MemberSeen(None, 1, "alive", 1), 4.0).stages[1].state is StageState.LOADING


def test_tokens_count_by_answer_and_their_rate_begins_after_the_first() -> None:
    state = told(LOCAL, DECODING)
    assert state.tokens == 11
    assert state.tokens_per_s == pytest.approx(10.0)
    assert state.first_token_s == pytest.approx(0.4)
    again = fold(fold(state, PromptInjected("s", 5), 9.0), TokenArrived("s", 0, 7), 9.5)
    assert (again.tokens, again.tokens_per_s, again.first_token_s) == (1, None, 0.5)


def test_the_way_to_the_next_stage_is_kept_and_any_other_is_passed_over() -> None:
    state = told(LOCAL, DECODING)
    assert [(stage.path, stage.round_trip_s) for stage in state.stages] == [
        ("direct", 0.00021),
        ("relay", 0.212),
        ("", None),
    ]
    state = fold(state, EdgeMeasured(2, 0, "direct", 0.001), 8.0)
    assert state.stages[2].path == "direct"
    assert fold(state, EdgeMeasured(2, 1, "relay", 0.5), 8.0) == state
    assert fold(state, EdgeMeasured(None, 0, "relay", 0.5), 8.0) == state
    changed = fold(state, PathChanged(0, 1, "direct", "relay"), 9.0)
    assert (changed.stages[0].path, changed.stages[0].round_trip_s) == ("relay", None)


def test_the_budget_counts_from_the_first_create_call_and_of_a_local_run_from_its_beginning() -> None:
    assert begin(RENTED, 0.0).budget_ends is None
    assert told(RENTED, RENTING).budget_ends == 310.0
    local = type(LOCAL)("0" * 32, "m", ((0, 1), (1, 2)), 1, 1, remote=False, budget_s=60.0)
    assert begin(local, 5.0).budget_ends == 65.0


@pytest.mark.parametrize("news", [StageState.RENTING, StageState.STARTING, StageState.JOINING])
def test_what_a_listing_says_late_turns_a_stage_that_works_not_back_but_another_machine_does(news: StageState) -> None:
    state = fold(told(RENTED, RENTING), StageDoing(0, StageState.COMPILING, "", 0, 1, "kernels"), 20.0)
    assert fold(state, StageDoing(0, news, "running"), 21.0) == state
    again = fold(state, StageDoing(0, news, "being rented", anew=True), 21.0).stages[0]
    assert (again.state, again.since, again.detail, again.done) == (news, 21.0, "being rented", None)


@pytest.mark.parametrize("phase", ["TearingDown", "Done"])
def test_machines_that_are_destroyed_say_so_whatever_they_were_at(phase: str) -> None:
    state = fold(told(RENTED, RENTING), PhaseEntered(phase), 20.0)
    assert {stage.state for stage in state.stages} == {StageState.STOPPING}
    state = fold(state, StageDoing(1, StageState.STOPPED), 21.0)
    for stage in (0, 1):
        state = fold(state, StageDoing(stage, StageState.STOPPING, "destroying"), 22.0)
    state = fold(state, StageDoing(0, StageState.STARTING, "running"), 23.0)
    rows = [line.plain for line in frame(state, 23.0, Paper(80))]
    assert ["stopping" in rows[1], "stopped" in rows[2]] == [True, True]
    assert ["destroying" in row for row in rows[1:]] == [True, True, False]
    state = fold(state, StageDoing(0, StageState.STOPPED, "destroyed"), 24.0)
    assert (state.stages[0].state, state.stages[0].detail) == (StageState.STOPPED, "destroyed")


def test_a_stage_that_has_loaded_waits_for_the_others() -> None:
    state = fold(told(LOCAL, PREPARING), StageDoing(1, StageState.COMPILING, "", 1, 1, "kernels"), 4.0)
    state = fold(state, StageDoing(1, StageState.LOADED, "waiting for the other stages"), 5.0)
    [row] = [line.plain for line in frame(state, 7.0, Paper(80)) if "10-19" in line.plain]
    assert row.partition("loaded")[2].split() == ["waiting", "for", "the", "other", "stages", "2.0", "s"]
    state = fold(state, StageDoing(1, StageState.LINKING, "linking with its neighbours"), 8.0)
    assert fold(state, StageDoing(1, StageState.LOADED, "waiting for the other stages"), 8.1) == state


def test_a_failure_stays_in_sight_until_there_is_another_machine() -> None:
    state = fold(told(RENTED, RENTING), StageDoing(0, StageState.FAILED, "its container ended"), 20.0)
    for news in (StageState.STOPPING, StageState.STOPPED, StageState.LOADING):
        assert fold(state, StageDoing(0, news), 21.0).stages[0].detail == "its container ended"
    again = fold(state, StageDoing(0, StageState.RENTING, "being rented"), 22.0)
    assert (again.stages[0].state, again.stages[0].detail, again.stages[0].since) == (
        StageState.RENTING,
        "being rented",
        22.0,
    )


def test_a_pause_counts_for_no_deadline_and_for_no_rate_but_for_what_machines_cost() -> None:
    before = told(LOCAL, DECODING)
    after = fold(before, RunResumed(100.0), 120.0)
    assert after.tokens_per_s == pytest.approx(before.tokens_per_s)
    assert after.first_token_s == pytest.approx(before.first_token_s)
    assert after.phase_since == before.phase_since + 100.0
    assert after.stages[0].since == before.stages[0].since + 100.0
    assert fold(told(RENTED, RENTING), RunResumed(100.0), 120.0).budget_ends == 310.0


def test_between_two_prompts_the_stages_are_ready() -> None:
    state = fold(told(LOCAL, DECODING), PhaseEntered("Idle"), 9.0)
    assert {stage.state for stage in state.stages} == {StageState.READY}
    assert (state.tokens, state.stages[0].compute_s) == (11, 0.0081)


def test_the_first_error_is_the_one_and_the_end_is_kept() -> None:
    state = told(LOCAL, DECODING)
    state = fold(state, ErrorSeen("worker_died", "first", "", 1), 9.0)
    state = fold(state, ErrorSeen("peer_lost", "second", "", 2), 9.0)
    state = fold(state, RunEnded(1), 9.5)
    assert state.error is not None
    assert (state.error.what, state.ended) == ("first", 1)


def test_what_concerns_no_stage_of_the_run_changes_nothing() -> None:
    state = told(LOCAL, DECODING)
    for event in (
        StageDoing(7, StageState.LOADING),
        StageIsReady(-1, "CPU", None, None, None),
        StepRan(0, "r", 1, 0, 1, 1.0, 1.0, 1.0, 1.0, 1.0),
        MemberSeen(2, 1, "dead", 3),
    ):
        assert fold(state, event, 9.0) == state


def test_while_everything_is_given_back_no_stage_compiles_any_more() -> None:
    state = fold(told(LOCAL, PREPARING), PhaseEntered("TearingDown"), 9.0)
    assert {stage.state for stage in state.stages} == {StageState.STOPPING}
    late = fold(state, StageDoing(0, StageState.COMPILING, "", 1, 2, "kernels"), 9.5)
    assert late.stages[0].state is StageState.STOPPING
    assert fold(state, StageDoing(0, StageState.STOPPED), 9.5).stages[0].state is StageState.STOPPED


def test_stages_that_restart_with_new_code_are_shown_as_they_come() -> None:
    state = told(LOCAL, DECODING)
    for stage in state.stages:
        state = fold(state, StageDoing(stage.index, StageState.STOPPING), 20.0)
    for phase in ("Redeploying", "Planning"):
        state = fold(state, PhaseEntered(phase), 21.0)
    assert phase_words(state) == "preparing the stages"
    state = fold(state, StageDoing(1, StageState.LOADING, "", 1, 10, "blocks"), 22.0)
    assert [stage.state for stage in state.stages] == [*(StageState.STARTING, StageState.LOADING, StageState.STARTING)]
