from __future__ import annotations

from ppsmoke.paths.watch import PathWatch


def test_only_another_way_is_a_change() -> None:
    watch = PathWatch()
    assert watch.saw("a", "relay") is None
    assert watch.saw("b", "direct") is None
    assert watch.saw("a", "relay") is None
    assert watch.saw("a", "direct") == "relay"
    assert watch.saw("a", "direct") is None
    assert watch.saw("b", "relay") == "direct"
