"""From logits to the next token. The same logits, sampling and position give the same token in every split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsmoke.errors import WorkerFailed
from ppsmoke.worker_protocol import Sampling


def sample(logits: NDArray[np.float32], position: int, sampling: Sampling) -> int:
    """Greedy at temperature 0, ties to the lower id; else top-p. `position` is that of the row the logits belong to.

    The random number is a function of (seed, position) alone, so neither the split nor how a prompt was cut matters.
    """
    if not np.isfinite(logits).all():
        raise WorkerFailed(
            f"the logits at position {position} are not finite", remedy="the model file may be damaged; fetch it again"
        )
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    order = np.argsort(-weights, kind="stable")
    cumulative = np.cumsum(weights[order])
    # The smallest set of most likely tokens that reaches top_p, at least one.
    kept = 1 + int(np.searchsorted(cumulative[:-1], sampling.top_p * cumulative[-1], side="left"))
    draw = np.random.Generator(np.random.Philox(key=sampling.seed, counter=position)).random()
    chosen = int(np.searchsorted(cumulative[:kept], draw * cumulative[kept - 1], side="right"))
    return int(order[min(chosen, kept - 1)])
