"""The lease book's state machine, pure: `step(state, event, now)` gives the next state and the actions to perform.

    Idle -> Acquiring -> Held -> Releasing -> Done        Acquiring, Held -> Releasing at any fault
                ^----------' a failed host is replaced

What it promises, whatever the order of events: no create without its intent on the disk; one create at a time, and
never the same one twice; a create whose answer was lost is looked for by its label; a failed host is replaced only
after its destruction was asked for and recorded; and `Done` comes only when every lease is verified as gone, by two
complete listings in a row without it, or is named as unverified.
"""

from __future__ import annotations

from dataclasses import replace

from ppsmoke.errors import PpError, RunFailed
from ppsmoke.vast.lease_due import begin_due, next_wakeup
from ppsmoke.vast.lease_events import (
    Acquire,
    Action,
    Create,
    Created,
    CreateRefused,
    CreateUnknown,
    DestroyAnswered,
    Event,
    GiveUp,
    Hurry,
    Kind,
    Listed,
    ListFailed,
    LogsSaved,
    NoOffer,
    OfferFound,
    Recorded,
    RecordFailed,
    Release,
    ReplaceHost,
)
from ppsmoke.vast.lease_listing import hear_listing
from ppsmoke.vast.lease_records import BookState, Lease, Phase, Standing
from ppsmoke.vast.lease_turn import EXISTING, GOING_ON, Turn, with_rented

__all__ = ["given_up", "in_release", "next_wakeup", "step"]


def step(state: BookState, event: Event, now: float) -> tuple[BookState, tuple[Action, ...]]:
    """What is heard first changes the leases; then all that has become due is begun."""
    turn = Turn(state, now)
    _hear(turn, event)
    if turn.state.phase not in (Phase.IDLE, Phase.DONE):
        begin_due(turn)
    return turn.state, tuple(turn.actions)


def in_release(state: BookState, now: float, error: PpError | None = None) -> BookState:
    """A book that begins by releasing what `state` holds, saves no logs and waits for no answer to an earlier call.

    A teardown begins so with a dead run's leases, and a driver goes on so after a fault of its own.
    """
    leases = tuple(
        replace(lease, logs_done=True, rented=tuple(replace(rented, asking=False) for rented in lease.rented))
        for lease in state.leases
    )
    turn = Turn(replace(state, phase=Phase.HELD, leases=leases, listing=False), now)
    turn.release("teardown", error)
    for lease in leases:
        if lease.standing is Standing.PLANNED:
            turn.never_sent(lease)
        elif lease.standing is Standing.CREATING:
            turn.end(replace(lease, unresolved_at=now, made_at=lease.since))
    return turn.state


def given_up(state: BookState, now: float, reason: str) -> BookState:
    """A book that is done, with everything named that is not verified."""
    turn = Turn(state, now)
    turn.give_up(reason)
    return turn.state


def _hear(turn: Turn, event: Event) -> None:
    match event:
        case Acquire(candidates) if turn.state.phase is Phase.IDLE:
            turn.state = replace(turn.state, phase=Phase.ACQUIRING, waiting=candidates)
        case Recorded(label):
            _recorded(turn, turn.lease(label))
        case RecordFailed(error):
            _record_failed(turn, error)
        case Created(label, instance_id):
            _created(turn, turn.lease(label), instance_id)
        case CreateRefused():
            _refused(turn, turn.lease(event.label), event)
        case CreateUnknown():
            _unknown(turn, turn.lease(event.label), event)
        case OfferFound(candidate) if candidate.stage in turn.state.searching:
            searching = turn.state.searching - {candidate.stage}
            turn.state = replace(turn.state, searching=searching, waiting=(*turn.state.waiting, candidate))
        case NoOffer(stage, error) if stage in turn.state.searching:
            turn.release(str(error), error)
        case Listed():
            hear_listing(turn, event)
        case ListFailed(reason, refused):
            since = turn.now if turn.state.blind_since is None else turn.state.blind_since
            turn.state = replace(turn.state, listing=False, blind_since=since, blind_reason=reason)
            turn.key_answered(refused)
        case DestroyAnswered():
            _destroy_answered(turn, event)
        case LogsSaved(label):
            if lease := turn.lease(label):
                turn.put(replace(lease, logs_done=True))
        case ReplaceHost(stage, reason) if turn.state.phase in GOING_ON:
            lease = turn.state.of_stage(stage)
            if lease is not None and lease.standing in EXISTING:
                turn.fail_host(lease, reason)
        case Release(reason, error):
            _asked_to_release(turn, reason, error)
        case Hurry() if turn.state.phase is Phase.RELEASING:
            turn.hurry()
        case GiveUp(reason):
            turn.give_up(reason)
        case _:  # Tick, and what comes too late to matter
            pass


def _recorded(turn: Turn, lease: Lease | None) -> None:
    if lease is None or lease.standing is not Standing.PLANNED:
        return
    if turn.state.phase is not Phase.ACQUIRING:
        turn.never_sent(lease)
        return
    turn.put(replace(lease, standing=Standing.CREATING, since=turn.now))
    turn.actions.append(Create(lease.candidate))


def _record_failed(turn: Turn, error: PpError) -> None:
    for lease in turn.state.leases:
        if lease.standing is Standing.PLANNED:
            turn.put(replace(lease, standing=Standing.GONE, since=turn.now, reason=str(error)))
    turn.release(str(error), error)


def _created(turn: Turn, lease: Lease | None, instance_id: int) -> None:
    if lease is None:
        return
    lease = turn.with_id(replace(lease, made_at=lease.made_at or lease.since, unresolved_at=None), instance_id)
    turn.record(Kind.CREATED, lease, instance_id=instance_id)
    if lease.standing is Standing.CREATING and turn.state.phase in GOING_ON:
        turn.put(replace(lease, standing=Standing.MADE, since=turn.now))
    elif turn.state.phase is Phase.DONE or lease.standing in EXISTING:
        turn.put(lease)
    else:
        turn.end(replace(lease, logs_done=True))  # it has had no time to write any


def _refused(turn: Turn, lease: Lease | None, event: CreateRefused) -> None:
    if lease is None:
        return
    turn.record(Kind.REFUSED, lease, reason=str(event.error), instance_id=event.instance_id)
    lease = replace(lease, refused=True, reason=str(event.error), unresolved_at=None)
    if event.instance_id is not None:
        lease = turn.with_id(replace(lease, made_at=lease.since), event.instance_id)
    if turn.state.phase is Phase.DONE:
        turn.put(lease)
        return
    # Verified like any other: a refusal is a word, two complete listings are a proof.
    turn.end(replace(lease, logs_done=True))
    if turn.state.phase not in GOING_ON:
        return
    if event.try_another:
        turn.count_failures(lease.stage, event.error)
    else:
        turn.release(str(event.error), event.error)


def _unknown(turn: Turn, lease: Lease | None, event: CreateUnknown) -> None:
    if lease is None or lease.standing not in (Standing.CREATING, Standing.ENDING):
        return
    turn.record(Kind.UNKNOWN, lease, reason=event.reason, instance_id=event.instance_id)
    lease = replace(lease, unresolved_at=turn.now, made_at=lease.since, counts_from=turn.now, absent=0)
    if event.instance_id is not None:
        lease = turn.with_id(lease, event.instance_id)
    if event.instance_id is None and lease.standing is Standing.CREATING and turn.state.phase in GOING_ON:
        turn.put(replace(lease, standing=Standing.UNSURE, since=turn.now, reason=event.reason))
        return
    turn.end(replace(lease, reason=event.reason, logs_done=True))
    if turn.state.phase in GOING_ON:
        turn.count_failures(lease.stage, RunFailed(event.reason, stage=lease.stage))


def _destroy_answered(turn: Turn, event: DestroyAnswered) -> None:
    lease = next((x for x in turn.state.leases if event.instance_id in x.ids), None)
    if lease is None:
        return
    rented = next(x for x in lease.rented if x.instance_id == event.instance_id)
    if event.accepted:
        turn.record(Kind.ACCEPTED, lease, instance_id=event.instance_id)
        rented = replace(rented, asking=False, accepted_at=turn.now)
        lease = replace(lease, counts_from=max(lease.counts_from, turn.now), absent=0)
    else:
        times = turn.state.times
        wait = min(times.retry * 2 ** min(rented.tries, 8), times.retry_most)
        rented = replace(rented, asking=False, tries=rented.tries + 1, next_try=turn.now + wait)
        lease = replace(lease, reason=event.reason or lease.reason)
    turn.put(with_rented(lease, rented))
    turn.key_answered(event.refused)


def _asked_to_release(turn: Turn, reason: str, error: PpError | None) -> None:
    if turn.state.phase is Phase.IDLE:
        turn.state = replace(turn.state, error=error)
        turn.done()
    else:
        turn.release(reason, error)
