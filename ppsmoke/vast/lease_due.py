"""What the lease book has to begin now, and when it wants to be asked again. Pure."""

from __future__ import annotations

from dataclasses import replace

from ppsmoke.errors import DeadlineExceeded, VastUnavailable
from ppsmoke.vast.lease_events import Destroy, Entry, FindOffer, Held, Kind, List, Record, SaveLogs
from ppsmoke.vast.lease_records import FINAL, LIVE, BookState, Lease, Phase, Standing, spent
from ppsmoke.vast.lease_turn import EXISTING, GOING_ON, Turn, with_rented
from ppsmoke.vast.prices import usd

_CENT = 0.01


def begin_due(turn: Turn) -> None:
    """Begin all that is due."""
    _check_deadlines(turn)
    _plan_create(turn)
    for lease in turn.state.leases:
        if lease.standing is Standing.ENDING:
            _destroy(turn, lease)
    _look_for_offers(turn)
    _settle_phase(turn)
    due = _list_due(turn.state)
    if due is not None and due <= turn.now:
        turn.state = replace(turn.state, listing=True, last_list=turn.now)
        turn.actions.append(List())


def _check_deadlines(turn: Turn) -> None:
    for lease in turn.state.leases:
        limit = _running_limit(turn.state, lease)
        awaited = turn.state.phase in GOING_ON and lease.standing in (Standing.MADE, Standing.UNSURE)
        if not awaited or turn.now < lease.since + limit:
            continue
        if turn.state.blind_since is not None and turn.now >= turn.state.blind_since + limit / 2:
            # It may well be running, and another one in its place would be waited for as blindly.
            _release_blind(turn, turn.now - turn.state.blind_since)
            break
        turn.fail_host(lease, f"it was not running after {limit:g} s")
    most = turn.state.limits.max_spend
    if most is not None and turn.state.phase in GOING_ON and spent(turn.state, turn.now) >= most - _CENT / 1000:
        what, remedy = f"the run has spent {usd(most)} USD", "Raise --max-spend, or rent cheaper machines."
        turn.release(what, DeadlineExceeded(what, phase="renting", remedy=remedy))
    if turn.state.give_up_at is not None and turn.now >= turn.state.give_up_at:
        turn.give_up("it could not be verified in time")


def _release_blind(turn: Turn, lasted: float) -> None:
    what = (
        f"whether the rented machines run is not known: vast.ai gave no list of them for {lasted:.0f} s "
        f"({turn.state.blind_reason})"
    )
    turn.release(what, VastUnavailable(what, phase="renting"))


def _plan_create(turn: Turn) -> None:
    busy = any(x.standing in (Standing.PLANNED, Standing.CREATING) for x in turn.state.leases)
    if turn.state.phase is not Phase.ACQUIRING or busy or not turn.state.waiting:
        return
    candidate, *rest = turn.state.waiting
    lease = Lease(candidate, Standing.PLANNED, turn.now)
    turn.state = replace(turn.state, waiting=tuple(rest), leases=(*turn.state.leases, lease))
    intent = Entry(
        Kind.INTENT,
        label=candidate.label,
        stage=candidate.stage,
        offer_id=candidate.offer_id,
        machine_id=candidate.machine_id,
        host_id=candidate.host_id,
        price_per_hour=candidate.price_per_hour,
    )
    turn.actions.append(Record(intent))


def _destroy(turn: Turn, lease: Lease) -> None:
    if not lease.logs_done:
        if lease.logs_until is None:
            lease = replace(lease, logs_until=turn.now + turn.state.times.logs)
            turn.put(lease)
            turn.actions += [SaveLogs(lease.label, lease.stage, instance_id) for instance_id in lease.ids]
        if lease.logs_until is not None and turn.now < lease.logs_until:
            return
        lease = replace(lease, logs_done=True)
        turn.put(lease)
    for rented in lease.rented:
        if rented.accepted_at is not None or rented.asking or turn.now < rented.next_try:
            continue
        if not rented.asked:
            turn.record(Kind.DESTROY, lease, instance_id=rented.instance_id, reason=lease.reason or None)
        lease = with_rented(lease, replace(rented, asked=True, asking=True))
        turn.put(lease)
        turn.actions.append(Destroy(rented.instance_id))


def _look_for_offers(turn: Turn) -> None:
    if turn.state.phase is not Phase.ACQUIRING:
        return
    served = {x.stage for x in turn.state.leases if x.standing in LIVE} | {x.stage for x in turn.state.waiting}
    for stage in range(turn.state.num_stages):
        failed = [x for x in turn.state.leases if x.stage == stage and x.standing not in LIVE]
        if stage in served or stage in turn.state.searching or not all(x.all_asked for x in failed):
            continue
        turn.state = replace(turn.state, searching=turn.state.searching | {stage})
        taken = [x.candidate for x in turn.state.leases] + list(turn.state.waiting)
        live = [x.candidate for x in turn.state.leases if x.standing in LIVE] + list(turn.state.waiting)
        offers = frozenset(x.offer_id for x in taken)
        machines = frozenset(x.machine_id for x in taken if x.machine_id is not None)
        hosts = tuple(x.host_id for x in live if x.host_id is not None)
        turn.actions.append(FindOffer(stage, offers, machines, hosts))


def _settle_phase(turn: Turn) -> None:
    if turn.state.phase is Phase.ACQUIRING:
        leases = [turn.state.of_stage(stage) for stage in range(turn.state.num_stages)]
        ready = [x for x in leases if x is not None and x.standing is Standing.RUNNING]
        if len(ready) == turn.state.num_stages:
            turn.state = replace(turn.state, phase=Phase.HELD)
            turn.actions.append(Held(tuple(x.ids[0] for x in ready)))
    elif turn.state.phase is Phase.RELEASING and all(x.standing in FINAL for x in turn.state.leases):
        turn.done()


def next_wakeup(state: BookState) -> float | None:
    """When the machine wants a Tick if nothing else happens before; None when only events can move it."""
    if state.phase in (Phase.IDLE, Phase.DONE):
        return None
    times = [_list_due(state), state.give_up_at, _spend_reached(state)]
    for lease in state.leases:
        if lease.standing in (Standing.MADE, Standing.UNSURE) and state.phase is not Phase.RELEASING:
            times.append(lease.since + _running_limit(state, lease))
        if lease.standing is Standing.ENDING:
            if not lease.logs_done:
                times.append(lease.logs_until)
            else:
                times += [x.next_try for x in lease.rented if x.accepted_at is None and not x.asking]
    return min((time for time in times if time is not None), default=None)


def _list_due(state: BookState) -> float | None:
    """When the next listing is to begin; None while nothing is to be learnt from one, or one is under way."""
    if state.listing:
        return None
    to_verify = any(
        x.standing is Standing.UNSURE or (x.standing is Standing.ENDING and x.all_accepted) for x in state.leases
    )
    if to_verify:
        interval = state.times.verify
    elif state.phase is Phase.ACQUIRING and any(x.standing is Standing.MADE for x in state.leases):
        interval = state.times.poll
    elif state.phase in GOING_ON and any(x.standing in EXISTING for x in state.leases):
        interval = state.times.held_poll
    else:
        return None
    return interval + state.last_list if state.last_list is not None else 0.0


def _spend_reached(state: BookState) -> float | None:
    """When `max_spend` will be reached if the leases live on as they are."""
    most = state.limits.max_spend
    if most is None or state.phase not in GOING_ON:
        return None
    living = [x for x in state.leases if x.made_at is not None and not (x.all_accepted and x.standing not in LIVE)]
    rate = sum(x.candidate.price_per_hour * max(1, len(x.rented)) for x in living) / state.limits.time_scale / 3600
    if rate <= 0:
        return None
    start = max(x.made_at or 0.0 for x in living)
    return start + max(0.0, most - spent(state, start)) / rate


def _running_limit(state: BookState, lease: Lease) -> float:
    own = lease.candidate.running_s
    return state.times.running if own is None else own
