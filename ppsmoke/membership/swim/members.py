"""What becomes of a claim about a member: belief, doubt, contradiction, or nothing.

SWIM with suspicion (sections 4.1, 4.2) and Lifeguard's confirmations and telling of the suspect. Two things are ours: a
death is declared, and believed when others report it, only of a member that we doubt and have not heard from either;
any other report starts a probe of our own, whose failure confirms it; and of those who hear of a suspicion, a few probe
the suspect at once, so that confirmation or contradiction comes in one probe's time and the load stays independent of
the cluster's size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ppsmoke.membership.swim.api import MemberChanged, MemberState, MemberView, NameChanged
from ppsmoke.membership.swim.core import Core
from ppsmoke.membership.swim.names import NameBook
from ppsmoke.membership.swim.rtt import RoundTrip
from ppsmoke.membership.swim.suspicion import Suspicion, confirmations_needed, size_factor
from ppsmoke.membership.swim.table import MAX_JUMP, Record, beats
from ppsmoke.membership.swim.wire import Claim, Kind

_LATELY_S = 60.0


class Members:
    """Keeps the table by what is claimed, and collects what others have to do about it.

    to_probe: members to be probed at once. returned: members that are back from the dead, or here after a new start.
    unknown: (whom to ask, about whom): records of which the address is missing.
    contradicted: who said of us what is not so, and is to hear it at once.
    """

    def __init__(self, core: Core, names: NameBook) -> None:
        self._core = core
        self._names = names
        self._suspects: dict[str, Record] = {}
        self.dead: dict[str, Record] = {}
        self.to_probe: list[Record] = []
        self.returned: list[Record] = []
        self.unknown: list[tuple[str, str]] = []
        self.contradicted: list[str] = []

    def hear(self, claim: Claim, sender: str, incarnation: int, kind: Kind) -> None:
        """What `sender`, which is at `incarnation`, claims in a message of this kind."""
        if claim.node_id == self._core.me.node_id:
            self._hear_of_me(claim, sender)
            return
        own_word = claim.node_id == sender
        if own_word and claim.state in ("suspect", "dead"):
            self._core.note(sender, "forged", f"says of itself that it is {claim.state}")
            return
        if own_word and claim.incarnation > incarnation:
            self._core.note(sender, "forged", "says of itself that it is ahead of itself")
            return
        record = self._core.table.get(claim.node_id)
        if record is None:
            self._introduce(claim, sender, kind)
            return
        if claim.incarnation == record.incarnation:
            self._complete(record, claim)
            if kind == Kind.COMPARE and record.is_present and record.address_at < record.incarnation:
                # A question may be lost, or too many at a time; who compares may know the answer.
                self.unknown.append((sender, record.node_id))
            if claim.state == "suspect" and record.state == "suspect":
                self._confirm(record, self._witness(claim, sender))
                return
        if not beats(claim.state, claim.incarnation, record.state, record.incarnation):
            return
        if self._is_credible(record, claim, sender):
            self._take(record, claim, sender)

    def contact(self, sender: str, incarnation: int, life: int) -> None:
        """A message of `sender` stated its incarnation and life. Who is behind is told what we hold of it, who is ahead
        is asked; call it after the message's own claims were heard."""
        record = self._core.table.get(sender)
        if record is None or incarnation > record.incarnation:
            self.unknown.append((sender, sender))
            return
        if record.is_present and record.address_at < record.incarnation:
            self.unknown.append((sender, sender))
        is_behind = incarnation < record.incarnation or life != record.life
        if (is_behind or record.state != "alive") and self._core.may_tell(record):
            self._core.send(sender, Kind.NEWS, claims=(record.claim(),))

    def probe_failed(self, record: Record, incarnation: int, begun: float) -> None:
        """Our own probe, begun at that time and with the member at `incarnation`, has failed in every way there is."""
        if not record.is_present or record.incarnation != incarnation:
            return
        me = self._core.me.node_id
        if record.verdict is not None and record.heard_at <= begun:
            reason = f"said to be {record.verdict}, and did not answer us either"
            self._adopt(record, record.claim(), record.verdict, reason, me)
        elif record.state == "alive":
            self._doubt(record, record.claim(), me, "did not answer us")
        else:
            self._confirm(record, me)

    def goodbye(self, record: Record) -> None:
        """The member itself has said that it leaves."""
        if record.state != "left":
            self._adopt(record, record.claim(), "left", "said goodbye", None)

    def heard(self, sender: str) -> None:
        """Something came from `sender` itself."""
        record = self._core.table.get(sender)
        if record is not None:
            record.heard_at = self._core.now

    def move(self, address: bytes) -> None:
        """Our own address is another: news that needs an incarnation of its own to be believed."""
        self._say_of_me(incarnation=self._core.me.incarnation + 1, address=address)

    def leave(self) -> None:
        """Tell all members ourselves that we leave, and those who died lately, who may have been only out of reach. Who
        does not hear it, hears of it."""
        me = self._core.me
        lately = self._core.now - _LATELY_S
        told = [*self._core.table.present, *(dead for dead in self.dead.values() if dead.since >= lately)]
        before = self._view(me)
        me.state, me.reason, me.since = "left", "said goodbye", self._core.now
        self._changed(before, me)
        for record in told:
            self._core.send(record.node_id, Kind.NEWS, claims=(me.claim(),), reliable=True)

    def next_end(self) -> float:
        """When the next suspect's time is up."""
        if not self._suspects:
            return math.inf
        return min(_ends(record) for record in self._suspects.values())

    def end_suspicions(self) -> None:
        """Those who have not contradicted in time are dead."""
        now = self._core.now
        for record in [record for record in self._suspects.values() if _ends(record) <= now]:
            silent_s = now - record.heard_at
            is_silent = silent_s >= self._core.config.suspicion_s[0]
            reason = f"not heard from for {silent_s:.1f} s" if is_silent else "speaks, but does not hear us"
            self._adopt(record, record.claim(), "dead", reason, self._core.me.node_id)

    def shift(self, delay_s: float) -> None:
        """We were not there for so long: suspects get that time on top."""
        for record in self._suspects.values():
            if record.suspicion is not None:
                record.suspicion.shift(delay_s)

    def forget_old(self) -> None:
        """Drop those who have been dead or gone for longer than these are remembered."""
        before = self._core.now - self._core.config.dead_memory_s
        for record in [record for record in self._core.table if not record.is_present and record.since < before]:
            self._forget(record)

    # ---- about others

    def _introduce(self, claim: Claim, sender: str, kind: Kind) -> None:
        """A comparison must not bring up the dead whom we have forgotten; what a seed tells has gone around already."""
        present = claim.state in ("alive", "suspect")
        if not present and kind == Kind.COMPARE:
            return
        if present and claim.address is None:
            self.unknown.append((sender, claim.node_id))
            return
        refusal = self._core.config.admit(claim.node_id, claim.stage_index)
        if refusal is not None:
            self._core.note(sender, "admission", f"says there is a member {claim.node_id[:8]}: {refusal}")
            return
        if claim.incarnation > MAX_JUMP and claim.node_id != sender:
            self._core.note(sender, "jump", f"says that {claim.node_id[:8]} is at incarnation {claim.incarnation}")
            return
        if not self.make_room():
            self._core.note(sender, "full", f"there are {self._core.config.max_members} members already")
            return
        state: MemberState = "alive" if present else claim.state
        record = Record(claim._replace(state=state), self._core.now, self._new_round_trip())
        self._core.table.add(record)
        if state == "dead":
            self._mark_dead(record)
        if kind != Kind.WELCOME:
            self._core.spread(record)
        self._changed(None, record)
        if claim.state == "suspect":
            self._doubt(record, claim, self._witness(claim, sender) or sender, "doubted by others")

    def make_room(self) -> bool:
        """Whether one more member can be known, at the price of the one that is gone for longest."""
        table = self._core.table
        if len(table) < self._core.config.max_members:
            return True
        gone = min((record for record in table if not record.is_present), key=lambda gone: gone.since, default=None)
        if gone is None:
            return False
        self._forget(gone)
        return True

    def _is_credible(self, record: Record, claim: Claim, sender: str) -> bool:
        if claim.node_id == sender:
            refusal = self._core.config.admit(claim.node_id, claim.stage_index)
            if refusal is not None:
                self._core.note_refused(sender, refusal)
            return refusal is None
        if claim.incarnation > record.incarnation + MAX_JUMP:
            self._core.note(sender, "jump", f"says that {claim.node_id[:8]} is at incarnation {claim.incarnation}")
            return False
        if claim.stage_index != record.stage_index:
            self._core.note(sender, "forged", f"says that {claim.node_id[:8]} is another stage than it is")
            return False
        return True

    def _take(self, record: Record, claim: Claim, sender: str) -> None:
        accuser = self._witness(claim, sender) or sender
        match claim.state:
            case "alive":
                self._adopt(record, claim, "alive", "", None)
            case "suspect":
                self._doubt(record, claim, accuser, "doubted by others")
            case "left" if claim.node_id == sender:
                self._adopt(record, claim, "left", "said goodbye", None)
            case "dead" | "left":
                self._hear_of_death(record, claim, accuser)
        if record.is_present and record.address_at < record.incarnation:
            self.unknown.append((sender, record.node_id))

    def _hear_of_death(self, record: Record, claim: Claim, accuser: str) -> None:
        if not record.is_present or (record.state == "suspect" and self._is_silent(record)):
            reason = "said goodbye to others" if claim.state == "left" else "declared dead by others"
            self._adopt(record, claim, claim.state, reason, accuser)
            return
        if record.state == "alive" or claim.incarnation > record.incarnation:
            self._doubt(record, claim, accuser, f"said to be {claim.state}")
        else:
            self._confirm(record, accuser)
        record.verdict = claim.state
        self.to_probe.append(record)

    def _is_silent(self, record: Record) -> bool:
        """Whether we have heard as little of a suspect as an honest accuser must have before it declares a death."""
        config = self._core.config
        return self._core.now - record.heard_at >= config.probe_timeout_s[0] + config.suspicion_s[0]

    def _doubt(self, record: Record, claim: Claim, accuser: str, reason: str) -> None:
        core = self._core
        size = core.table.size + (0 if record.is_present else 1)
        factor = size_factor(size)
        floor, ceiling = core.config.suspicion_s
        trips_s = core.config.suspicion_round_trips * record.round_trip.usual_s()
        least = max(floor * factor, min(trips_s, ceiling * factor))
        record.suspicion = Suspicion(
            accuser,
            core.now,
            needed=confirmations_needed(core.config.confirmations, size),
            least_s=least,
            most_s=ceiling * factor,
        )
        record.verdict = None
        self._suspects[record.node_id] = record
        self._adopt(record, claim, "suspect", reason, accuser)
        if accuser == core.me.node_id:
            core.send(record.node_id, Kind.NEWS, claims=(record.claim(),), reliable=True)
        elif core.rng.random() * max(size - 2, 1) < core.config.verifiers:
            self.to_probe.append(record)

    def _confirm(self, record: Record, witness: str | None) -> None:
        if record.suspicion is not None and witness is not None and record.suspicion.confirm(witness):
            record.accuser = witness
            self._core.spread(record, witness)

    def _witness(self, claim: Claim, sender: str) -> str | None:
        """Whose doubt it is: the sender's, or that of the present member it names. Anybody else's counts for nothing,
        and so does our own that comes back to us."""
        if claim.accuser is None or claim.accuser == sender:
            return sender
        witness = self._core.table.get(claim.accuser)
        if witness is None or not witness.is_present or witness in (self._core.me, self._core.table.get(claim.node_id)):
            return None
        return claim.accuser

    def _complete(self, record: Record, claim: Claim) -> None:
        """The address that was missing for this incarnation."""
        if claim.address is None or record.address_at >= record.incarnation or claim.life != record.life:
            return
        before = self._view(record)
        record.address, record.address_at = claim.address, claim.incarnation
        self._core.emit(MemberChanged(before, self._view(record)))

    def _adopt(self, record: Record, claim: Claim, state: MemberState, reason: str, accuser: str | None) -> None:
        core = self._core
        before = self._view(record)
        freed: list[NameChanged] = []
        if claim.life != record.life:
            freed = self._names.forget_owner(record.node_id)
            record.round_trip = self._new_round_trip()
        if state != record.state:
            record.since = core.now
        record.state, record.incarnation, record.life = state, claim.incarnation, claim.life
        record.stage_index, record.reason, record.accuser = claim.stage_index, reason, accuser
        if claim.address is not None:
            record.address, record.address_at = claim.address, claim.incarnation
        if state != "suspect":
            record.suspicion = record.verdict = None
            self._suspects.pop(record.node_id, None)
        self.dead.pop(record.node_id, None)
        if state == "dead":
            self._mark_dead(record)
        if record.is_present and not before.is_present:
            core.table.enter(record)
            record.heard_at = core.now
        elif before.is_present and not record.is_present:
            core.table.depart(record)
        if state == "alive" and (not before.is_present or claim.life != before.life):
            self.returned.append(record)
        core.spread(record)
        self._changed(before, record, freed)

    def _mark_dead(self, record: Record) -> None:
        record.revive_at = self._core.now + self._core.config.revive_interval_s
        self.dead[record.node_id] = record

    def _forget(self, record: Record) -> None:
        self.dead.pop(record.node_id, None)
        self._core.news.drop(record.node_id)
        self._names.forget_owner(record.node_id)
        self._core.table.forget(record)

    # ---- about oneself

    def _hear_of_me(self, claim: Claim, sender: str) -> None:
        me = self._core.me
        if claim.incarnation < me.incarnation:
            return
        is_so = claim.state == "alive" and claim.life == me.life
        if claim.incarnation == me.incarnation and is_so:
            return
        if claim.incarnation > me.incarnation + MAX_JUMP:
            self._core.note(sender, "jump", f"says that we are at incarnation {claim.incarnation}")
            return
        if claim.state != "alive" and claim.life == me.life:
            self._core.awareness.change(1)
        self._say_of_me(incarnation=claim.incarnation + 1, address=me.address)
        self.contradicted.append(sender)

    def _say_of_me(self, *, incarnation: int, address: bytes) -> None:
        me = self._core.me
        before = self._view(me)
        me.incarnation = me.address_at = incarnation
        me.address = address
        self._core.spread(me)
        self._core.emit(MemberChanged(before, self._view(me)))

    # ---- telling

    def _changed(self, before: MemberView | None, record: Record, freed: Sequence[NameChanged] = ()) -> None:
        changes = [*freed, *self._names.refresh(record.node_id)]
        self._core.emit(MemberChanged(before, self._view(record)))
        for change in changes:
            self._core.emit(change)

    def _view(self, record: Record) -> MemberView:
        return record.view(self._names.held_by(record.node_id))

    def _new_round_trip(self) -> RoundTrip:
        return RoundTrip(self._core.config.round_trip_guess_s)


def _ends(record: Record) -> float:
    return record.suspicion.ends_for(record.heard_at) if record.suspicion is not None else math.inf
