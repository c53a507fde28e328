"""What is said to the user about instances that could not be verified as destroyed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ppsmoke.errors import LeasesLeft
from ppsmoke.vast.lease_records import BookState
from ppsmoke.vast.place import teardown_words
from ppsmoke.wording import counted


@dataclass(frozen=True, slots=True)
class Unverified:
    """An instance that may still be there; without an id, a create whose answer was lost and that no listing showed."""

    label: str
    instance_id: int | None
    price_per_hour: float
    reason: str

    def describe(self, url: str) -> str:
        """One line: id, price, reason and the command that destroys it. `url`: where it was rented."""
        name = f"instance {self.instance_id}" if self.instance_id is not None else f"an instance labelled {self.label}"
        price = f"{self.price_per_hour:.3f} USD an hour"
        command = f"{teardown_words(url)} --label {self.label} --yes"
        return f"{name} may still be there, at {price} ({self.reason}); to destroy it: {command}"


def unverified(state: BookState) -> tuple[Unverified, ...]:
    """Of a book that is done."""
    return tuple(
        Unverified(lease.label, instance_id, lease.candidate.price_per_hour, lease.reason)
        for lease in state.unverified
        for instance_id in (lease.ids or (None,))
    )


def leases_left(left: Sequence[Unverified], *, url: str) -> LeasesLeft:
    """The error of a run that ends with these, rented at `url`; exit status 4."""
    lines = "; ".join(item.describe(url) for item in left)
    return LeasesLeft(
        f"{counted(len(left), 'rented instance')} could not be verified as destroyed: {lines}",
        remedy="Run the commands above, or destroy them on the instances page of vast.ai; they cost money until then.",
        phase="teardown",
    )
