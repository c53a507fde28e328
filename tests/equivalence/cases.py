"""What is asked of every form of a model that is compared here."""

from __future__ import annotations

from dataclasses import dataclass

from ppsmoke.worker_protocol import GREEDY, Sampling

CONTEXT = 512


@dataclass(frozen=True)
class Case:
    """A prompt, how to cut it (lengths of the parts; () is one piece), and the sampling. With a `continuation` its
    tokens are fed after the prompt instead of the chosen ones."""

    prompt: tuple[int, ...]
    parts: tuple[int, ...] = ()
    sampling: Sampling = GREEDY
    count: int = 48
    continuation: tuple[int, ...] = ()

    def pieces(self) -> list[tuple[int, ...]]:
        pieces, first = [], 0
        for length in self.parts:
            pieces.append(self.prompt[first : first + length])
            first += length
        return [piece for piece in (*pieces, self.prompt[first:]) if piece]


def varied_prompts(vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Six shapes, in tokens that every vocabulary has."""

    def spread(count: int, stride: int) -> tuple[int, ...]:
        return tuple(10 + (index * stride) % (vocab_size - 10) for index in range(count))

    return {
        "one token": (17,),
        "short": spread(5, 7),
        "one less than a pass": spread(31, 11),
        "exactly a pass": spread(32, 13),
        "repeated": (20, 21, 22) * 15,
        "over an attention step": spread(141, 17),
    }
