"""Real processes on loopback that are stopped, killed and kept busy: what the others see, and how soon."""

from __future__ import annotations

import signal

from ppsmoke.membership.patience import LOCAL_SILENCE_S
from tests.membership.processes import Node, in_one_of_three, processes

STAGES = 5
BUSY_S = 10.0


def converge(nodes: list[Node]) -> float:
    """When the last member knew that all others are alive."""
    return max(one.saw(other.stage, "alive") for one in nodes for other in nodes if other is not one)


def others(nodes: list[Node], but: Node) -> list[Node]:
    return [node for node in nodes if node is not but]


def assert_nobody_was_doubted_to_death(nodes: list[Node]) -> None:
    for node in nodes:
        assert not [line for line in node.lines if line.get("state") in ("dead", "left")], node.name


@in_one_of_three
def test_six_processes_know_of_each_other_within_a_second_of_the_last_start() -> None:
    with processes(STAGES) as nodes:
        last_start = max(line["at"] for node in nodes for line in node.lines if line.get("started"))
        assert converge(nodes) - last_start < 1.0
        assert_nobody_was_doubted_to_death(nodes)


@in_one_of_three
def test_a_stopped_process_is_dead_for_all_within_5_s_and_comes_back_by_itself() -> None:
    with processes(STAGES) as nodes:
        converge(nodes)
        victim = nodes[3]
        stopped = victim.signal(signal.SIGSTOP)
        try:
            for node in others(nodes, victim):
                assert node.saw(victim.stage, "dead", stopped) - stopped < 5.0
        finally:
            woken = victim.signal(signal.SIGCONT)
        for node in others(nodes, victim):
            node.saw(victim.stage, "alive", woken)
        for node in others(nodes, victim):
            assert victim.state_of(node.stage) == "alive"


@in_one_of_three
def test_a_killed_process_is_dead_for_all_within_3_s() -> None:
    with processes(STAGES) as nodes:
        converge(nodes)
        victim = nodes[2]
        killed = victim.signal(signal.SIGKILL)
        for node in others(nodes, victim):
            assert node.saw(victim.stage, "dead", killed) - killed < 3.0


def test_a_busy_main_thread_kills_nobody() -> None:
    # Twice as patient as by default: still dead long before the work ends if nothing but the work ran.
    with processes(STAGES, 2 * LOCAL_SILENCE_S) as nodes:
        converge(nodes)
        busy = nodes[1]
        busy.say(f"busy {BUSY_S}")
        busy.until("its work begin", lambda lines: [x for x in lines if x.get("busy") is True])
        busy.until("its work end", lambda lines: [x for x in lines if x.get("busy") is False], 3 * BUSY_S)
        rows = [row for node in nodes for row in node.rows()]
        assert {row[1] for row in rows} == {"alive"}
        assert_nobody_was_doubted_to_death(nodes)


def test_a_process_that_leaves_has_left_for_all_at_once() -> None:
    with processes(STAGES) as nodes:
        converge(nodes)
        leaver = nodes[4]
        leaver.say("leave")
        for node in others(nodes, leaver):
            node.saw(leaver.stage, "left")
            assert node.state_of(leaver.stage) == "left"
        assert leaver.process.wait(20) == 0
