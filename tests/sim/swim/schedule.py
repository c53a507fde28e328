"""Schedules of faults: made from a seed, printable, and played on the simulated network."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ppsmoke.membership.swim import LOCAL, WAN, SwimConfig
from tests.sim.swim.host import Host
from tests.sim.swim.network import Network, Path, Quality


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` happens at `at` for `for_s` (0: for good) to `hosts`; towards `others` where two sides are meant."""

    at: float
    kind: str
    hosts: tuple[int, ...]
    others: tuple[int, ...] = ()
    for_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        towards = f" towards {list(self.others)}" if self.others else ""
        until = f" until {self.at + self.for_s:.3f}" if self.for_s else ""
        return f"{self.at:.3f} {self.kind} {list(self.hosts)}{towards}{until}"

    @property
    def until(self) -> float:
        return self.at + self.for_s


@dataclass(frozen=True, slots=True)
class Schedule:
    """All of a run that is decided beforehand. Times in seconds; faults are over at `quiet_from`."""

    seed: str
    count: int
    profile: str
    quality: Quality
    hints: bool
    quiet_from: float
    length: float
    faults: tuple[Fault, ...] = field(default=())

    @property
    def config(self) -> SwimConfig:
        return {"local": LOCAL, "wan": WAN}[self.profile]

    def describe(self) -> str:
        head = f"{self.count} members, {self.profile}, {self.quality}, {'with' if self.hints else 'without'} link hints"
        return "\n  ".join([head, *map(str, self.faults)])


BOOT_S = 3.0

KINDS: dict[str, float] = {
    "crash": 2,
    "restart": 2,
    "pause": 2,
    "starve": 2,
    "partition": 2,
    "one way": 1,
    "lossy": 1,
    "cut": 1,
    "leave": 0.5,
    "rename": 1,
    "move": 1,
}
"""How often each kind of fault is drawn, relative to the others."""


def short_schedule(seed: str, kinds: dict[str, float] = KINDS, most_faults: int = 5) -> Schedule:
    """One minute of 2 to 6 members on a local network that may be bad."""
    rng = random.Random(f"schedule {seed}")
    quality = Quality(
        latency_s=rng.choice([0.0005, 0.002, 0.02]),
        jitter_s=0.0003,
        loss=rng.choice([0.0, 0.0, 0.01, 0.05]),
        duplicate=rng.choice([0.0, 0.05]),
        straggle=rng.choice([0.0, 0.05]),
    )
    plain = Schedule(seed, rng.randint(2, 6), "local", quality, rng.random() < 0.5, 30.0, 60.0)
    return replace(plain, faults=draw_faults(rng, plain, kinds, rng.randint(1, most_faults)))


def long_schedule(seed: str, kinds: dict[str, float] = KINDS) -> Schedule:
    """Five minutes and more of up to 20 members, local or far apart."""
    rng = random.Random(f"schedule {seed}")
    profile = rng.choice(["local", "wan"])
    latency = 0.001 if profile == "local" else rng.choice([0.05, 0.1, 0.2])
    quality = Quality(latency, latency / 4, rng.choice([0.0, 0.01, 0.05]), duplicate=0.01, straggle=0.02)
    plain = Schedule(seed, rng.randint(3, 20), profile, quality, rng.random() < 0.5, 180.0, 360.0)
    return replace(plain, faults=draw_faults(rng, plain, kinds, rng.randint(3, 12)))


def process_schedule(seed: str) -> Schedule:
    """One minute in which only processes suffer: any death must be one."""
    return short_schedule(f"process {seed}", {kind: KINDS[kind] for kind in ("crash", "restart", "pause", "starve")})


FAMILIES: dict[str, Callable[[str], Schedule]] = {
    "short": short_schedule,
    "process": process_schedule,
    "long": long_schedule,
}
"""By the name that replays them."""


def draw_faults(rng: random.Random, schedule: Schedule, kinds: dict[str, float], how_many: int) -> tuple[Fault, ...]:
    """Faults that end by `quiet_from`. A host crashes for good, restarts or leaves once at most; the seed only pauses,
    so that who comes back finds a door."""
    everyone = list(range(schedule.count))
    mortal = rng.sample(everyone[1:], len(everyone) - 1)
    faults = []
    for kind in rng.choices(list(kinds), weights=list(kinds.values()), k=how_many):
        at = rng.uniform(BOOT_S + 2.0, schedule.quiet_from - 2.0)
        left = schedule.quiet_from - at
        for_s = min(left, rng.choice([rng.uniform(0.05, 2.0), rng.uniform(2.0, 12.0), rng.uniform(12.0, 40.0)]))
        some = tuple(sorted(rng.sample(everyone, rng.randint(1, schedule.count - 1))))
        rest = tuple(index for index in everyone if index not in some)
        match kind:
            case "crash" | "restart" | "leave":
                if not mortal:
                    continue
                host = mortal.pop()
                for_s = for_s if kind == "restart" else 0.0
                faults.append(Fault(at, kind, (host,), for_s=for_s, amount=rng.choice([0.3, 15.0])))
            case "pause" | "starve":
                faults.append(Fault(at, kind, (rng.choice(everyone),), for_s=for_s))
            case "partition" | "one way":
                faults.append(Fault(at, kind, some, rest, for_s))
            case "lossy":
                faults.append(Fault(at, kind, some, rest, for_s, amount=rng.choice([0.2, 0.5, 0.9])))
            case "cut" | "rename" | "move":
                one, other = rng.sample(everyone, 2)
                faults.append(Fault(at, kind, (one,), (other,)))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def play(schedule: Schedule, trace: Callable[[str], None] | None = None) -> Network:
    """Run the whole schedule; every host registers the names of its role soon after it has joined."""
    network = Network(schedule.seed, schedule.count, schedule.config, quality=schedule.quality, hints=schedule.hints)
    network.trace = trace
    boot(network)
    for fault in schedule.faults:
        network.at(fault.at, inject, network, fault)
    network.run(schedule.length)
    return network


def boot(network: Network, within_s: float = BOOT_S) -> None:
    """The orchestrator first, then the stages in any order."""
    orchestrator, *stages = network.hosts
    network.at(0.0, orchestrator.start)
    network.at(0.0, register_names, network, orchestrator, 1)
    for stage in stages:
        start(network, stage, network.rng.uniform(0.01, within_s))


def start(network: Network, host: Host, at: float) -> None:
    network.at(at, host.start, network.hosts[:1])
    network.at(at + network.rng.uniform(0.0, 2.0), register_names, network, host, 20)


def register_names(network: Network, host: Host, tries: int) -> None:
    """What a node does once it is a member; it asks again in a second while it is none."""
    if host.joined and not host.paused:
        for name in names_of(host, len(network.hosts)):
            host.register(name)
    elif tries > 1:
        network.after(1.0, register_names, network, host, tries - 1)


def names_of(host: Host, count: int) -> list[str]:
    if host.stage_index is None:
        return ["pp-orchestrator"]
    names = [f"pp-stage-{host.stage_index}"]
    if host.stage_index == count - 2:
        names.append("pp-exit")
    if host.stage_index == 0:
        names.append("pp-entry")
    return names


def inject(network: Network, fault: Fault) -> None:
    """The fault happens, and its end is on the calendar."""
    hosts = [network.hosts[index] for index in fault.hosts]
    others = [network.hosts[index] for index in fault.others]
    network.say(str(fault))
    match fault.kind:
        case "crash":
            hosts[0].crash(fault.amount)
        case "restart":
            hosts[0].crash(fault.amount)
            start(network, hosts[0], fault.until)
        case "leave":
            hosts[0].leave()
        case "pause":
            hosts[0].pause()
            network.at(fault.until, hosts[0].resume, hosts[0].life)
        case "starve":
            starve(network, hosts[0], hosts[0].life, fault.until)
        case "partition":
            cut_off(network, network.paths_between(hosts, others) + network.paths_between(others, hosts), fault.until)
        case "one way":
            cut_off(network, network.paths_between(hosts, others), fault.until)
        case "lossy":
            for path in network.paths_between(hosts, others):
                path.quality = replace(network.quality, loss=fault.amount)
                network.at(fault.until, set_quality, path, network.quality)
        case "cut":
            network.close(hosts[0].paths[others[0].node_id].connection)
        case "move":
            hosts[0].move()
        case "rename":
            for name in sorted(hosts[0].own_names):
                hosts[0].unregister(name)
            network.after(network.rng.uniform(0.0, 1.0), register_names, network, hosts[0], 20)


def starve(network: Network, host: Host, life: int, until: float) -> None:
    """It gets the processor for moments only: ticks and deliveries come late by up to seconds."""
    if host.life != life or network.now >= until:
        return
    host.pause()
    wakes = min(until, network.now + host.rng.choice([0.3, 1.0, 3.0]) * host.rng.random())
    network.at(wakes, host.resume, life)
    network.at(wakes + 0.02 * host.rng.random(), starve, network, host, life, until)


def cut_off(network: Network, paths: list[Path], until: float) -> None:
    for path in paths:
        network.block(path)
        network.at(until, network.unblock, path)


def set_quality(path: Path, quality: Quality) -> None:
    path.quality = quality
