"""A member that sends anything at all: nobody raises, nobody's memory grows, it is noted once, and the truth wins."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from ppsmoke.membership.swim import LOCAL, MAX_MESSAGE_BYTES, cluster_tag
from ppsmoke.membership.swim.wire import (
    Claim,
    Kind,
    NameRecord,
    encode_ask,
    encode_claim,
    encode_compare,
    encode_head,
    encode_nack,
    encode_name,
    encode_names,
    encode_ping,
    encode_ping_req,
    encode_refusal,
)
from tests.sim.swim.footprint import footprint
from tests.sim.swim.host import Host
from tests.sim.swim.network import Network
from tests.sim.swim.properties import wrong_names
from tests.sim.swim.schedule import boot

LIAR, VICTIM, COUNT = 5, 2, 6
LIES_S = 8.0
TRUTH_WINS_WITHIN_S = 20.0


def only_its_own(name: str, stage_index: int | None) -> str | None:
    """A name rule as a run has it: a stage's name is its own."""
    allowed = {"pp-orchestrator"} if stage_index is None else {f"pp-stage-{stage_index}", "pp-entry", "pp-exit"}
    return None if name in allowed else f"{name} is not for stage {stage_index}"


def cluster(seed: object, **changes: object) -> Network:
    network = Network(seed, COUNT, replace(LOCAL, cluster=cluster_tag(b"ours"), **changes))
    boot(network)
    network.run(20.0)
    return network


def message(liar: Host, kind: int, body: bytes = b"", claims: Iterable[Claim] = (), **head: int | bytes) -> bytes:
    """A message that is in order, of the liar's own making."""
    own = liar.table()[liar.node_id]
    config = liar.network.config
    start = encode_head(
        head.get("version", config.protocol_version),  # type: ignore[arg-type]
        head.get("cluster", config.cluster),  # type: ignore[arg-type]
        kind,  # type: ignore[arg-type]
        head.get("incarnation", own.incarnation),  # type: ignore[arg-type]
        head.get("life", own.life),  # type: ignore[arg-type]
    )
    return start + body + b"".join(map(encode_claim, claims))


def tell_everybody(network: Network, data: bytes, *, reliable: bool = False) -> None:
    liar = network.hosts[LIAR]
    for host in network.hosts:
        if host is not liar and liar.swim is not None:
            network.send(liar, host.node_id, data, reliable)


def lie(network: Network, make: Callable[[], bytes], every_s: float = 0.1, for_s: float = LIES_S) -> None:
    """Tell everybody the same lie for a while, then give the truth its time."""
    start = network.now
    for step in range(int(for_s / every_s)):
        network.at(start + every_s * step, lambda: tell_everybody(network, make()))
    network.run(start + for_s)


def honest(network: Network) -> list[Host]:
    return [host for host in network.hosts if host.index != LIAR]


def untrue(network: Network) -> list[str]:
    """What the honest believe of each other that is not so."""
    wrong = []
    for host in honest(network):
        table = host.table()
        for peer in honest(network):
            seen, own = table[peer.node_id], peer.table()[peer.node_id]
            if (seen.state, seen.incarnation, seen.address) != ("alive", own.incarnation, peer.address):
                wrong.append(f"{host} sees {peer} as {seen}, it is at {own.incarnation}")
        wrong += [
            f"{host} believes in {member.node_id}"
            for member in table.values()
            if member.is_present and member.node_id not in network.by_id
        ]
    return wrong


def believed_dead(network: Network) -> set[int]:
    """Who was declared dead or gone by an honest member at any time."""
    return {
        change.subject
        for host in honest(network)
        for change in host.changes
        if change.after in ("dead", "left") and change.subject >= 0
    }


def claim(network: Network, state: str, ahead: int, address: bytes | None = None, **changes: object) -> Claim:
    """Of the victim, `ahead` incarnations further than the liar knows it."""
    known = network.hosts[LIAR].table()[network.hosts[VICTIM].node_id]
    made = Claim(
        known.node_id,
        state,
        known.incarnation + ahead,
        known.life,
        known.stage_index,
        address,  # type: ignore[arg-type]
    )
    return made._replace(**changes)


@pytest.mark.parametrize("state", ["suspect", "dead", "left"])
@pytest.mark.parametrize("ahead", [0, 1, 1000, 1 << 40])
def test_a_death_that_is_none_is_not_believed_of_a_member_that_answers(state: str, ahead: int) -> None:
    network = cluster(f"{state} {ahead}")
    liar = network.hosts[LIAR]
    lie(network, lambda: message(liar, Kind.NEWS, claims=[claim(network, state, ahead)]))
    assert believed_dead(network) <= {LIAR}
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []
    assert_noted_once(network)


def test_a_forged_life_or_address_of_another_does_not_last() -> None:
    for ahead in (0, 1, 50):
        for changes in ({"life": 12345}, {"stage_index": 0}, {"stage_index": None}):
            network = cluster(f"forged {ahead} {changes}")
            liar = network.hosts[LIAR]
            forged = claim(network, "alive", ahead, b"nowhere", **changes)
            lie(network, lambda liar=liar, forged=forged: message(liar, Kind.NEWS, claims=[forged]), for_s=5.0)  # type: ignore[misc]
            network.run(network.now + TRUTH_WINS_WITHIN_S)
            assert untrue(network) == []
            assert believed_dead(network) <= {LIAR}
            stages = {host.table()[network.hosts[VICTIM].node_id].stage_index for host in honest(network)}
            assert stages == {network.hosts[VICTIM].stage_index}


def test_everybody_told_that_everybody_is_dead_stays_alive() -> None:
    network = cluster("all dead")
    liar = network.hosts[LIAR]

    def all_dead() -> bytes:
        members = [member for member in liar.table().values() if member.node_id != liar.node_id]
        claims = [Claim(m.node_id, "dead", m.incarnation, m.life, m.stage_index) for m in members]
        return message(liar, Kind.NEWS, claims=claims)

    lie(network, all_dead)
    assert believed_dead(network) <= {LIAR}
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []


def test_members_that_do_not_exist_are_bounded_and_die() -> None:
    network = cluster("invented", max_members=64)
    liar, rng = network.hosts[LIAR], random.Random(1)

    def invented() -> bytes:
        return message(
            liar,
            Kind.NEWS,
            claims=[Claim(rng.randbytes(32).hex(), "alive", 0, rng.getrandbits(60), 1, b"x" * 40) for _ in range(8)],
        )

    lie(network, invented, for_s=10.0)
    assert all(len(host.table()) <= 64 for host in honest(network))
    network.run(network.now + 3 * TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []
    assert believed_dead(network) <= {LIAR}
    assert_noted_once(network)


def test_an_honest_member_still_gets_into_a_cluster_full_of_invented_dead() -> None:
    network = cluster("crowded", max_members=64)
    liar, rng = network.hosts[LIAR], random.Random(1)
    network.hosts[VICTIM].crash(0.1)

    def invented() -> bytes:
        claims = [Claim(rng.randbytes(32).hex(), "dead", 0, rng.getrandbits(60), 1) for _ in range(8)]
        return message(liar, Kind.NEWS, claims=claims)

    lie(network, invented, for_s=10.0)
    network.hosts[VICTIM].start(network.hosts[:1])
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []


def test_names_that_are_anothers_are_refused_and_noted() -> None:
    network = cluster("names", may_hold=only_its_own)
    liar, victim = network.hosts[LIAR], network.hosts[VICTIM]

    def stolen() -> bytes:
        own, theirs = liar.table()[liar.node_id], liar.table()[victim.node_id]
        mine = NameRecord("pp-stage-1", liar.node_id, own.life, own.incarnation + 5, 77, True)
        orchestrators = mine._replace(name="pp-orchestrator")
        withdrawn = NameRecord("pp-stage-1", victim.node_id, theirs.life, theirs.incarnation, 1 << 40, False)
        records = [encode_name(record) for record in (mine, orchestrators, withdrawn)]
        return message(liar, Kind.NAMES, encode_names(True, "", "", records))

    lie(network, stolen)
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert list(wrong_names(network)) == []
    for host in honest(network):
        assert "name" in {note.reason for note in host.notes if note.peer == liar.node_id}
    assert_noted_once(network)


@pytest.mark.parametrize("ahead", [0, 3, 1 << 40])
def test_a_name_forged_for_another_is_given_up_by_it(ahead: int) -> None:
    """The victim may hold the entry's name, but has not registered it yet."""
    network = cluster(f"forged name {ahead}", may_hold=only_its_own)
    liar, victim = network.hosts[LIAR], network.hosts[VICTIM]
    network.hosts[1].unregister("pp-entry")
    network.run(network.now + 3.0)

    def forged() -> bytes:
        theirs = liar.table()[victim.node_id]
        record = NameRecord("pp-entry", victim.node_id, theirs.life, theirs.incarnation + ahead, 5, True)
        return message(liar, Kind.NAMES, encode_names(True, "", "", [encode_name(record)]))

    lie(network, forged, for_s=5.0)
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert {host.swim.resolve("pp-entry") for host in honest(network)} == {None}
    network.hosts[1].register("pp-entry")
    network.run(network.now + 5.0)
    assert {host.swim.resolve("pp-entry").node_id for host in honest(network)} == {network.hosts[1].node_id}


def test_a_flood_of_names_is_bounded() -> None:
    network = cluster("flood of names", max_names=200, max_names_per_member=8)
    liar, rng = network.hosts[LIAR], random.Random(2)

    def names() -> bytes:
        owners = [liar, *rng.sample(network.hosts, 2)]
        records = [
            encode_name(NameRecord(f"n{rng.getrandbits(40)}", owner.node_id, member.life, member.incarnation, n, True))
            for n, owner in enumerate(owners * 3)
            for member in [liar.table()[owner.node_id]]
        ]
        return message(liar, Kind.NAMES, encode_names(True, "", "", records))

    before = [footprint(host.swim) for host in network.hosts]
    lie(network, names)
    after = [footprint(host.swim) for host in network.hosts]
    assert max(after[host.index] - before[host.index] for host in honest(network)) < 200_000
    assert all(len(host.swim.names()) <= 200 for host in honest(network))
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []
    for name in ("pp-orchestrator", "pp-stage-1", "pp-entry"):
        assert {host.swim.resolve(name).node_id for host in honest(network)} != {liar.node_id}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.JOIN, b""),
        (Kind.REFUSE, encode_refusal("go away")),
        (Kind.PING, encode_ping(1, 0)),
        (Kind.ACK, encode_ping(1, 0)),
        (Kind.NACK, encode_nack(1)),
        (Kind.PING_REQ, encode_ping_req(1, "ab" * 32, 500)),
        (Kind.ASK, encode_ask([f"{index + 1:064x}" for index in range(COUNT)] * 5)),
        (Kind.COMPARE, encode_compare("00" * 32, "ff" * 32)),
        (Kind.NAMES_DIGEST, b"12345678"),
        (Kind.NAMES, encode_names(True, "", "", [])),
    ],
)
def test_a_flood_of_one_kind_harms_nobody_and_is_not_amplified(kind: Kind, body: bytes) -> None:
    network = cluster(f"flood {kind}")
    liar = network.hosts[LIAR]
    own = liar.table()[liar.node_id]
    claims = [Claim(own.node_id, "alive", own.incarnation, own.life, own.stage_index, own.address)]
    data = message(liar, kind, body, claims if kind is Kind.JOIN else ())
    sent = list(network.sent)
    footprints = [footprint(host.swim) for host in network.hosts]
    lie(network, lambda: data, every_s=0.005, for_s=10.0)
    for host in honest(network):
        assert footprint(host.swim) - footprints[host.index] < 50_000
        answered = network.sent[host.index] - sent[host.index]
        assert answered <= 2.5 * 2000, f"{host} sent {answered} messages"
    assert believed_dead(network) == set()
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []
    assert list(wrong_names(network)) == []


def test_other_versions_and_other_clusters_are_noted_and_ignored() -> None:
    network = cluster("foreign")
    liar = network.hosts[LIAR]
    for head in ({"version": 7}, {"cluster": b"another!"}):
        for kind in Kind:
            lie(network, lambda kind=kind, head=head: message(liar, kind, **head), for_s=0.3)  # type: ignore[misc]
    for host in honest(network):
        assert {note.reason for note in host.notes} >= {"version", "cluster"}
    assert_noted_once(network)
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []


@pytest.mark.parametrize(
    ("changes", "said"), [({"protocol_version": 9}, "version"), ({"cluster": b"another!"}, "cluster")]
)
def test_who_speaks_another_version_or_means_another_cluster_is_refused_with_a_reason(
    changes: dict[str, int | bytes], said: str
) -> None:
    network = Network(f"refused {said}", COUNT, replace(LOCAL, cluster=cluster_tag(b"ours")))
    stranger = network.hosts[LIAR]
    stranger.config = replace(network.config, **changes)  # type: ignore[arg-type]
    boot(network)
    network.run(10.0)
    assert stranger.refused is not None
    assert said in stranger.refused
    assert not stranger.joined
    assert all(stranger.node_id not in host.table() for host in honest(network))


def test_every_old_message_replayed_changes_nothing() -> None:
    """By the member that sent it, as a network might, and by another one."""
    network = Network("replayed", COUNT, LOCAL)
    recorded: list[tuple[Host, str, bytes]] = []
    network.tap = lambda sender, to, data: recorded.append((sender, to, data))
    boot(network)
    network.run(15.0)
    network.hosts[VICTIM].crash(0.5)
    network.run(25.0)
    network.hosts[VICTIM].start(network.hosts[:1])
    network.run(45.0)
    network.tap = None
    for host in network.hosts:
        host.changes.clear()
    rng = random.Random(4)
    for sender, to, data in rng.sample(recorded, 2000):
        when = network.now + rng.uniform(0.0, LIES_S)
        network.at(when, network.send, sender, to, data, False)
        network.at(when, tell_everybody, network, data)
    network.run(network.now + LIES_S)
    assert believed_dead(network) <= {LIAR}
    network.run(network.now + TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []


@pytest.mark.parametrize("seed", range(10))
def test_broken_messages_of_a_member_harm_nobody(seed: int) -> None:
    """Random bytes, and real messages cut short, blown up and with bits turned over."""
    network = Network(f"fuzz {seed}", COUNT, replace(LOCAL, max_members=64))
    recorded: list[bytes] = []
    network.tap = lambda sender, to, data: recorded.append(data)
    boot(network)
    network.run(15.0)
    network.tap = None
    rng = random.Random(f"fuzz {seed}")
    victim, liar = network.hosts[VICTIM], network.hosts[LIAR]
    before = footprint(victim.swim)
    for step in range(4000):
        network.at(15.0 + step / 200, victim.arrive, liar.node_id, broken(rng, rng.choice(recorded)))
    network.run(15.0 + 4000 / 200)
    assert footprint(victim.swim) - before < 150_000
    assert_noted_once(network)
    assert {"malformed", "oversized"} <= {note.reason for note in victim.notes}
    assert believed_dead(network) <= {LIAR}
    network.run(network.now + 3 * TRUTH_WINS_WITHIN_S)
    assert untrue(network) == []


def broken(rng: random.Random, data: bytes) -> bytes:
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(1500))
        case 1:
            return data[: rng.randrange(len(data) + 1)]
        case 2:
            return data + rng.randbytes(rng.randrange(2 * MAX_MESSAGE_BYTES))
        case 3:
            at = rng.randrange(len(data) + 1)
            return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]
    flipped = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        # The first 11 bytes say whose message it is; what is behind them is more interesting to get wrong.
        flipped[rng.randrange(11 if rng.random() < 0.8 and len(data) > 11 else 0, len(data))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def assert_noted_once(network: Network) -> None:
    for host in honest(network):
        counted = Counter((note.peer, note.reason) for note in host.notes)
        assert max(counted.values(), default=1) == 1, counted
