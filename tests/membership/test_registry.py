from __future__ import annotations

from dataclasses import replace

import pytest

from ppsmoke.membership import ENTRY_NAME, EXIT_NAME, ORCHESTRATOR_NAME, Member, stage_name
from ppsmoke.membership.registry import Registry, RegistryRefusal
from ppsmoke.membership.view import View

SEED, A, B, C = ("0" * 64, "a" * 64, "b" * 64, "c" * 64)


def registry(**options: object) -> Registry:
    own = Member(SEED, "alive", "seed ticket", None, frozenset({ORCHESTRATOR_NAME}))
    return Registry(own, **options)  # type: ignore[arg-type]


def test_a_join_and_a_name_are_in_the_table_and_each_change_has_a_version() -> None:
    book = registry()
    first = book.table().version
    ((old, new),) = book.join(A, "ticket a", 0)
    assert (old, new) == (None, Member(A, "alive", "ticket a", 0))
    book.register(A, stage_name(0))
    assert book.table().version == first + 2
    assert book.holder(stage_name(0)) == Member(A, "alive", "ticket a", 0, frozenset({stage_name(0)}))
    assert {member.node_id for member in book.table().members} == {SEED, A}


def test_what_is_already_so_is_no_change() -> None:
    book = registry()
    book.join(A, "ticket a", 0)
    book.register(A, ENTRY_NAME)
    version = book.table().version
    assert book.join(A, "ticket a", 0) == []
    assert book.register(A, ENTRY_NAME) == []
    assert book.dead(B, "never heard of") == []
    assert book.table().version == version


def test_a_name_of_another_alive_member_is_refused_until_that_one_is_gone() -> None:
    book = registry()
    book.join(A, "ticket a", 1)
    book.join(B, "ticket b", 1)
    book.register(A, stage_name(1))
    with pytest.raises(RegistryRefusal, match="pp-stage-1 is held by stage 1"):
        book.register(B, stage_name(1))
    ((_, gone),) = book.dead(A, "silent for 10.0 s")
    assert (gone.state, gone.names, gone.reason) == ("dead", frozenset(), "silent for 10.0 s")
    book.register(B, stage_name(1))
    holder = book.holder(stage_name(1))
    assert holder is not None
    assert holder.node_id == B


@pytest.mark.parametrize(
    ("index", "name", "why"),
    [
        (0, stage_name(1), "pp-stage-1 is not for stage 0"),
        (1, ENTRY_NAME, "pp-entry is for stage 0, not stage 1"),
        (0, "something-else", "something-else is no name of this run"),
        (None, EXIT_NAME, "pp-exit is for stages"),
        (0, ORCHESTRATOR_NAME, "pp-orchestrator is held by the orchestrator"),
    ],
)
def test_a_name_goes_only_to_whom_it_belongs(index: int | None, name: str, why: str) -> None:
    book = registry()
    book.join(A, "ticket a", index)
    with pytest.raises(RegistryRefusal, match=why):
        book.register(A, name)


def test_who_has_not_joined_or_is_gone_gets_no_name() -> None:
    book = registry()
    with pytest.raises(RegistryRefusal, match="join first"):
        book.register(A, stage_name(0))
    book.join(A, "ticket a", 0)
    book.leave(A, "stopped")
    with pytest.raises(RegistryRefusal, match="join first"):
        book.register(A, stage_name(0))


def test_the_plan_says_which_stage_a_node_is() -> None:
    book = registry(planned={A: 0, B: 1})
    book.join(A, "ticket a", 0)
    with pytest.raises(RegistryRefusal, match="the plan has this node as stage 1, not 0"):
        book.join(B, "ticket b", 0)


def test_the_seed_s_own_record_cannot_be_taken_or_killed() -> None:
    book = registry()
    with pytest.raises(RegistryRefusal, match="the seed's own id"):
        book.join(SEED, "other ticket", 0)
    assert book.dead(SEED, "no") == []


def test_a_member_that_comes_back_is_alive_again_without_its_names() -> None:
    book = registry()
    book.join(A, "ticket a", 0)
    book.register(A, ENTRY_NAME)
    book.dead(A, "silent")
    ((old, new),) = book.join(A, "another ticket", 0)
    assert old is not None
    assert (old.state, new.state, new.names, new.ticket) == ("dead", "alive", frozenset(), "another ticket")


def test_a_view_takes_newer_tables_only_and_says_what_changed() -> None:
    book = registry()
    view = View(Member(A, "alive", "ticket a", 0))
    book.join(A, "ticket a", 0)
    book.join(B, "ticket b", 1)
    older = book.table()
    book.register(B, stage_name(1))
    newer = book.table()
    changes = view.apply(newer)
    assert {new.node_id for _, new in changes} == {SEED, B}
    assert view.apply(older) == []
    assert view.apply(newer) == []
    holder = view.holder(stage_name(1))
    assert holder is not None
    assert holder.node_id == B


def test_a_view_that_lost_its_seed_says_so_once() -> None:
    book = registry()
    view = View(Member(A, "alive", "ticket a", 0))
    view.apply(book.table())
    ((old, new),) = view.gone(SEED, "dead", "silent for 10.0 s")
    assert old is not None
    assert new == replace(old, state="dead", reason="silent for 10.0 s", names=frozenset())
    assert view.gone(SEED, "dead", "again") == []
    assert view.holder(ORCHESTRATOR_NAME) is None
