"""One step of the lease book under way, and the moves its parts share: failing a host, releasing, giving up. Pure."""

from __future__ import annotations

from dataclasses import replace

from ppsmoke.errors import HostFailed, PpError, VastKeyRejected
from ppsmoke.vast.lease_events import Action, Done, Entry, Kind, Lost, Record, Remember
from ppsmoke.vast.lease_records import FINAL, LIVE, BookState, Lease, Phase, Rented, Standing

ABSENT_TWICE = 2
GOING_ON = (Phase.ACQUIRING, Phase.HELD)
EXISTING = (Standing.MADE, Standing.RUNNING)


class Turn:
    """One step under way: the state as it changes and the actions so far."""

    def __init__(self, state: BookState, now: float) -> None:
        self.state = state
        self.now = now
        self.actions: list[Action] = []

    def trouble(self, lease: Lease, reason: str, fatal: bool = False) -> None:
        """While the chain is being built a failed host is replaced; when it runs, its owner decides."""
        if self.state.phase is Phase.ACQUIRING:
            self.fail_host(lease, reason, fatal)
        elif not lease.reason:
            self.put(replace(lease, reason=reason))
            self.actions.append(Lost(lease.stage, reason))

    def fail_host(self, lease: Lease, reason: str, fatal: bool = False) -> None:
        self.record(Kind.FAILED, lease, reason=reason, instance_id=next(iter(lease.ids), None))
        if lease.rented and lease.candidate.machine_id is not None:
            self.actions.append(Remember(lease.candidate.machine_id, reason))
        self.end(replace(lease, reason=reason))
        error = HostFailed(
            f"stage {lease.stage}: its machine failed: {reason}",
            stage=lease.stage,
            phase="renting",
            remedy="Every machine would fail so: correct --image." if fatal else None,
        )
        if fatal:
            self.release(str(error), error)
        else:
            self.state = replace(self.state, phase=Phase.ACQUIRING)
            self.count_failures(lease.stage, error)

    def count_failures(self, stage: int, last: PpError) -> None:
        """A stage may try so many machines, and so many offers that are gone; then the run rolls back."""
        tried = [x for x in self.state.leases if x.stage == stage and x.standing not in LIVE]
        refused = sum(x.refused for x in tried)
        limits = self.state.limits
        if refused > limits.refused or len(tried) - refused > limits.replacements:
            what = f"stage {stage}: no machine after {len(tried)} attempts; the last: {last}"
            self.release(what, HostFailed(what, stage=stage, phase="renting", remedy=last.remedy))

    def release(self, reason: str, error: PpError | None) -> None:
        """From now on nothing is created, and everything ends. The first reason stays."""
        if self.state.phase not in GOING_ON:
            return
        give_up_at = self.now + self.state.times.release
        self.state = replace(
            self.state,
            phase=Phase.RELEASING,
            waiting=(),
            searching=frozenset(),
            error=error,
            refusals=0,
            give_up_at=give_up_at,
        )
        self.actions.append(Record(Entry(Kind.RELEASE, reason=reason)))
        for lease in self.state.leases:
            if lease.standing in (Standing.UNSURE, *EXISTING):
                self.end(lease)

    def hurry(self) -> None:
        """No logs, no waiting for an answer that may take minutes, and a short deadline."""
        give_up_at = self.now + self.state.times.hurry
        give_up_at = min(self.state.give_up_at or give_up_at, give_up_at)
        self.state = replace(self.state, hurried=True, give_up_at=give_up_at)
        for lease in self.state.leases:
            if lease.standing is Standing.CREATING:
                reason = "the answer to its create was not waited for"
                self.end(replace(lease, unresolved_at=self.now, made_at=lease.since, reason=reason))
            elif lease.standing is Standing.ENDING:
                rented = tuple(replace(x, next_try=min(x.next_try, self.now)) for x in lease.rented)
                self.put(replace(lease, rented=rented, logs_done=True))

    def give_up(self, reason: str) -> None:
        """Done, with what is not verified named."""
        if self.state.phase is Phase.DONE:
            return
        for lease in self.state.leases:
            if lease.standing is Standing.PLANNED:
                self.never_sent(lease)
            elif lease.standing not in FINAL:
                why = f"{reason}; {lease.reason}" if lease.reason not in ("", reason) else reason
                lease = replace(lease, standing=Standing.UNVERIFIED, since=self.now, reason=why)
                self.put(lease)
                for instance_id in lease.ids or (None,):
                    self.record(Kind.UNVERIFIED, lease, reason=why, instance_id=instance_id)
        self.done()

    def done(self) -> None:
        if not self.state.unverified:
            self.actions.append(Record(Entry(Kind.CLOSED)))
        self.state = replace(self.state, phase=Phase.DONE)
        self.actions.append(Done())

    def key_answered(self, refused: bool) -> None:
        """One answer may be a slip of the service; several in a row that refuse the key are not."""
        self.state = replace(self.state, refusals=self.state.refusals + 1 if refused else 0)
        if self.state.refusals < self.state.limits.refusals:
            return
        if self.state.phase in GOING_ON:
            self.state = replace(self.state, refusals=0)
            what = "vast.ai does not accept the key any more, while instances are rented"
            self.release(what, VastKeyRejected(what, phase="renting"))
        else:
            self.give_up("vast.ai does not accept the key")

    def lease(self, label: str) -> Lease | None:
        return next((x for x in self.state.leases if x.label == label), None)

    def put(self, lease: Lease) -> None:
        self.state = self.state.with_lease(lease)

    def end(self, lease: Lease) -> None:
        """It is to be gone from now on."""
        counts_from = self.now
        if lease.unresolved_at is not None:
            counts_from = max(self.now, lease.unresolved_at + self.state.times.settle)
        logs_done = lease.logs_done or not lease.rented or self.state.hurried
        ending = replace(
            lease, standing=Standing.ENDING, since=self.now, absent=0, counts_from=counts_from, logs_done=logs_done
        )
        self.put(ending)

    def never_sent(self, lease: Lease) -> None:
        reason = "ended before its create was sent"
        self.record(Kind.REFUSED, lease, reason=reason)
        self.put(replace(lease, standing=Standing.GONE, since=self.now, reason=reason))

    def with_id(self, lease: Lease, instance_id: int) -> Lease:
        if instance_id in lease.ids:
            return lease
        return replace(lease, rented=(*lease.rented, Rented(instance_id, next_try=self.now)))

    def record(self, kind: Kind, lease: Lease, *, instance_id: int | None = None, reason: str | None = None) -> None:
        self.actions.append(Record(Entry(kind, lease.label, instance_id, lease.stage, reason=reason)))


def with_rented(lease: Lease, changed: Rented) -> Lease:
    return replace(lease, rented=tuple(changed if x.instance_id == changed.instance_id else x for x in lease.rented))
