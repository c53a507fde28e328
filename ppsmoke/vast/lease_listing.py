"""What a complete listing tells the lease book. Pure."""

from __future__ import annotations

from dataclasses import replace

from ppsmoke.errors import RunFailed
from ppsmoke.vast.lease_events import Kind, Listed, Seen, Verdict
from ppsmoke.vast.lease_labels import in_scope, stage_of
from ppsmoke.vast.lease_records import FINAL, Candidate, Lease, Phase, Standing
from ppsmoke.vast.lease_turn import ABSENT_TWICE, GOING_ON, Turn, with_rented


def hear_listing(turn: Turn, event: Listed) -> None:
    turn.state = replace(turn.state, listing=False, blind_since=None)
    turn.key_answered(False)
    if turn.state.phase in (Phase.IDLE, Phase.DONE):
        return
    strays = list(event.rows)
    for lease in turn.state.leases:
        mine = [row for row in event.rows if _is_of(row, lease)]
        strays = [row for row in strays if row not in mine]
        current = turn.lease(lease.label)
        assert current is not None
        if mine:
            _present(turn, current, mine)
        else:
            _absent(turn, current, event.began)
    for row in strays:
        _stray(turn, row)


def _present(turn: Turn, lease: Lease, rows: list[Seen]) -> None:
    match lease.standing:
        case Standing.PLANNED | Standing.CREATING:
            return  # its answer is about to come
        case Standing.UNSURE:
            for row in rows:
                lease = turn.with_id(lease, row.instance_id)
                turn.record(Kind.CREATED, lease, instance_id=row.instance_id)
            turn.put(replace(lease, standing=Standing.MADE, unresolved_at=None, absent=0, reason=""))
        case Standing.MADE | Standing.RUNNING:
            for row in rows:
                lease = turn.with_id(lease, row.instance_id)
            turn.put(replace(lease, absent=0))
        case Standing.ENDING | Standing.GONE | Standing.UNVERIFIED:
            _still_there(turn, lease, rows)
            return
    current = turn.lease(lease.label)
    assert current is not None
    _judge(turn, current, rows)


def _judge(turn: Turn, lease: Lease, rows: list[Seen]) -> None:
    if turn.state.phase not in GOING_ON:
        return
    row = rows[0]
    if len(lease.ids) > 1:
        turn.trouble(lease, f"one create call made {len(lease.ids)} instances")
    elif row.verdict is Verdict.FAILED:
        turn.trouble(lease, row.reason, row.fatal)
    elif (row.price_per_hour or 0.0) > lease.candidate.price_per_hour * turn.state.limits.price_slack:
        asked, told = lease.candidate.price_per_hour, row.price_per_hour
        turn.trouble(lease, f"it costs {told:.3f} USD an hour, its offer said {asked:.3f}")
    elif row.verdict is Verdict.READY and lease.standing is Standing.MADE:
        turn.put(replace(lease, standing=Standing.RUNNING, since=turn.now))
        turn.record(Kind.RUNNING, lease, instance_id=row.instance_id)


def _still_there(turn: Turn, lease: Lease, rows: list[Seen]) -> None:
    again = turn.state.times.again
    for row in rows:
        if row.instance_id not in lease.ids:
            turn.record(Kind.CREATED, lease, instance_id=row.instance_id)
        lease = turn.with_id(lease, row.instance_id)
        rented = next(x for x in lease.rented if x.instance_id == row.instance_id)
        accepted = rented.accepted_at
        if accepted is not None and (lease.standing in FINAL or turn.now - accepted >= again):
            lease = with_rented(lease, replace(rented, accepted_at=None, next_try=turn.now))
    if lease.unresolved_at is not None:  # this is what its create made: nothing else is to come
        lease = replace(lease, unresolved_at=None, counts_from=turn.now)
    made_at = lease.since if lease.made_at is None else lease.made_at
    turn.put(replace(lease, standing=Standing.ENDING, absent=0, made_at=made_at))


def _absent(turn: Turn, lease: Lease, began: float) -> None:
    times = turn.state.times
    match lease.standing:
        case Standing.UNSURE if began >= lease.counts_from:
            lease = replace(lease, absent=lease.absent + 1)
            turn.put(lease)
            if lease.absent >= ABSENT_TWICE:  # go on without it, and look for it again later
                turn.end(replace(lease, logs_done=True))
                reason = f"stage {lease.stage}: the answer to renting offer {lease.candidate.offer_id} was lost"
                turn.count_failures(lease.stage, RunFailed(f"{reason}: {lease.reason}", stage=lease.stage))
        case Standing.MADE | Standing.RUNNING if began >= (lease.made_at or 0.0) + times.settle:
            lease = replace(lease, absent=lease.absent + 1)
            turn.put(lease)
            if lease.absent >= turn.state.limits.missing:
                turn.trouble(lease, "it is no longer listed")
        case Standing.ENDING if lease.all_accepted and began >= lease.counts_from:
            lease = replace(lease, absent=lease.absent + 1)
            if lease.absent >= ABSENT_TWICE:
                lease = replace(lease, standing=Standing.GONE, since=turn.now)
                turn.record(Kind.GONE, lease)
            turn.put(lease)
        case _:
            pass


def _stray(turn: Turn, row: Seen) -> None:
    """Nobody but this run labels instances so: an attempt that no lease tells of."""
    names = [name for name in (row.label, row.mark) if any(in_scope(name, x) for x in turn.state.scopes)]
    if not names or names[0] is None:
        return
    name = names[0]
    known = turn.lease(name)
    if known is None:
        stage = stage_of(name)
        candidate = Candidate(name, -1 if stage is None else stage, 0, None, None, row.price_per_hour or 0.0)
        reason = "it carries the run's label and is not in the book"
        known = Lease(candidate, Standing.ENDING, turn.now, made_at=turn.now, logs_done=True, reason=reason)
        turn.state = replace(turn.state, leases=(*turn.state.leases, known))
    turn.put(turn.with_id(known, row.instance_id))


def _is_of(row: Seen, lease: Lease) -> bool:
    return row.instance_id in lease.ids or lease.label in (row.label, row.mark)
