from __future__ import annotations

import numpy as np
import pytest
from ppsmoke_worker.sampling import sample

from ppsmoke.errors import WorkerFailed
from ppsmoke.worker_protocol import GREEDY, Sampling

LOGITS = np.log(np.array([0.1, 0.5, 0.15, 0.25], np.float32))


def test_greedy_takes_the_largest_and_the_lower_of_two() -> None:
    assert sample(LOGITS, 0, GREEDY) == 1
    assert sample(np.array([1, 3, 3], np.float32), 0, GREEDY) == 1


def test_draws_follow_the_distribution_at_each_temperature() -> None:
    for temperature in (0.5, 1.0, 2.0):
        drawn = [sample(LOGITS, position, Sampling(temperature, 1.0, 7)) for position in range(4000)]
        expected = np.exp(LOGITS / temperature)
        expected /= expected.sum()
        assert np.bincount(drawn, minlength=4) / 4000 == pytest.approx(expected, abs=0.03)


def test_top_p_keeps_the_fewest_most_likely_tokens_that_reach_it() -> None:
    for top_p, kept in ((1e-9, {1}), (0.5, {1}), (0.51, {1, 3}), (0.75, {1, 3}), (0.8, {1, 2, 3}), (1.0, {0, 1, 2, 3})):
        drawn = {sample(LOGITS, position, Sampling(1.0, top_p, 3)) for position in range(400)}
        assert drawn == kept


def test_seed_and_position_alone_decide() -> None:
    flat = np.zeros(1000, np.float32)
    first = [sample(flat, position, Sampling(1.0, 1.0, 1)) for position in range(20)]
    assert first == [sample(flat, position, Sampling(1.0, 1.0, 1)) for position in range(20)]
    assert first != [sample(flat, position, Sampling(1.0, 1.0, 2)) for position in range(20)]
    assert len(set(first)) > 15


def test_logits_that_are_no_numbers_are_an_error_and_not_a_token() -> None:
    with pytest.raises(WorkerFailed, match="position 3"):
        sample(np.array([0, np.nan], np.float32), 3, GREEDY)
