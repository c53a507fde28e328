"""What every instance cost, from its creation to its end: the emulator's own book, which no client writes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Life:
    """Times are seconds of the service. `ended` None: it lives."""

    instance_id: int
    label: str | None
    price_per_hour: float
    began: float
    ended: float | None = None

    def describe(self) -> str:
        until = "alive" if self.ended is None else f"{self.ended:.1f} s"
        return f"instance {self.instance_id}  {self.label}  {self.began:.1f} s .. {until}"


@dataclass(slots=True)
class Ledger:
    """Billed by the second at the full price, which is a little more than the service takes while an image loads."""

    lives: list[Life] = field(default_factory=list)

    def open(self, life: Life) -> None:
        self.lives.append(life)

    def close(self, instance_id: int, moment: float) -> None:
        for life in self.lives:
            if life.instance_id == instance_id and life.ended is None:
                life.ended = moment

    def alive(self, label_prefix: str = "") -> list[Life]:
        return [x for x in self.lives if x.ended is None and (x.label or "").startswith(label_prefix)]

    def billed(self, begin: float, end: float) -> float:
        """USD between two moments."""
        return sum(
            max(0.0, min(end, end if x.ended is None else x.ended) - max(begin, x.began)) * x.price_per_hour / 3600
            for x in self.lives
        )
