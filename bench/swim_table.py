"""How soon membership knows of a death, and how often it is wrong: our profiles beside memberlist's, in virtual time.

    python bench/swim_table.py [--members 3,6,9,32,128] [--loss 0,1,5,20] [--crashes 200] [--periods 100000] [--jobs 1]

JSON lines go to stdout as they are measured, one a cell; `--tables FILE` gets them as Markdown at the end.

Detection: members are killed without a word (their connections give no hint either). A sample is the time from the kill
until one survivor declares the death, over all pairs of kill and survivor.

False deaths: nobody is killed for `--periods` probe periods (members x time / interval). A death is counted once,
however many believe it. A refutation is an incarnation gone through: somebody was suspected and contradicted.

"memberlist" is not memberlist: it is this project's machine with memberlist's default intervals, timeouts, suspicion
and gossip numbers, and without what memberlist does not do (timeouts that follow the measured round trip, checking a
suspicion that one hears of, noticing one's own starvation).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ppsmoke.membership.swim import LOCAL, WAN, SwimConfig
from tests.sim.swim.network import INTERCONTINENTAL, LOOPBACK, Network, Quality
from tests.sim.swim.schedule import boot

GIVE_UP_S = 600.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: who, how many members, which loss (a share), how much of it."""

    profile: str
    members: int
    loss: float
    crashes: int
    periods: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--members", default="3,6,9,32,128", help="N + 1: the stages and the orchestrator")
    parser.add_argument("--loss", default="0,1,5,20", help="percent of datagrams")
    parser.add_argument("--crashes", type=int, default=200)
    parser.add_argument("--periods", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", type=Path)
    options = parser.parse_args()
    cells = [
        Cell(profile, members, float(loss) / 100.0, options.crashes, options.periods)
        for members in map(int, options.members.split(","))
        for loss in options.loss.split(",")
        for profile in options.profiles.split(",")
    ]
    rows = []
    for row in measured(cells, options.jobs):
        print(json.dumps(row), flush=True)
        rows.append(row)
    if options.tables:
        options.tables.write_text(tables(rows))


def measured(cells: list[Cell], jobs: int) -> Iterator[dict[str, object]]:
    if jobs == 1:
        yield from map(measure, cells)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap(measure, cells)


# ---- the profiles ----


def memberlist(
    members: int, *, interval: float, timeout: float, mult: int, gossip: tuple[float, int], exchange: float
) -> SwimConfig:
    """memberlist's numbers on our machine.

    A suspicion's shortest time is `mult` intervals, growing with log10 beyond ten members, its longest six times that.
    It shortens with `mult` - 2 confirmations, and is at its shortest from the start where fewer members could confirm.
    """
    shortest = mult * interval
    confirmations = mult - 2
    longest = 6.0 * shortest
    if members - 2 < confirmations:
        confirmations, longest = 0, shortest
    return SwimConfig(
        probe_interval_s=interval,
        direct_timeout_s=(timeout, timeout),
        probe_timeout_s=(interval, interval),
        indirect_probes=3,
        max_awareness=8,
        suspicion_s=(shortest, longest),
        confirmations=confirmations,
        suspicion_round_trips=0.0,
        verifiers=0.0,
        gossip_interval_s=gossip[0],
        gossip_fanout=gossip[1],
        retransmit_mult=4.0,
        retransmit_floor=1,
        exchange_interval_s=exchange,
        names_interval_s=1e9,
        late_s=1e9,
    )


def config_of(profile: str, members: int) -> SwimConfig:
    match profile:
        case "local":
            return LOCAL
        case "wan":
            return WAN
        case "memberlist lan":
            return memberlist(members, interval=1.0, timeout=0.5, mult=4, gossip=(0.2, 3), exchange=30.0)
        case "memberlist wan":
            return memberlist(members, interval=5.0, timeout=3.0, mult=6, gossip=(0.5, 4), exchange=60.0)
    raise ValueError(f"no such profile: {profile}")


PROFILES = {"local": LOOPBACK, "memberlist lan": LOOPBACK, "wan": INTERCONTINENTAL, "memberlist wan": INTERCONTINENTAL}
"""And the paths each is measured on."""


# ---- the measurement ----


def measure(cell: Cell) -> dict[str, object]:
    config = config_of(cell.profile, cell.members)
    quality = replace(PROFILES[cell.profile], loss=cell.loss)
    started = time.process_time()
    samples, missed = detections(cell, config, quality)
    deaths, incarnations, sent = false_deaths(cell, config, quality)
    return {
        **asdict(cell),
        "detections": len(samples),
        "missed": missed,
        "detect_p50_s": percentile(samples, 0.50),
        "detect_p99_s": percentile(samples, 0.99),
        "detect_max_s": percentile(samples, 1.0),
        "predicted_s": round(predicted(config, cell.members), 2),
        "false_deaths_per_1e5": round(deaths * 1e5 / cell.periods, 2),
        "refutations_per_1e5": round(incarnations * 1e5 / cell.periods, 2),
        "messages_per_member_s": round(sent, 2),
        "cpu_s": round(time.process_time() - started, 1),
    }


def detections(cell: Cell, config: SwimConfig, quality: Quality) -> tuple[list[float], int]:
    """Kill a tenth of the members (one at least), wait until all survivors know, start them anew, until enough died.

    Returns the times, and how many deaths were not declared by everybody within GIVE_UP_S.
    """
    network = Network(f"detections {cell}", cell.members, config, quality=quality, hints=False)
    settle(network, config)
    samples: list[float] = []
    missed = killed = 0
    while killed < cell.crashes:
        victims = network.rng.sample(network.hosts[1:], max(1, cell.members // 10))
        deaths = {}
        for host in network.hosts:
            host.changes.clear()
        for victim in victims:
            when = network.now + network.rng.uniform(0.0, 2.0 * config.probe_interval_s)
            network.at(when, victim.crash, 0.0)
            deaths[victim.index] = when
        survivors = [host for host in network.hosts if host not in victims]
        known: dict[tuple[int, int], float] = {}
        until = network.now + GIVE_UP_S
        while len(known) < len(victims) * len(survivors) and network.now < until:
            network.run(network.now + config.probe_interval_s)
            for host in survivors:
                for change in host.changes:
                    death = deaths.get(change.subject)
                    if change.after == "dead" and death is not None and change.at >= death:
                        known.setdefault((host.index, change.subject), change.at - death)
        samples += known.values()
        missed += len(victims) * len(survivors) - len(known)
        killed += len(victims)
        for victim in victims:
            network.at(network.now + network.rng.uniform(0.0, 1.0), victim.start, network.hosts[:1])
        settle(network, config)
    return sorted(samples), missed


def settle(network: Network, config: SwimConfig) -> None:
    """Run until everybody sees everybody alive, or it takes too long."""
    if network.now == 0.0:
        boot(network)
    until = network.now + GIVE_UP_S
    network.run(network.now + 4.0 + 2.0 * config.probe_interval_s)
    while network.now < until and not agreed(network):
        network.run(network.now + config.probe_interval_s)


def agreed(network: Network) -> bool:
    return all(
        host.swim is not None
        and sum(member.state == "alive" for member in host.swim.members().values()) == len(network.hosts)
        for host in network.hosts
    )


def false_deaths(cell: Cell, config: SwimConfig, quality: Quality) -> tuple[int, int, float]:
    """Of a cluster in which nobody dies: deaths declared, incarnations gone through, messages per member and second."""
    network = Network(f"steady {cell}", cell.members, config, quality=quality, hints=False)
    settle(network, config)
    start, sent = network.now, sum(network.sent)
    for host in network.hosts:
        host.changes.clear()
    before = incarnations(network)
    network.run(start + cell.periods * config.probe_interval_s / cell.members)
    deaths = {
        (change.subject, change.incarnation)
        for host in network.hosts
        for change in host.changes
        if change.after == "dead" and change.at > start
    }
    rate = (sum(network.sent) - sent) / (network.now - start) / cell.members
    return len(deaths), incarnations(network) - before, rate


def incarnations(network: Network) -> int:
    return sum(host.table()[host.node_id].incarnation for host in network.hosts)


def percentile(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 2)


def predicted(config: SwimConfig, members: int) -> float:
    """Seconds from a crash to its declaration when no message is lost, on average.

    Round-robin order puts the victim anywhere into the next n - 1 probes of each of the n - 1 others, so the first of
    them comes to it after (n - 1) / n intervals (SWIM's random choice: e / (e - 1)). The probe takes its timeout. The
    suspicion lasts its least time, growing with log10(n) beyond ten; its most where nobody can confirm it.
    """
    least, most = config.suspicion_s
    suspicion = least if members > 2 else most
    first_probe = (members - 1) / members * config.probe_interval_s
    return first_probe + config.probe_timeout_s[0] + suspicion * max(1.0, math.log10(members))


# ---- the tables ----


def tables(rows: list[dict[str, object]]) -> str:
    pairs = [("local", "memberlist lan"), ("wan", "memberlist wan")]
    return "\n".join(table(rows, ours, theirs) for ours, theirs in pairs)


def table(rows: list[dict[str, object]], ours: str, theirs: str) -> str:
    by_cell = {(row["profile"], row["members"], row["loss"]): row for row in rows}
    lines = [
        f"| members | loss | `{ours}` p50 / p99 / max, s | formula | false deaths, refutations "
        f"| {theirs} p50 / p99 / max, s | formula | false deaths, refutations |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (profile, members, loss), row in by_cell.items():
        other = by_cell.get((theirs, members, loss))
        if profile == ours and other is not None:
            lines.append(f"| {members} | {loss:.0%} | {figures(row)} | {figures(other)} |")
    return "\n".join(lines) + "\n"


def figures(row: dict[str, object]) -> str:
    times = " / ".join(f"{row[key]:.1f}" for key in ("detect_p50_s", "detect_p99_s", "detect_max_s"))
    return f"{times} | {row['predicted_s']:.1f} | {row['false_deaths_per_1e5']:g}, {row['refutations_per_1e5']:g}"


if __name__ == "__main__":
    main()
