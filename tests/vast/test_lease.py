"""The lease book's machine, one promise at a time. Whole runs at random are in test_lease_schedules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.errors import CreateFailed, NotEnoughDisk, RunFailed, TooFewOffers, VastUnavailable
from ppsmoke.vast.lease import next_wakeup, step
from ppsmoke.vast.lease_events import (
    Acquire,
    Action,
    Create,
    Created,
    CreateRefused,
    CreateUnknown,
    Destroy,
    DestroyAnswered,
    Done,
    Entry,
    Event,
    FindOffer,
    GiveUp,
    Held,
    Hurry,
    Kind,
    List,
    Listed,
    ListFailed,
    LogsSaved,
    Lost,
    NoOffer,
    OfferFound,
    Record,
    Recorded,
    RecordFailed,
    Release,
    Remember,
    ReplaceHost,
    SaveLogs,
    Seen,
    Tick,
    Verdict,
)
from ppsmoke.vast.lease_labels import run_label, stage_label
from ppsmoke.vast.lease_records import BookState, Candidate, LeaseLimits, LeaseTimes, Phase, Standing, spent

RUN_ID = "abcdef012345" + "0" * 20
TIMES = LeaseTimes()
GONE_OFFER = CreateFailed("no_such_ask", outcome="not_created")
NO_CREDIT = CreateFailed("no credit", outcome="not_created", try_another=False, remedy="Add credit.")


class Book:
    """A book of two stages under a hand-driven clock; `did` are the actions of the last event."""

    def __init__(self, stages: int = 2, limits: LeaseLimits | None = None) -> None:
        self.state = BookState((run_label(RUN_ID),), stages, TIMES, limits or LeaseLimits())
        self.now = 0.0
        self.did: tuple[Action, ...] = ()
        self.done: list[Action] = []
        self.hear(Acquire(tuple(candidate(stage) for stage in range(stages))))

    def hear(self, *events: Event, after: float = 0.0) -> tuple[Action, ...]:
        self.now += after
        did: list[Action] = []
        for event in events:
            self.state, actions = step(self.state, event, self.now)
            did += actions
        self.did = tuple(did)
        self.done += did
        return self.did

    def made(self, stage: int, nonce: str = "a") -> None:
        self.hear(Recorded(label(stage, nonce)), Created(label(stage, nonce), number(stage, nonce)), after=1.0)

    def list(self, *rows: Seen, after: float = 10.0) -> tuple[Action, ...]:
        self.hear(Tick(), after=after)
        return self.hear(Listed(rows, self.now), after=1.0)

    def held(self) -> Book:
        for stage in range(self.state.num_stages):
            self.made(stage)
        self.list(*(row(stage, Verdict.READY) for stage in range(self.state.num_stages)))
        assert self.state.phase is Phase.HELD
        return self

    def standing(self, stage: int, nonce: str = "a") -> Standing:
        return next(x.standing for x in self.state.leases if x.label == label(stage, nonce))


def label(stage: int, nonce: str = "a") -> str:
    return stage_label(RUN_ID, stage, nonce)


def number(stage: int, nonce: str = "a") -> int:
    return 100 + 10 * stage + ord(nonce[0]) - ord("a")


def candidate(stage: int, nonce: str = "a") -> Candidate:
    return Candidate(label(stage, nonce), stage, 1000 + number(stage, nonce), 50 + number(stage, nonce), 7, 0.36)


def row(stage: int, verdict: Verdict = Verdict.WAIT, nonce: str = "a", **changes: object) -> Seen:
    seen = Seen(number(stage, nonce), label(stage, nonce), label(stage, nonce), verdict, price_per_hour=0.36)
    return replace(seen, **changes)  # type: ignore[arg-type]


def of(kind: type[Action], actions: tuple[Action, ...] | list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def kinds(actions: tuple[Action, ...] | list[Action]) -> list[Kind]:
    return [action.entry.kind for action in actions if isinstance(action, Record)]


# ---- acquiring


def test_a_create_waits_until_its_intent_is_on_the_disk() -> None:
    book = Book()
    assert [type(x) for x in book.did] == [Record]
    assert book.did[0] == Record(replace(book.did[0].entry, kind=Kind.INTENT, label=label(0)))  # type: ignore[union-attr]
    book.hear(Recorded(label(0)))
    assert of(Create, book.did) == [Create(candidate(0))]


def test_the_second_create_waits_for_the_answer_to_the_first() -> None:
    book = Book()
    book.hear(Recorded(label(0)))
    assert book.hear(Tick(), after=50.0) == ()
    book.hear(Created(label(0), 100))
    assert kinds(book.did) == [Kind.CREATED, Kind.INTENT]


def test_the_chain_is_held_when_every_stage_was_seen_running() -> None:
    book = Book()
    book.made(0)
    book.made(1)
    book.list(row(0, Verdict.READY), row(1))
    assert not of(Held, book.did)
    book.list(row(0), row(1, Verdict.READY))  # stage 0 was ready once: that counts
    assert of(Held, book.did) == [Held((100, 110))]


def test_without_a_journal_nothing_is_rented() -> None:
    book = Book()
    book.hear(RecordFailed(NotEnoughDisk("full")))
    assert of(Done, book.did)
    assert not of(Create, book.done)
    assert isinstance(book.state.error, NotEnoughDisk)


def test_a_journal_that_fails_later_rolls_back_what_was_rented() -> None:
    book = Book()
    book.made(0)
    book.hear(RecordFailed(NotEnoughDisk("full")))
    assert book.state.phase is Phase.RELEASING
    assert of(SaveLogs, book.did) == [SaveLogs(label(0), 0, 100)]
    book.hear(LogsSaved(label(0)))
    assert of(Destroy, book.did) == [Destroy(100)]


def test_an_offer_that_is_gone_is_replaced_by_another() -> None:
    book = Book()
    book.hear(Recorded(label(0)), CreateRefused(label(0), True, GONE_OFFER))
    wish = of(FindOffer, book.did)[0]
    assert wish == FindOffer(0, frozenset({1100, 1110}), frozenset({150, 160}), (7,))
    book.hear(Recorded(label(1)), Created(label(1), 110))
    book.hear(OfferFound(candidate(0, "b")), Recorded(label(0, "b")))
    assert of(Create, book.did) == [Create(candidate(0, "b"))]


def test_offers_that_are_gone_again_and_again_end_the_run() -> None:
    book = Book(stages=1, limits=LeaseLimits(refused=2))
    for nonce in "abc":
        assert book.state.phase is Phase.ACQUIRING
        if nonce != "a":
            book.hear(OfferFound(candidate(0, nonce)))
        book.hear(Recorded(label(0, nonce)), CreateRefused(label(0, nonce), True, GONE_OFFER))
    assert book.state.phase is Phase.RELEASING
    assert "after 3 attempts" in str(book.state.error)


def test_a_refusal_that_every_offer_would_meet_rolls_back_at_once() -> None:
    book = Book()
    book.made(0)
    book.hear(Recorded(label(1)), CreateRefused(label(1), False, NO_CREDIT))
    assert book.state.phase is Phase.RELEASING
    assert book.state.error is NO_CREDIT
    assert not of(FindOffer, book.done)


def test_an_instance_that_a_refused_create_made_is_destroyed() -> None:
    book = Book()
    book.hear(Recorded(label(0)), CreateRefused(label(0), True, GONE_OFFER, instance_id=100))
    assert of(Destroy, book.did) == [Destroy(100)]
    assert of(FindOffer, book.did), "its stage still needs a machine"


def test_a_market_without_another_offer_rolls_back() -> None:
    book = Book()
    book.made(0)
    book.hear(Recorded(label(1)), CreateRefused(label(1), True, GONE_OFFER))
    error = TooFewOffers("0 of 1")
    book.hear(NoOffer(1, error))
    assert (book.state.phase, book.state.error) == (Phase.RELEASING, error)


# ---- a create whose answer was lost


def lost() -> Book:
    book = Book()
    book.hear(Recorded(label(0)), CreateUnknown(label(0), "no answer"), after=1.0)
    return book


def test_a_lost_create_that_is_listed_is_adopted() -> None:
    book = lost()
    book.list(row(0))
    assert book.standing(0) is Standing.MADE
    assert Kind.CREATED in kinds(book.did)
    assert not of(FindOffer, book.done)


def test_a_lost_create_is_found_by_its_environment_when_its_label_was_edited() -> None:
    book = lost()
    book.list(row(0, label="mine now"))
    assert book.standing(0) is Standing.MADE


def test_a_lost_create_counts_as_not_made_after_two_complete_listings() -> None:
    book = lost()
    book.list()
    book.hear(Tick(), after=10.0)
    book.hear(ListFailed("502"))
    assert not of(FindOffer, book.done), "one listing, and one that proves nothing"
    book.list()
    assert of(FindOffer, book.did)


def test_a_listing_that_began_before_the_answer_was_lost_proves_nothing() -> None:
    book = Book()
    book.made(0)
    book.hear(Recorded(label(1)), Tick(), after=10.0)
    began = book.now
    book.hear(CreateUnknown(label(1), "no answer"), after=5.0)
    book.hear(Listed((row(0),), began))
    book.list(row(0))
    assert book.standing(1) is Standing.UNSURE
    book.list(row(0))
    assert of(FindOffer, book.did)


def test_a_lost_create_that_shows_up_late_is_destroyed_and_not_served_twice() -> None:
    book = lost()
    book.list()
    book.list()
    book.hear(OfferFound(candidate(0, "b")))
    book.made(1)
    book.made(0, "b")
    book.list(row(0), row(0, nonce="b"), row(1))
    assert of(Destroy, book.did) == [Destroy(100)]
    assert book.standing(0, "b") is Standing.MADE


def test_a_lost_create_is_no_reason_to_wait_for_ever() -> None:
    book = lost()
    for _ in range(40):
        book.hear(Tick(), after=10.0)
        book.hear(ListFailed("502"))
    assert book.state.phase is Phase.RELEASING
    assert not of(FindOffer, book.done), "another one would be waited for as blindly"


def test_a_release_is_not_over_before_a_lost_create_could_have_shown_up() -> None:
    book = lost()
    lost_at = book.now
    book.hear(Release("Ctrl-C"))
    while not of(Done, book.done):
        assert book.list(after=TIMES.verify) is not None
    assert book.now >= lost_at + TIMES.settle
    assert book.state.unverified == ()


def test_a_lost_create_that_shows_up_during_the_release_is_destroyed() -> None:
    book = lost()
    book.hear(Release("Ctrl-C"))
    book.list(row(0))
    assert of(Destroy, book.did) == [Destroy(100)]


def test_two_instances_of_one_create_are_both_destroyed() -> None:
    book = lost()
    book.list(row(0), row(0, instance_id=999))
    book.hear(LogsSaved(label(0)))
    assert {x.instance_id for x in of(Destroy, book.done)} == {100, 999}  # type: ignore[union-attr]


# ---- hosts that fail


def test_a_failed_host_is_replaced_once_its_end_was_recorded_and_asked_for() -> None:
    book = Book()
    book.made(0)
    book.made(1)
    book.list(row(0), row(1, Verdict.FAILED, reason="no space left on device"))
    assert of(Remember, book.did) == [Remember(160, "no space left on device")]
    assert of(SaveLogs, book.did) == [SaveLogs(label(1), 1, 110)]
    assert not of(FindOffer, book.did)
    book.hear(LogsSaved(label(1)))
    names = [type(x).__name__ for x in book.did]
    assert names == ["Record", "Destroy", "FindOffer"]
    assert kinds(book.did) == [Kind.DESTROY]


def test_logs_that_never_come_hold_up_a_destroy_for_a_minute_at_most() -> None:
    book = Book()
    book.made(0)
    book.list(row(0, Verdict.FAILED, reason="exited"))
    book.hear(Tick(), after=TIMES.logs - 5.0)
    assert not of(Destroy, book.done)
    assert next_wakeup(book.state) is not None
    book.hear(Tick(), after=5.0)
    assert of(Destroy, book.did) == [Destroy(100)]


def test_a_host_that_hangs_is_replaced_after_its_deadline() -> None:
    book = Book(stages=1)
    book.made(0)
    book.list(row(0), after=TIMES.running - 5.0)
    assert book.standing(0) is Standing.MADE
    book.hear(Tick(), after=10.0)
    assert of(Remember, book.did) == [Remember(150, "it was not running after 300 s")]


def test_a_host_that_no_listing_tells_of_is_not_judged_and_not_replaced() -> None:
    book = Book(stages=1)
    book.made(0)
    book.list(row(0))
    while book.state.phase is Phase.ACQUIRING:
        book.hear(Tick(), after=TIMES.poll)
        book.hear(ListFailed("a web page (status 502)"))
        assert book.now < 2 * TIMES.running
    assert not of(FindOffer, book.done)
    assert not of(Remember, book.done), "it is not known to be a bad machine"
    assert isinstance(book.state.error, VastUnavailable)
    assert "a web page (status 502)" in str(book.state.error)


def test_a_host_is_judged_as_soon_as_one_listing_told_of_it() -> None:
    book = Book(stages=1)
    book.made(0)
    for after in (TIMES.running / 2, TIMES.running / 2 - 20.0):
        book.hear(Tick(), after=after)
        book.hear(ListFailed("502"))
    book.list(row(0))
    book.hear(ListFailed("502"), Tick(), after=20.0)
    assert of(Remember, book.did) == [Remember(150, "it was not running after 300 s")]


def test_a_stage_gets_three_replacements_and_no_more() -> None:
    book = Book(stages=1)
    for nonce in "abcd":
        assert book.state.phase is Phase.ACQUIRING
        if nonce != "a":
            book.hear(LogsSaved(label(0, chr(ord(nonce) - 1))), OfferFound(candidate(0, nonce)))
        book.made(0, nonce)
        book.list(row(0, Verdict.FAILED, nonce, reason="OCI runtime create failed"))
    assert book.state.phase is Phase.RELEASING
    assert "OCI runtime create failed" in str(book.state.error)


def test_a_failure_that_every_host_would_have_rolls_back_at_once() -> None:
    book = Book()
    book.made(0)
    book.made(1)
    book.list(row(0, Verdict.FAILED, reason="manifest unknown", fatal=True), row(1))
    assert book.state.phase is Phase.RELEASING
    assert book.state.error is not None
    assert "manifest unknown" in str(book.state.error)
    assert "--image" in (book.state.error.remedy or "")


def test_an_instance_dearer_than_its_offer_is_given_back() -> None:
    book = Book(stages=1)
    book.made(0)
    book.list(row(0, Verdict.READY, price_per_hour=3.6))
    assert "3.600 USD an hour" in of(Remember, book.did)[0].reason  # type: ignore[union-attr]


def test_one_listing_without_an_instance_is_no_loss_three_are() -> None:
    book = Book(stages=1)
    book.made(0)
    book.list(row(0), after=TIMES.settle)
    book.list(after=10.0)
    book.list(after=10.0)
    book.list(row(0), after=10.0)
    for _ in range(2):
        book.list(after=10.0)
    assert book.standing(0) is Standing.MADE
    book.list(after=10.0)
    assert book.standing(0) is Standing.ENDING


def test_an_instance_that_is_not_listed_yet_is_not_lost() -> None:
    book = Book(stages=1)
    book.made(0)
    for _ in range(4):
        book.list()
    assert book.standing(0) is Standing.MADE


def test_while_the_chain_runs_its_owner_decides_about_a_lost_host() -> None:
    book = Book().held()
    book.list(row(0, Verdict.FAILED, reason="offline"), row(1), after=TIMES.held_poll)
    assert of(Lost, book.did) == [Lost(0, "offline")]
    book.list(row(0, Verdict.FAILED, reason="offline"), row(1), after=TIMES.held_poll)
    assert not of(Lost, book.did), "said once"
    assert not of(Destroy, book.done)
    book.hear(ReplaceHost(0, "offline"))
    assert book.state.phase is Phase.ACQUIRING
    book.hear(LogsSaved(label(0)))
    assert of(Destroy, book.did) == [Destroy(100)]


def test_an_adopted_instance_that_is_lost_later_is_reported_too() -> None:
    book = Book(stages=1)
    book.hear(Recorded(label(0)), CreateUnknown(label(0), "no answer"), after=1.0)
    book.list(row(0, Verdict.READY))
    assert of(Held, book.did)
    book.list(row(0, Verdict.FAILED, reason="offline"), after=TIMES.held_poll)
    assert of(Lost, book.did) == [Lost(0, "offline")]


# ---- releasing


def test_a_release_destroys_and_verifies_twice() -> None:
    book = Book().held()
    book.hear(Release("the run is over"))
    assert [x.instance_id for x in of(SaveLogs, book.did)] == [100, 110]  # type: ignore[union-attr]
    book.hear(LogsSaved(label(0)), LogsSaved(label(1)))
    assert of(Destroy, book.did) == [Destroy(100), Destroy(110)]
    book.hear(DestroyAnswered(100, True), DestroyAnswered(110, True))
    book.list()
    assert not of(Done, book.did)
    book.list()
    assert of(Done, book.did)
    assert kinds(book.did) == [Kind.GONE, Kind.GONE, Kind.CLOSED]


def test_a_listing_that_failed_is_not_one_of_the_two() -> None:
    book = released()
    book.list()
    for _ in range(5):
        book.hear(Tick(), after=10.0)
        book.hear(ListFailed("10 rows of 30"))
    assert not of(Done, book.done)
    book.list()
    assert of(Done, book.did)


def test_a_row_that_lingers_begins_the_count_again() -> None:
    book = released()
    book.list()
    book.list(row(0))
    book.list()
    assert not of(Done, book.done)
    book.list()
    assert of(Done, book.did)


def test_a_destroy_that_was_accepted_and_not_done_is_asked_again() -> None:
    book = released()
    book.list(row(0), after=10.0)
    assert not of(Destroy, book.did)
    book.list(row(0), after=TIMES.again)
    assert of(Destroy, book.did) == [Destroy(100)]


def test_a_destroy_that_failed_is_tried_again_and_again() -> None:
    book = Book(stages=1).held()
    book.hear(Release("over"), LogsSaved(label(0)))
    asked = 0
    for _ in range(20):
        asked += len(of(Destroy, book.did))
        book.hear(DestroyAnswered(100, False, "500"))
        wakeup = next_wakeup(book.state)
        assert wakeup is not None
        assert book.now < wakeup <= book.now + TIMES.retry_most
        book.now = wakeup
        book.hear(Tick())
    assert asked == 20
    book.hear(DestroyAnswered(100, True))
    book.list()
    book.list()
    assert book.state.unverified == ()


def test_absence_without_an_accepted_destroy_is_no_proof() -> None:
    book = Book(stages=1).held()
    book.hear(Release("over"), LogsSaved(label(0)), DestroyAnswered(100, False, "500"))
    for _ in range(5):
        book.list()
        book.hear(*(DestroyAnswered(100, False, "500") for _ in of(Destroy, book.did)))
    assert not of(Done, book.done)


def test_a_create_under_way_is_waited_for_and_its_instance_destroyed() -> None:
    book = Book()
    book.hear(Recorded(label(0)), Release("Ctrl-C"))
    assert not of(Done, book.did)
    book.hear(Created(label(0), 100), after=20.0)
    assert of(Destroy, book.did) == [Destroy(100)]
    assert len(of(Create, book.done)) == 1


def test_an_intent_whose_create_was_not_sent_yet_is_crossed_out() -> None:
    book = Book()
    book.hear(Release("Ctrl-C"), Recorded(label(0)))
    assert not of(Create, book.done)
    assert of(Done, book.did)
    assert kinds(book.did)[-1] is Kind.CLOSED


def test_what_carries_the_runs_label_without_being_in_the_book_is_destroyed() -> None:
    book = Book().held()
    book.list(row(0), row(1), Seen(777, stage_label(RUN_ID, 1, "zz")), Seen(778, "someone's"), after=TIMES.held_poll)
    assert of(Destroy, book.did) == [Destroy(777)]


def test_other_runs_and_other_peoples_instances_are_left_alone() -> None:
    book = released()
    others = (
        Seen(1, "notebook"),
        Seen(2, None),
        Seen(3, stage_label("9" * 32, 0, "a")),
        Seen(4, run_label(RUN_ID) + "9"),
    )
    book.list(*others)
    book.list(*others)
    assert of(Done, book.did)
    assert of(Destroy, book.done) == [Destroy(100)]


def test_what_cannot_be_verified_in_time_is_named() -> None:
    book = released()
    for _ in range(200):
        if of(Done, book.done):
            break
        book.list(row(0))
        book.hear(*(DestroyAnswered(100, True) for _ in of(Destroy, book.did)))
    assert book.now <= TIMES.release + 100
    assert [x.ids for x in book.state.unverified] == [(100,)]
    assert Kind.UNVERIFIED in kinds(book.done)
    assert Kind.CLOSED not in kinds(book.done)


def test_a_second_ctrl_c_skips_the_logs_and_shortens_the_wait() -> None:
    book = Book().held()
    book.hear(Release("Ctrl-C"))
    assert not of(Destroy, book.did)
    book.hear(Hurry())
    assert of(Destroy, book.did) == [Destroy(100), Destroy(110)]
    book.hear(Tick(), after=TIMES.hurry)
    assert of(Done, book.did)
    assert len(book.state.unverified) == 2


def test_a_third_ctrl_c_ends_at_once_and_names_everything() -> None:
    book = Book()
    book.hear(Recorded(label(0)), Release("Ctrl-C"), Hurry(), GiveUp("Ctrl-C"))
    assert of(Done, book.did)
    assert [(x.label, x.ids) for x in book.state.unverified] == [(label(0), ())]


def test_a_key_that_is_refused_again_and_again_ends_the_wait() -> None:
    book = Book(stages=1).held()
    book.hear(Release("over"), LogsSaved(label(0)))
    for _ in range(LeaseLimits().refusals):
        assert not of(Done, book.done)
        book.hear(DestroyAnswered(100, False, "Session expired", refused=True))
        book.hear(Tick(), after=TIMES.retry_most)
    assert of(Done, book.done)
    assert "does not accept the key" in book.state.unverified[0].reason


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_spending_is_bounded(scale: float) -> None:
    """`scale`: seconds of ours to one of the service's, which is what it bills."""
    book = Book(limits=LeaseLimits(max_spend=0.05, time_scale=scale)).held()
    held = [lease for lease in book.state.leases if lease.made_at is not None]
    wakeup = next_wakeup(book.state)
    while book.state.phase is Phase.HELD:
        assert wakeup is not None
        book.now = max(book.now, wakeup)
        if of(List, book.hear(Tick())):
            book.hear(Listed((row(0), row(1)), book.now))
        wakeup = next_wakeup(book.state)
    assert spent(book.state, book.now) == pytest.approx(0.05)
    ours = sum((book.now - (lease.made_at or 0.0)) * lease.candidate.price_per_hour for lease in held) / 3600
    assert ours == pytest.approx(0.05 * scale)
    assert "0.05 USD" in str(book.state.error)


def test_nothing_asked_for_is_nothing_to_release() -> None:
    state = BookState((run_label(RUN_ID),), 2, TIMES)
    error = RunFailed("no model")
    state, actions = step(state, Release("no model", error), 0.0)
    assert actions == (Record(Entry(Kind.CLOSED)), Done())
    assert state.error is error


def released() -> Book:
    book = Book(stages=1).held()
    book.hear(Release("over"), LogsSaved(label(0)), DestroyAnswered(100, True))
    assert of(Destroy, book.did)
    return book
