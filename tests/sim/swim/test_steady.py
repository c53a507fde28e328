"""A cluster in which nothing dies stays as it is, and one in which something dies knows it soon."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.membership.patience import local_config, sure_to_bear_s, wan_config
from ppsmoke.membership.swim import LOCAL, WAN, SwimConfig
from tests.sim.swim.network import INTERCONTINENTAL, LOOPBACK, Network, Quality
from tests.sim.swim.properties import states_of, violations, wrong_names, wrong_views
from tests.sim.swim.schedule import Schedule, boot

MINUTES = 60.0
SETTLED_S = 10.0


def steady(seed: object, count: int, config: SwimConfig, quality: Quality, *, hints: bool = True) -> Network:
    network = Network(seed, count, config, quality=quality, hints=hints)
    boot(network)
    network.run(SETTLED_S)
    return network


def incarnations(network: Network) -> list[int]:
    return [host.table()[host.node_id].incarnation for host in network.hosts]


def deaths(network: Network, since: float = 0.0) -> list[str]:
    return [
        f"{host}: host {change.subject} at {change.at:.3f}"
        for host in network.hosts
        for change in host.changes
        if change.after == "dead" and change.at >= since
    ]


def doubted(network: Network) -> set[int]:
    """Who was suspected or declared dead by anybody."""
    return {change.subject for host in network.hosts for change in host.changes if change.after in ("suspect", "dead")}


@pytest.mark.parametrize("count", range(3, 10))
def test_far_apart_with_loss_nobody_is_declared_dead_in_five_minutes(count: int) -> None:
    for seed in range(2):
        network = steady(seed, count, WAN, INTERCONTINENTAL)
        start = incarnations(network)
        network.run(SETTLED_S + 5 * MINUTES)
        assert deaths(network) == []
        probes = 5 * MINUTES / WAN.probe_interval_s * count
        moved = sum(incarnations(network)) - sum(start)
        assert moved <= probes / 100.0, f"seed {seed}: {moved} refutations in {probes:.0f} probes"
        assert [*wrong_views(network), *wrong_names(network)] == []


@pytest.mark.parametrize(("config", "quality"), [(LOCAL, LOOPBACK), (WAN, replace(INTERCONTINENTAL, loss=0.0))])
@pytest.mark.parametrize("count", [2, 3, 6])
def test_without_loss_nobody_is_ever_suspected(count: int, config: SwimConfig, quality: Quality) -> None:
    network = steady("no loss", count, config, quality)
    start = incarnations(network)
    network.run(5 * MINUTES)
    assert incarnations(network) == start
    assert [change for host in network.hosts for change in host.changes if change.after != "alive"] == []


@pytest.mark.parametrize("count", [3, 4, 6, 9])
def test_a_local_cluster_that_loses_packets_is_rarely_suspicious_and_never_wrong(count: int) -> None:
    network = steady("loss", count, LOCAL, replace(LOOPBACK, loss=0.05, duplicate=0.02))
    start = incarnations(network)
    network.run(SETTLED_S + 2 * MINUTES)
    assert deaths(network) == []
    probes = 2 * MINUTES / LOCAL.probe_interval_s * count
    assert sum(incarnations(network)) - sum(start) <= probes / 100.0


@pytest.mark.parametrize("count", [3, 4, 6, 9])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_a_killed_process_is_known_dead_to_all_within_three_seconds_locally(count: int, loss: float) -> None:
    for seed in range(4):
        network = steady(seed, count, LOCAL, replace(LOOPBACK, loss=loss), hints=False)
        network.run(SETTLED_S + network.rng.random())
        network.hosts[-1].crash(15.0)
        network.run(network.now + 3.0)
        assert states_of(network, network.hosts[-1]) == {"dead"}, f"seed {seed}"


@pytest.mark.parametrize("count", [3, 4, 6, 9])
def test_a_stopped_process_is_known_dead_within_five_seconds_and_back_soon_after_it_goes_on(count: int) -> None:
    for seed in range(6):
        network = steady(seed, count, LOCAL, LOOPBACK)
        network.run(SETTLED_S + network.rng.random())
        stopped = network.hosts[network.rng.randrange(count)]
        stopped.pause()
        network.run(network.now + 5.0)
        assert states_of(network, stopped) == {"dead"}, f"seed {seed}"
        network.run(network.now + network.rng.uniform(0.0, 30.0))
        resumed = network.now
        stopped.resume(stopped.life)
        network.run(resumed + 5.0)
        assert [*wrong_views(network), *wrong_names(network)] == [], f"seed {seed}"
        assert doubted(network) == {stopped.index}, f"seed {seed}"


@pytest.mark.parametrize(
    ("config", "quality"),
    [(local_config(5), LOOPBACK), (local_config(20), LOOPBACK), (wan_config(30), INTERCONTINENTAL)],
)
@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_process_that_stood_still_no_longer_than_is_borne_for_sure_is_never_declared_dead(
    count: int, config: SwimConfig, quality: Quality
) -> None:
    for seed in range(6):
        network = steady(seed, count, config, quality)
        network.run(SETTLED_S + network.rng.random() * config.probe_interval_s)
        stopped = network.hosts[network.rng.randrange(count)]
        stopped.pause()
        network.run(network.now + 0.97 * sure_to_bear_s(config))
        stopped.resume(stopped.life)
        network.run(network.now + 20.0)
        assert deaths(network) == [], f"seed {seed}"
        assert list(wrong_views(network)) == [], f"seed {seed}"


@pytest.mark.parametrize("count", [3, 6, 9])
def test_a_crash_far_away_is_known_to_all_within_memberlists_time(count: int) -> None:
    for seed in range(3):
        network = steady(seed, count, WAN, INTERCONTINENTAL, hints=False)
        network.hosts[-1].crash(15.0)
        network.run(network.now + 40.0)
        assert states_of(network, network.hosts[-1]) == {"dead"}, f"seed {seed}"


def test_a_member_starved_for_ten_seconds_kills_nobody_and_nobody_it() -> None:
    """Its loop gets a moment every half second, too short to read the answer to what it asks."""
    for seed in range(6):
        network = steady(seed, 6, LOCAL, LOOPBACK)
        victim = network.hosts[seed % 6]
        for step in range(20):
            network.at(network.now + 0.5 * step, victim.pause)
            network.at(network.now + 0.5 * step + 0.4995, victim.resume, victim.life)
        network.run(network.now + 20.0)
        assert deaths(network) == [], f"seed {seed}"
        assert doubted(network) <= {victim.index}, f"seed {seed}"


def test_who_was_stopped_while_a_suspect_contradicted_does_not_declare_it_dead() -> None:
    for seed in range(6):
        network = steady(seed, 5, LOCAL, LOOPBACK)
        suspect, stopped = network.hosts[1], network.hosts[2]
        suspect.pause()
        while stopped.table()[suspect.node_id].state == "alive":
            network.run(network.now + 0.01)
        stopped.pause()
        suspect.resume(suspect.life)
        network.run(network.now + network.rng.uniform(2.0, 6.0))
        stopped.resume(stopped.life)
        network.run(network.now + 5.0)
        assert {change.subject for change in stopped.changes if change.after == "dead"} == set(), f"seed {seed}"
        assert list(wrong_views(network)) == []


def test_who_says_goodbye_has_left_for_everybody_at_once_and_is_never_called_dead() -> None:
    for seed in range(5):
        network = steady(seed, 6, LOCAL, replace(LOOPBACK, loss=0.05), hints=seed % 2 == 0)
        leaver = network.hosts[seed]
        leaver.leave()
        network.run(network.now + 1.0)
        assert states_of(network, leaver) == {"left"}
        network.run(network.now + 30.0)
        assert states_of(network, leaver) == {"left"}
        assert deaths(network) == []


def test_the_schedule_without_faults_breaks_no_property() -> None:
    quiet = Schedule("quiet", 6, "local", LOOPBACK, True, 30.0, 60.0)
    network = Network("quiet", 6, LOCAL)
    boot(network)
    network.run(60.0)
    assert violations(quiet, network) == []
