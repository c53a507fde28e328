"""Names over a network that fails: they spread, survive a partition, change hands, and go with their owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.membership.swim import LOCAL, WAN
from tests.sim.swim.network import INTERCONTINENTAL, LOOPBACK, Network
from tests.sim.swim.properties import wrong_names
from tests.sim.swim.schedule import boot, cut_off, start

AGREED_WITHIN_S = 5.0


def cluster(seed: object, count: int, *, far: bool = False) -> Network:
    network = Network(seed, count, WAN if far else LOCAL, quality=INTERCONTINENTAL if far else LOOPBACK)
    boot(network)
    network.run(25.0)
    return network


@pytest.mark.parametrize("far", [False, True])
def test_a_name_registered_anywhere_is_known_everywhere_within_seconds(far: bool) -> None:
    for seed in range(5):
        network = cluster(seed, 6, far=far)
        assert list(wrong_names(network)) == []
        network.hosts[3].register("extra")
        network.run(network.now + (10.0 if far else AGREED_WITHIN_S))
        holders = {host.swim.resolve("extra").node_id for host in network.hosts}
        assert holders == {network.hosts[3].node_id}
        network.hosts[3].unregister("extra")
        network.run(network.now + (10.0 if far else AGREED_WITHIN_S))
        assert {host.swim.resolve("extra") for host in network.hosts} == {None}


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_names_agree_within_seconds_after_a_ten_second_partition_heals(seed: int, far: bool) -> None:
    network = cluster(seed, 6, far=far)
    half = network.rng.sample(network.hosts, 3)
    rest = [host for host in network.hosts if host not in half]
    heals = network.now + 10.0
    cut_off(network, network.paths_between(half, rest) + network.paths_between(rest, half), heals)
    network.run(heals - 5.0)
    changed = half[0]
    for name in sorted(changed.own_names):
        changed.unregister(name)
    rest[0].register("during-the-partition")
    network.run(heals + (15.0 if far else AGREED_WITHIN_S))
    assert list(wrong_names(network)) == []
    assert {host.swim.resolve("during-the-partition").node_id for host in network.hosts} == {rest[0].node_id}


def test_the_names_of_the_dead_vanish_with_them() -> None:
    network = cluster("dead", 5)
    network.hosts[1].crash(15.0)
    network.run(network.now + 5.0)
    assert {host.swim.resolve("pp-entry") for host in network.hosts if host.swim is not None} == {None}
    assert list(wrong_names(network)) == []


def test_the_names_of_those_who_left_vanish_at_once() -> None:
    network = cluster("left", 5)
    network.hosts[1].leave()
    network.run(network.now + 1.0)
    assert {host.swim.resolve("pp-entry") for host in network.hosts if host.swim is not None} == {None}


def test_a_restarted_owner_takes_its_names_up_again_and_what_it_no_longer_holds_stays_gone() -> None:
    for seed in range(5):
        network = cluster(seed, 5)
        owner = network.hosts[1]
        owner.register("only-in-its-first-life")
        network.run(network.now + AGREED_WITHIN_S)
        owner.crash(15.0)
        start(network, owner, network.now + network.rng.choice([0.2, 4.0]))
        network.run(network.now + 15.0)
        assert list(wrong_names(network)) == []
        assert {host.swim.resolve("pp-entry").node_id for host in network.hosts} == {owner.node_id}
        assert {host.swim.resolve("only-in-its-first-life") for host in network.hosts} == {None}


def test_a_name_passes_from_one_living_member_to_another() -> None:
    network = cluster("passes", 5)
    for giver, taker in [(2, 3), (3, 4), (4, 2)]:
        network.hosts[giver].unregister("baton")
        network.hosts[taker].register("baton")
        network.run(network.now + AGREED_WITHIN_S)
        assert {host.swim.resolve("baton").node_id for host in network.hosts} == {network.hosts[taker].node_id}


def test_names_get_through_a_network_that_loses_every_second_datagram() -> None:
    network = Network("lossy", 6, LOCAL, quality=replace(LOOPBACK, loss=0.5))
    boot(network)
    network.run(60.0)
    network.hosts[2].register("extra")
    network.run(network.now + 20.0)
    assert {host.swim.resolve("extra").node_id for host in network.hosts} == {network.hosts[2].node_id}
