"""What holds after every schedule, whatever went wrong before. Each function returns sentences about what does not."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tests.sim.swim.host import Change, Host
from tests.sim.swim.network import Network
from tests.sim.swim.schedule import Fault, Schedule, names_of

SETTLE_S = {"local": 25.0, "wan": 90.0}
"""So long after the last fault nothing may change any more."""

EXCUSE_S = {"local": 12.0, "wan": 75.0}
"""So long after its end a fault may still be the reason of a death: the news has to be told, and taken back."""


def violations(schedule: Schedule, network: Network) -> list[str]:
    return [
        *never_joined(network),
        *wrong_views(network),
        *wrong_names(network),
        *unrest(network, schedule.quiet_from + SETTLE_S[schedule.profile]),
        *unfounded_deaths(schedule, network),
        *leaves_taken_for_deaths(schedule, network),
        *notes(network),
    ]


def states_of(network: Network, subject: Host) -> set[str]:
    """How those who run see it."""
    return {host.table()[subject.node_id].state for host in alive(network) if host is not subject}


def alive(network: Network) -> list[Host]:
    return [host for host in network.hosts if host.swim is not None]


def never_joined(network: Network) -> Iterator[str]:
    for host in alive(network):
        if not host.joined:
            yield f"{host} runs and is no member ({host.refused})"


def wrong_views(network: Network) -> Iterator[str]:
    """All who run see all who run as alive, as they are now, and nobody else."""
    own_views = {peer.node_id: peer.table()[peer.node_id] for peer in alive(network)}
    for host in alive(network):
        table = host.table()
        for peer in network.hosts:
            seen, own = table.get(peer.node_id), own_views.get(peer.node_id)
            if own is None:
                if seen is not None and seen.is_present:
                    yield f"{host} sees {peer}, which is gone, as {seen.state}"
            elif seen is None or seen.state != "alive":
                yield f"{host} sees {peer}, which runs, as {seen.state if seen else 'unknown'}"
            elif seen.incarnation != own.incarnation:
                yield f"{host} sees {peer} at incarnation {seen.incarnation}, which is {own.incarnation}"
            elif (seen.address, seen.life, seen.stage_index) != (own.address, own.life, own.stage_index):
                yield f"{host} sees an older {peer}: {seen}"
        if strangers := set(table) - set(network.by_id):
            yield f"{host} knows members that are none: {strangers}"


def wrong_names(network: Network) -> Iterator[str]:
    """Everybody resolves the same names to the same living members, and no name of the dead."""
    holders = {name: peer for peer in alive(network) for name in peer.own_names}
    known = {name for peer in network.hosts for name in names_of(peer, len(network.hosts))}
    for host in alive(network):
        assert host.swim is not None
        for name in sorted(known):
            found = host.swim.resolve(name)
            holder = holders.get(name)
            if (found and found.node_id) != (holder and holder.node_id):
                who = network.by_id[found.node_id] if found else None
                yield f"{host} resolves {name} to {who} instead of {holder}"
        for node_id, member in host.table().items():
            peer = network.by_id.get(node_id)
            expected = peer.own_names if peer is not None and peer.swim is not None else set()
            if set(member.names) != expected:
                yield f"{host} has the names {sorted(member.names)} for {peer} instead of {sorted(expected)}"


def unrest(network: Network, since: float) -> Iterator[str]:
    for host in network.hosts:
        for change in host.changes:
            if change.at > since:
                yield f"still moving: {told(change)}"


def unfounded_deaths(schedule: Schedule, network: Network) -> Iterator[str]:
    """Nobody is declared dead without a fault that could be why."""
    for host in network.hosts:
        for change in host.changes:
            if change.after == "dead" and not excused(schedule, change):
                yield f"nothing was wrong, and yet {told(change)}"


def excused(schedule: Schedule, change: Change) -> bool:
    return any(
        could_kill(schedule, fault, change) and fault.at <= change.at <= excuse_ends(schedule, fault, change.observer)
        for fault in schedule.faults
    )


def excuse_ends(schedule: Schedule, fault: Fault, observer: int) -> float:
    """An observer that was away reads old news when it is back, and who starts anew waits for a seed that is away."""
    waits_for = {observer, 0} if fault.kind == "restart" else {observer}
    if fault.for_s == 0.0:
        return inf
    last = fault.until + EXCUSE_S[schedule.profile]
    for other in schedule.faults:
        if other.kind in ("pause", "starve") and other.hosts[0] in waits_for and other.at <= last:
            last = max(last, other.until + EXCUSE_S[schedule.profile])
    return last


def could_kill(schedule: Schedule, fault: Fault, change: Change) -> bool:
    """A fault of a path makes anybody believe anything for a while; a fault of a process is nobody else's."""
    match fault.kind:
        case "partition" | "one way" | "lossy":
            return True
        case "crash" | "restart" | "pause" | "starve":
            return change.subject in fault.hosts
        case "leave":
            return change.subject in fault.hosts and is_out_of_reach(schedule, fault)
    return False


def is_out_of_reach(schedule: Schedule, leave: Fault) -> bool:
    """Whether a goodbye may miss somebody: who is stopped while its connection breaks has none in time."""
    broken = any(fault.kind in ("cut", "move") for fault in schedule.faults)
    return broken and any(
        fault.kind in ("pause", "starve") and fault.at <= leave.at <= fault.until for fault in schedule.faults
    )


def leaves_taken_for_deaths(schedule: Schedule, network: Network) -> Iterator[str]:
    """Who said goodbye over paths that worked is not called dead by anybody."""
    if any(fault.kind in ("partition", "one way", "lossy") for fault in schedule.faults):
        return
    for fault in schedule.faults:
        others = [other for other in schedule.faults if other is not fault and fault.hosts[0] in other.hosts]
        if fault.kind != "leave" or others or is_out_of_reach(schedule, fault):
            continue
        for host in network.hosts:
            if any(change.subject == fault.hosts[0] and change.after == "dead" for change in host.changes):
                yield f"{host} calls host {fault.hosts[0]} dead, which has left"


def notes(network: Network) -> Iterator[str]:
    """Honest members give no reason for a note."""
    for host in network.hosts:
        for note in host.notes:
            yield f"{host} notes of an honest {network.by_id.get(note.peer)}: {note.reason}: {note.text}"


def told(change: Change) -> str:
    return f"{change.at:.3f} host {change.observer}: host {change.subject} {change.before} -> {change.after}"
