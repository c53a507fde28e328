"""The report names whom a run's recipe made slow, late or dead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ppsmoke.bundle.folder import RunFolder
from ppsmoke.report.analysis import Analysis, analyse
from ppsmoke.report.culprit import Culprit
from ppsmoke.report.records import MOST_STAGES
from ppsmoke.report.source import read_story
from ppsmoke.report.text import verdicts
from ppsmoke.run_events import (
    ErrorSeen,
    MemberSeen,
    PathChanged,
    PhaseEntered,
    RecordsDropped,
    StageDoing,
    StageIsReady,
    StagePace,
    StageState,
    StepRan,
)
from tests.report.recipe import Made, Recipe, begin, fail, make, prepare, serve


def analysed(made: Made, directory: Path) -> Analysis:
    return analyse(read_story(made.write(directory / "bundle")))


def about(analysis: Analysis, what: str) -> Culprit:
    return next(found for found in analysis.culprits if found.about == what)


def test_a_slow_stage_is_named_with_its_share_of_a_token(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(compute={2: 0.006})), tmp_path), "tokens")
    # 3 * 2 ms and 6 ms of computing, 4 hops of 0.5 ms on the wire and 3 * 0.1 ms inside the nodes: 15.2 ms.
    assert found.sentence == "stage 2 computes 39 % of a token's time, 6.0 ms of 15.2 ms; the others 2.0 ms"
    assert found.place is not None
    assert (found.place.source, found.place.target) == (2, 2)


def test_a_slow_edge_is_named_with_what_of_it_is_slow(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(wire={(1, 2): 0.1})), tmp_path), "tokens")
    assert found.place is not None
    assert (found.place.source, found.place.target) == (1, 2)
    assert found.sentence.startswith("edge 1 -> 2: hop 100 ms of 111 ms, 91 %, 100 ms of it on the wire; the others")
    assert found.sentence.endswith("path relay, round trip 200 ms")


def test_the_edge_back_to_the_first_stage_counts_too(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(wire={(3, 0): 0.02})), tmp_path), "tokens")
    assert found.sentence.startswith("edge 3 -> 0: hop 20.3 ms of")


def test_where_nobody_stands_out_the_sums_are_told(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe()), tmp_path), "tokens")
    assert found.place is None
    assert found.sentence == (
        "no stage or edge stands out: of a token's time, 11.2 ms, the stages compute 71 % and the edges take 29 %, "
        "62 % of that on the wire; the largest share is that of stage 0, 18 %"
    )


def test_the_orchestrator_is_named_where_it_feeds_tokens_back_late(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(by_orchestrator=0.03)), tmp_path), "tokens")
    assert found.sentence.startswith("waiting for the orchestrator, edge orchestrator -> 0: 30.1 ms of")


def test_a_reader_that_takes_tokens_late_is_named(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(reader=0.5)), tmp_path), "tokens")
    assert (
        found.sentence
        == "waiting for the orchestrator: a token lay 500 ms until it was taken; the text's reader was slow"
    )


def test_the_shares_of_a_token_are_its_whole_time(tmp_path: Path) -> None:
    analysis = analysed(make(Recipe(compute={0: 0.004}, wire={(2, 3): 0.003})), tmp_path)
    assert sum(share.share for share in analysis.shares) == pytest.approx(1.0)
    assert sum(share.mean_s for share in analysis.shares) == pytest.approx(analysis.gap_p50_s)
    assert len(analysis.paths) == 11
    for path in analysis.paths:
        assert all(left.end == right.begin for left, right in zip(path.links, path.links[1:], strict=False))


def test_clocks_that_disagree_stretch_no_token(tmp_path: Path) -> None:
    made = make(Recipe())
    off = 0.003  # more than a hop: stage 2 seems to begin before stage 1 is done
    made.spans = [
        replace(
            s,
            arrived=s.arrived - off,
            began=s.began - off,
            done=s.done - off,
            back=s.back - off,
            written=s.written - off,
        )
        if s.stage == 2
        else s
        for s in made.spans
    ]
    analysis = analysed(made, tmp_path)
    assert sum(share.mean_s for share in analysis.shares) == pytest.approx(0.0112)
    assert all(link.seconds >= 0 for path in analysis.paths for link in path.links)


def test_an_edge_is_named_with_doubt_where_clocks_agree_less_well_than_it_is_slow(tmp_path: Path) -> None:
    slow = {(1, 2): 0.006}
    doubts = {}
    for remote, within in ((False, 0.01), (True, 0.01), (True, 0.001)):
        made = make(Recipe(wire=slow, remote=remote, within=within))
        found = about(analysed(made, tmp_path / f"{remote}{within}"), "tokens").sentence
        assert found.startswith("edge 1 -> 2")
        doubts[remote, within] = found.partition("; their clocks")[2]
    assert doubts == {(False, 0.01): "", (True, 0.01): " agree to 20.0 ms only", (True, 0.001): ""}


def test_the_slowest_token_is_told_with_what_happened_meanwhile(tmp_path: Path) -> None:
    made = make(Recipe())
    late = 1.5

    def shifted(span: StepRan) -> StepRan:
        if (span.sequence, span.stage) < (7, 2):
            return span
        names = ("arrived", "began", "done", "back", "written")
        return replace(span, **{name: getattr(span, name) + late for name in names})

    sent = next(span.written for span in made.spans if (span.sequence, span.stage) == (7, 1))
    made.spans = [shifted(span) for span in made.spans]
    made.add(sent + 1.0, PathChanged(1, 2, "direct", "relay", 1.2))
    made.add(sent + 1.1, MemberSeen(None, 2, "suspect", 0))
    made.add(sent + 1.2, RecordsDropped(2, 17, 0))
    analysis = analysed(made, tmp_path)
    assert about(analysis, "slowest").sentence == (
        "token 7 took 1.5 s, others 11.2 ms: 1.5 s of it edge 1 -> 2 in the hop; "
        "meanwhile its path changed from direct to relay, nothing passed for 1.2 s; meanwhile stage 2 was suspected"
    )
    assert analysis.steps_dropped == 17


def test_without_a_token_that_stands_out_none_is_called_slow(tmp_path: Path) -> None:
    assert "slowest" not in [found.about for found in analysed(make(Recipe()), tmp_path).culprits]


def test_the_way_to_the_first_token_goes_through_what_was_awaited_last(tmp_path: Path) -> None:
    analysis = analysed(make(Recipe(compute={2: 0.01}, prompt_parts=3)), tmp_path)
    assert analysis.prefill is not None
    assert analysis.ttft_s == pytest.approx(analysis.prefill.seconds, abs=0.001)
    # The parts queue in front of stage 2, which computes 80 ms for each; the others' work on later parts is hidden.
    assert about(analysis, "prompt").sentence == (
        "stage 2 computes 83 % of the way to the first token, 240 ms of 291 ms; a part of the prompt takes it 80.2 ms, "
        "the others 16.0 ms"
    )


def test_the_last_stage_is_not_blamed_for_being_waited_for_with_every_part(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(prompt_parts=6)), tmp_path), "prompt")
    assert found.sentence.startswith("no stage or edge stands out")


def test_a_compile_that_takes_longer_than_the_others_bounds_the_start(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(compile={3: 9.0})), tmp_path), "start")
    assert found.sentence == "stage 3 was ready last, 8.7 s after all others: it compiled for 9.0 s (a detail)"


def test_a_worker_that_was_long_in_starting_is_told_apart_from_loading(tmp_path: Path) -> None:
    recipe = Recipe(load={2: 5.0})
    made = begin(recipe)
    at = prepare(recipe, made)
    made.add(4.5, StageDoing(2, StageState.LOADING, "loading 0 of 6 blocks", 0, 6, "blocks"))
    made.add(4.6, StageDoing(2, StageState.LOADING, "loading 6 of 6 blocks", 6, 6, "blocks"))
    made.events = [
        e | ({"detail": "starting its worker"} if e.get("state") == "loading" and e["at"] == 0.5 else {})
        for e in made.events
    ]
    serve(recipe, made, at)
    assert about(analysed(made, tmp_path), "start").sentence == (
        "stage 2 was ready last, 4.8 s after all others: it was starting its worker for 4.0 s"
    )


def test_that_a_stage_joins_is_old_news_once_it_loads(tmp_path: Path) -> None:
    made = make(Recipe(load={2: 5.0}))
    made.add(0.7, StageDoing(2, StageState.JOINING))
    states = [(span.state, span.seconds) for span in analysed(made, tmp_path).states if span.stage == 2]
    assert (StageState.LOADING, pytest.approx(5.0)) in states
    assert [state for state, _ in states].count(StageState.JOINING) == 1


def test_a_slow_download_bounds_the_start(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(fetch={0: 40.0})), tmp_path), "start")
    assert found.sentence == "stage 0 was ready last, 40.0 s after all others: it fetched its weights for 40.0 s"


def test_a_member_that_came_late_bounds_the_start(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe(join={1: 7.0})), tmp_path), "start")
    assert found.sentence == "stage 1 joined last, 6.5 s after all others: it was starting for 6.9 s"


def test_a_create_call_that_was_not_answered_bounds_the_start(tmp_path: Path) -> None:
    """Its machine, which is there all the same, has joined long before anybody may count on it."""
    recipe = Recipe(remote=True)
    made = begin(recipe)
    for stage in range(recipe.stages):
        made.add(recipe.zero + (9.0 if stage == 1 else 0.6), StageDoing(stage, StageState.STARTING, "running"))
    made.add(recipe.zero + 0.9, StageDoing(1, StageState.RENTING, "no clear answer to its create call within 20 s"))
    prepare(recipe, made, without=frozenset(range(recipe.stages)))
    for stage in range(recipe.stages):
        made.add(recipe.zero + 9.5, StageIsReady(stage, "CPU", 0.2, 0.3, 0.1))
    made.events.sort(key=lambda event: event["at"])
    serve(recipe, made, recipe.zero + 10.0)
    assert about(analysed(made, tmp_path), "start").sentence == (
        "stage 1 was known to run last, 8.4 s after all others: "
        "it was being rented for 8.1 s (no clear answer to its create call within 20 s)"
    )


def test_the_wait_of_a_held_run_for_its_prompt_is_no_part_of_its_start(tmp_path: Path) -> None:
    recipe = Recipe()
    made = begin(recipe)
    ready_at = prepare(recipe, made)
    for stage in range(recipe.stages):
        made.add(ready_at - 0.1, StageDoing(stage, StageState.LINKING))
    made.add(ready_at, PhaseEntered("Idle"))
    serve(recipe, made, ready_at + 20.0)
    made.add(ready_at + 30.0, StageIsReady(2, "CPU", 0.2, 0.3, 0.5))  # with new code
    found = about(analysed(made, tmp_path), "start")
    assert found.sentence.startswith("no stage was late: the chain was ready for a prompt after 1.0 s; the longest")
    assert "20" not in found.sentence


def test_a_start_in_which_nobody_was_late(tmp_path: Path) -> None:
    found = about(analysed(make(Recipe()), tmp_path), "start")
    assert found.sentence == "no stage was late: the prompt went in after 1.0 s; the longest step was starting, 390 ms"


def test_a_wait_that_ended_the_run_is_told_with_who_was_missing(tmp_path: Path) -> None:
    recipe = Recipe(compile={2: 1000.0})
    made = begin(recipe)
    prepare(recipe, made, without=frozenset({2}))
    what = "preparing the stages took longer than 600 s, waiting for stage 2: compiling"
    remedy = "Raise --ready-timeout, or see the logs in /somewhere."
    fail(recipe, made, 600.5, ErrorSeen("deadline_exceeded", what, remedy, 2, "preparing the stages"))
    end = analysed(made, tmp_path).ending
    assert end.sentence == (
        "the wait for preparing the stages ended the run after 600 s (--ready-timeout); "
        "missing: stage 2, compiling for 600 s (a detail)"
    )
    assert (end.stage, end.option, end.deadline_s) == (2, "--ready-timeout", 600.0)
    assert analysed(made, tmp_path).log_tail == ("first line of stage 2", "last line of stage 2")


def test_a_token_that_never_came_is_followed_to_the_stage_that_kept_it(tmp_path: Path) -> None:
    recipe = Recipe()
    made = begin(recipe)
    at = serve(recipe, made, prepare(recipe, made), until=(5, 1))
    what, remedy = "token 5 took longer than 60 s", "Raise --token-timeout, or see the logs."
    fail(recipe, made, at + 60, ErrorSeen("deadline_exceeded", what, remedy, None, "token 5"))
    end = analysed(made, tmp_path).ending
    assert end.sentence == (
        "the wait for token 5 ended the run after 60.0 s (--token-timeout); "
        "missing: step 5 of stage 2, 60.0 s after stage 1 had sent it"
    )
    assert end.stage == 2


def test_a_dead_stage_is_told_with_its_last_step(tmp_path: Path) -> None:
    recipe = Recipe()
    made = begin(recipe)
    at = serve(recipe, made, prepare(recipe, made), until=(5, 1))
    made.add(at + 2.0, MemberSeen(None, 2, "dead", 0, "not heard from for 2.0 s"))
    fail(recipe, made, at + 2.0, ErrorSeen("peer_lost", "stage 2 fell silent", "Its log is there.", 2, "decode"))
    analysis = analysed(made, tmp_path)
    assert analysis.ending.sentence == "stage 2 fell silent; its last step was 4, 2.0 s before"
    assert analysis.ending.stage == 2
    assert analysis.ending.how == "failed"
    assert about(analysis, "tokens").place is None


def test_the_budget_that_ran_out(tmp_path: Path) -> None:
    recipe = Recipe(load={0: 100.0})
    made = begin(recipe)
    prepare(recipe, made, without=frozenset({0}))
    what = "the budget of 5 s is spent in preparing the stages, waiting for stage 0: loading"
    fail(recipe, made, 5.0, ErrorSeen("deadline_exceeded", what, "Raise --budget, or see", 0, "preparing the stages"))
    assert analysed(made, tmp_path).ending.sentence == (
        "the budget ran out in preparing the stages after 5.0 s (--budget); missing: stage 0, loading for 4.5 s"
    )


def test_a_killed_run_tells_where_its_record_stops(tmp_path: Path) -> None:
    recipe = Recipe()
    made = begin(recipe)
    serve(recipe, made, prepare(recipe, made), until=(5, 1))
    end = analysed(made, tmp_path).ending
    assert (end.how, end.exit_status) == ("cut off", None)
    assert end.sentence == (
        "the record stops after 1.1 s, in Running: pp-smoke-run itself was killed, or its machine stopped"
    )


def test_what_a_run_left_behind_is_told_whatever_else_ended_it(tmp_path: Path) -> None:
    recipe = Recipe()
    made = make(recipe)
    assert analysed(made, tmp_path / "well").ending.left == ""
    assert made.run is not None
    made.run |= {"exit_status": 4, "left_behind": "1 rented instance could not be verified as destroyed"}
    made.run["error"] = {"code": "interrupted", "message": "interrupted by SIGINT"}
    found = analysed(made, tmp_path / "interrupted")
    assert found.ending.left == "1 rented instance could not be verified as destroyed"
    assert verdicts(found)[-1] == ("left", "1 rented instance could not be verified as destroyed".capitalize())
    made.run["error"] = {"code": "leases_left", "message": made.run["left_behind"]}
    assert analysed(made, tmp_path / "told").ending.left == "", "it is told once"


def test_of_a_killed_run_that_rented_the_report_says_how_to_look_for_its_machines(tmp_path: Path) -> None:
    recipe = Recipe(remote=True)
    made = begin(recipe)
    serve(recipe, made, prepare(recipe, made), until=(5, 1))
    assert "--teardown" in analysed(made, tmp_path).ending.left


def test_a_run_that_goes_on_was_not_killed(tmp_path: Path) -> None:
    recipe = Recipe()
    made = begin(recipe)
    serve(recipe, made, prepare(recipe, made), until=(5, 1))
    folder = RunFolder(made.write(tmp_path))
    try:
        end = analyse(read_story(tmp_path)).ending
    finally:
        folder.close()
    assert (end.how, end.sentence) == ("still running", "the run goes on; its record reaches 1.1 s, in Running")


def test_the_axis_may_begin_before_the_run(tmp_path: Path) -> None:
    early, late = (analysed(make(Recipe(zero=zero)), tmp_path / str(zero)) for zero in (0.0, 12.5))
    assert late.total_s == pytest.approx(early.total_s)
    assert [p.begin for p in late.phases] == pytest.approx([p.begin for p in early.phases])


def test_a_run_without_spans_is_judged_by_what_its_stages_summed_up(tmp_path: Path) -> None:
    made = make(Recipe(stages=3))
    made.spans = []
    assert made.run is not None
    rows = [{"stage": stage, "compute_p50_s": 0.009 if stage == 1 else 0.002} for stage in range(3)]
    made.run["timings"] |= {"hop_s": 0.001, "stages": rows}
    found = about(analysed(made, tmp_path), "tokens")
    assert found.sentence == "stage 1 computes 56 % of a token's time, 9.0 ms of 16.0 ms; the others 2.0 ms"


def test_what_is_no_record_is_counted_and_left_out(tmp_path: Path) -> None:
    made = make(Recipe())
    made.add(1.0, StagePace(0, 3, 0.1, 0.1))
    damaged = [
        {"at": "soon", "source": None, "event": "run_ended", "exit_status": 0},
        {"at": 2.0, "source": None, "event": "token_arrived", "request_id": 7, "index": "x", "token": None},
        {"at": 2.0, "source": None, "event": "stage_doing", "stage": 0, "state": StageState.READY, "detail": ["x"]},
        {"at": float("inf"), "source": None, "event": "run_ended", "exit_status": 0},
    ]
    whole = analysed(made, tmp_path / "whole")
    made.events += damaged
    broken = analysed(made, tmp_path / "broken")
    assert broken.lost == len(damaged)
    assert (broken.tokens, broken.total_s) == (whole.tokens, whole.total_s)


def test_a_stage_of_a_billion_is_no_billion_rows(tmp_path: Path) -> None:
    made = make(Recipe())
    made.add(1.0, StagePace(2**40, 3, 0.1, 0.1))
    assert analysed(made, tmp_path / "seen").lost == 1
    made.events, made.spans = [], []
    assert made.run is not None
    made.run |= {"num_stages": 2**40, "timings": {"stages": [{"stage": 0, "layers": [[], None]}]}}
    assert len(analysed(made, tmp_path / "said").stages) <= MOST_STAGES
