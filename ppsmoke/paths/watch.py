"""Which way each link goes, as polled, and when that changes. Pure."""

from __future__ import annotations

from typing import Literal

PathKind = Literal["direct", "relay"]


class PathWatch:
    """A link that is down, or one whose way is not known just now, has changed nothing: what its successor takes is
    compared with what it took."""

    def __init__(self) -> None:
        self._kinds: dict[str, PathKind] = {}

    def saw(self, peer: str, kind: PathKind) -> PathKind | None:
        """The way that the link to `peer` took before, if it was another one."""
        before = self._kinds.get(peer)
        self._kinds[peer] = kind
        return before if before != kind else None
