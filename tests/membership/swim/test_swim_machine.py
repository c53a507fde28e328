"""Whole members among each other, and a member among liars."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ppsmoke.membership.swim import (
    MAX_MESSAGE_BYTES,
    MemberChanged,
    Send,
    Swim,
    SwimConfig,
    wire,
)
from ppsmoke.membership.swim.wire import STATES, Claim, Kind, NameRecord
from tests.membership.swim.kit import (
    CLUSTER,
    CONFIG,
    Cluster,
    acks,
    changes,
    claim,
    identity,
    machine,
    meet,
    message,
    node,
    notes,
    run_until,
    state,
)


@pytest.mark.parametrize(
    "fields",
    [{"node_id": "x"}, {"node_id": "A" * 64}, {"address": b"x" * 600}, {"stage_index": -1}, {"stage_index": 1 << 15}],
)
def test_an_impossible_identity_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Swim(replace(identity(1), **fields), CONFIG, random.Random(1), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [2, 3, 6])
def test_all_know_all_soon_after_the_last_start(size: int) -> None:
    cluster = Cluster(size)
    cluster.run(0.5)
    for swim in cluster.swims.values():
        assert {view.state for view in swim.members().values()} == {"alive"}
        assert set(swim.members()) == set(cluster.swims)


def test_views_carry_what_a_table_shows() -> None:
    cluster = Cluster(3)
    cluster.do(1, cluster[1].register("pp-x", cluster.now))
    cluster.run(3.0)
    view = cluster[2].members()[node(1)]
    assert (view.stage_index, view.address, view.names) == (0, b"address 1", {"pp-x"})
    assert view.rtt_s is not None
    assert view.is_present
    own = cluster[2].members()[node(2)]
    assert (own.state, own.rtt_s) == ("alive", None)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_without_faults_nobody_is_doubted_and_no_incarnation_moves(size: int) -> None:
    cluster = Cluster(size)
    cluster.run(60.0)
    seen = [action for actions in cluster.actions.values() for action in actions if isinstance(action, MemberChanged)]
    assert {action.after.state for action in seen} == {"alive"}
    assert {view.incarnation for swim in cluster.swims.values() for view in swim.members().values()} == {0}


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_crash_is_known_to_all_and_touches_nobody_else(size: int) -> None:
    cluster = Cluster(size)
    cluster.run(1.0)
    cluster.stop(1)
    cluster.run(4.0)
    for number in range(size):
        expected = "dead" if number == 1 else "alive"
        assert set(cluster.states(number).values()) == {expected}


def test_a_stopped_process_comes_back_by_itself_and_accuses_nobody() -> None:
    cluster = Cluster(4)
    cluster.run(1.0)
    cluster.stop(2)
    cluster.run(10.0)
    assert set(cluster.states(2).values()) == {"dead"}
    cluster.resume(2)
    cluster.run(1.0)
    assert all(set(cluster.states(number).values()) == {"alive"} for number in range(4))
    assert {to for _, to in changes(cluster.actions[node(2)])} == {"alive"}


def test_a_restarted_process_with_the_same_key_and_another_address_replaces_its_former_self() -> None:
    for pause in (0.05, 10.0):
        cluster = Cluster(4)
        cluster.run(1.0)
        cluster.stop(2)
        cluster.run(pause)
        cluster.start(2, life=777, address=b"new place")
        cluster.run(0.5)
        for swim in cluster.swims.values():
            view = swim.members()[node(2)]
            assert (view.state, view.life, view.address) == ("alive", 777, b"new place")
        assert all(set(cluster.states(number).values()) == {"alive"} for number in range(4))


def test_the_halves_of_a_healed_partition_find_each_other_and_each_others_names() -> None:
    cluster = Cluster(4)
    cluster.run(1.0)
    cluster.stop(2, 3)
    half = {number: cluster.swims.pop(node(number)) for number in (2, 3)}
    cluster.run(10.0)
    for number, swim in half.items():
        run_until(swim, cluster.now, acks(5 - number))
        cluster.swims[node(number)] = swim
    cluster.do(2, cluster[2].register("pp-x", cluster.now))
    assert state(cluster[3], 0) == ("dead", 0)
    assert state(cluster[0], 3) == ("dead", 0)
    cluster.resume(2, 3)
    cluster.run(3.0)
    assert all(set(cluster.states(number).values()) == {"alive"} for number in range(4))
    assert {swim.names()["pp-x"] for swim in cluster.swims.values()} == {node(2)}


def test_leaving_is_known_to_all_at_once_and_is_never_death() -> None:
    cluster = Cluster(4)
    cluster.run(1.0)
    cluster.do(2, cluster[2].leave(cluster.now))
    assert set(cluster.states(2).values()) == {"left"}
    cluster.stop(2)
    cluster.run(10.0)
    assert set(cluster.states(2).values()) == {"left"}


def test_no_message_is_longer_than_allowed_with_the_longest_addresses_and_names() -> None:
    cluster = Cluster(1)
    for number in range(1, 12):
        cluster.start(number, address=bytes([number]) * 512)
        for name in range(8):
            cluster.do(number, cluster[number].register(f"{number}-{name}-".ljust(64, "x"), cluster.now))
    cluster.run(3.0)
    cluster.stop(3)
    cluster.run(5.0)
    assert max(len(send.data) for _, send in cluster.sends) <= MAX_MESSAGE_BYTES
    assert len(cluster[5].names()) == 80


def test_the_load_of_a_member_does_not_grow_with_the_cluster() -> None:
    def load(size: int) -> float:
        cluster = Cluster(size)
        cluster.run(8.0)
        before = len(cluster.sends)
        cluster.run(6.0)
        return (len(cluster.sends) - before) / size

    assert load(24) < 1.2 * load(6)


def test_the_same_events_give_the_same_actions() -> None:
    def run() -> list[tuple[str, Send]]:
        cluster = Cluster(4)
        cluster.run(2.0)
        cluster.stop(1)
        cluster.run(3.0)
        return cluster.sends

    assert run() == run()


def test_a_clock_that_steps_back_does_no_harm() -> None:
    swim = machine()
    meet(swim, 1)
    run_until(swim, 5.0, acks(1))
    swim.receive(node(1), message(1), 1.0)
    swim.tick(2.0)
    assert changes(run_until(swim, 10.0, acks(1))) == []


# ---- among liars


def test_messages_from_oneself_or_from_nobody_are_ignored() -> None:
    swim = machine()
    lie = message(0, claims=[claim(0, "dead", 5)])
    for sender in (node(0), "", "nonsense", "A" * 64):
        assert swim.receive(sender, lie, 0.1) == []


def test_a_fault_is_noted_once_per_peer_and_reason_and_notes_are_bounded() -> None:
    swim = machine(config=replace(CONFIG, max_notes=3))
    happened = [notes(swim.receive(node(number), b"?", 0.1)) for number in (1, 1, 2, 3, 4)]
    assert happened == [[(node(1), "malformed")], [], [(node(2), "malformed")], [(node(3), "malformed")], []]


def garbage(rng: random.Random, liar: int, config: SwimConfig) -> bytes:
    """A message that may be anything, most often one that can be read and is a lie."""
    kind = rng.choice(list(Kind))
    ids = [node(number) for number in range(5)]
    bodies = {
        Kind.PING: wire.encode_ping(rng.getrandbits(32), rng.randrange(4)),
        Kind.ACK: wire.encode_ping(rng.getrandbits(32), rng.randrange(4)),
        Kind.PING_REQ: wire.encode_ping_req(rng.getrandbits(32), rng.choice(ids), rng.getrandbits(16)),
        Kind.NACK: wire.encode_nack(rng.getrandbits(32)),
        Kind.ASK: wire.encode_ask(rng.choices(ids, k=9)),
        Kind.COMPARE: wire.encode_compare(rng.randbytes(32).hex(), rng.randbytes(32).hex()),
        Kind.NAMES_DIGEST: rng.randbytes(8),
        Kind.NAMES: wire.encode_names(rng.random() < 0.5, "", "", [wire.encode_name(_any_name(rng, ids))]),
        Kind.REFUSE: rng.randbytes(20),
    }
    claims = [] if kind in (Kind.ASK, Kind.NAMES, Kind.NAMES_DIGEST) else [_any_claim(rng, ids)] * rng.randrange(3)
    incarnation = rng.choice((0, 1, 2**63, 2**64 - 1))
    data = bytearray(
        message(liar, kind, bodies.get(kind, b""), claims, incarnation=incarnation, cluster=config.cluster)
    )
    if rng.random() < 0.1:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)


def _any_claim(rng: random.Random, ids: list[str]) -> Claim:
    return Claim(
        rng.choice([*ids, rng.randbytes(32).hex()]),
        rng.choice(STATES),
        rng.choice((0, 1, 2, 1000, 2**20, 2**63 - 1)),
        rng.choice((100, 101, rng.getrandbits(64))),
        rng.choice((None, 0, 1, 2, 99)),
        rng.choice((None, b"", b"x" * 300)),
        rng.choice([None, *ids]),
    )


def _any_name(rng: random.Random, ids: list[str]) -> NameRecord:
    count = rng.choice((0, 1, 9, 2**63 - 1))
    owner = rng.randrange(5)
    return NameRecord(
        rng.choice(("n", f"x{rng.randrange(999)}")), ids[owner], 100 + owner, count, count, rng.random() < 0.5
    )


def test_lies_and_nonsense_do_no_lasting_harm_and_take_bounded_memory() -> None:
    rng = random.Random(11)
    config = replace(CONFIG, max_members=40, max_names=60, max_notes=50)
    cluster = Cluster(4, config)
    for number in range(4):
        cluster.do(number, cluster[number].register(f"own-{number}", cluster.now))
    cluster.run(1.0)
    for _ in range(1500):
        victim = rng.randrange(4)
        cluster.do(victim, cluster[victim].receive(node(4), garbage(rng, 4, config), cluster.now))
        cluster.run(0.004)
    for swim in cluster.swims.values():
        assert len(swim.members()) <= 40
        assert len(swim._names.records("", "")) <= 60
        assert len(swim._core.news) <= 40 * (config.confirmations + 2)
    for actions in cluster.actions.values():
        assert len(notes(actions)) == len(set(notes(actions))) <= 50
    cluster.run(20.0)
    for number in range(4):
        assert set(cluster.states(number).values()) == {"alive"}
        assert {swim.names()[f"own-{number}"] for swim in cluster.swims.values()} == {node(number)}


def test_old_messages_played_again_change_nothing() -> None:
    cluster = Cluster(4)
    cluster.run(2.0)
    cluster.stop(2)
    cluster.run(5.0)
    cluster.start(2, life=5)
    cluster.run(2.0)
    recorded = list(cluster.sends)
    views = {
        name: {who: (view.state, view.incarnation) for who, view in swim.members().items()}
        for name, swim in cluster.swims.items()
    }
    random.Random(1).shuffle(recorded)
    for sender, send in recorded[:2000]:
        cluster.do(int(send.to[:2], 16), cluster.swims[send.to].receive(sender, send.data, cluster.now))
    cluster.run(10.0)
    for name, swim in cluster.swims.items():
        now = {who: (view.state, view.incarnation) for who, view in swim.members().items()}
        assert now == views[name]


def test_every_message_carries_version_and_cluster() -> None:
    cluster = Cluster(3)
    cluster.run(2.0)
    assert {send.data[2:11] for _, send in cluster.sends} == {b"\x01" + CLUSTER}
