"""Greedy tokens from two implementations, where float32 arithmetic in another order may decide a tie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.equivalence.numpy_model import logits_after

NEAR_TIE = 0.01  # of logits of some 10


def check_same_but_for_ties(model: str, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Equal, or they part where two tokens are almost equally likely and ours is the one of the definition."""
    assert len(ours) == len(theirs)
    parting = next((index for index, (our, their) in enumerate(zip(ours, theirs, strict=True)) if our != their), None)
    if parting is None:
        return
    exact = logits_after(Path(model), [*prompt, *ours[:parting]])
    assert int(np.argmax(exact)) == ours[parting]
    assert exact[ours[parting]] - exact[theirs[parting]] < NEAR_TIE
