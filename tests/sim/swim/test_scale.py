"""What a member sends does not grow with the cluster, and no message outgrows a datagram."""

from __future__ import annotations

from ppsmoke.membership.swim import LOCAL, MAX_MESSAGE_BYTES
from tests.sim.swim.network import Network
from tests.sim.swim.properties import states_of, wrong_names, wrong_views
from tests.sim.swim.schedule import boot

MEASURED_S = 10.0


def settled(count: int) -> Network:
    """All started within a second, in agreement, and with nothing to talk about any more."""
    network = Network(f"scale {count}", count, LOCAL)
    boot(network, within_s=1.0)
    network.run(25.0)
    assert [*wrong_views(network), *wrong_names(network)] == []
    return network


def load(network: Network) -> tuple[float, float]:
    """Messages a second of a member, on average and of the busiest, while nothing happens."""
    before, start = list(network.sent), network.now
    network.run(start + MEASURED_S)
    sent = [after - earlier for earlier, after in zip(before, network.sent, strict=True)]
    return sum(sent) / len(sent) / MEASURED_S, max(sent) / MEASURED_S


def test_a_members_messages_do_not_grow_with_the_cluster_and_a_large_one_learns_of_a_death() -> None:
    few, _ = load(settled(6))
    for count in (32, 128):
        network = settled(count)
        mean, busiest = load(network)
        assert mean <= 1.2 * few
        assert busiest <= 2.0 * mean
        network.hosts[7].crash(15.0)
        network.run(network.now + 6.0)
        assert states_of(network, network.hosts[7]) == {"dead"}
        assert {change.subject for host in network.hosts for change in host.changes if change.after == "dead"} == {7}
        assert network.largest <= MAX_MESSAGE_BYTES


def test_all_members_of_a_full_cluster_starting_at_once_agree_within_a_second() -> None:
    network = Network("all at once", 6, LOCAL)
    boot(network, within_s=0.05)
    network.run(1.0)
    assert list(wrong_views(network)) == []
