"""Of very many lines some are left out, evenly, the same ones at every stage: a long run makes no long file."""

from __future__ import annotations

from ppsmoke.bundle.thinning import WINDOW, Thinning

REQUEST = "ab" * 16


def kept(thinning: Thinning, count: int, request: str = REQUEST) -> list[int]:
    return [number for number in range(count) if thinning.keeps(request, number)]


def test_the_first_ones_are_all_kept() -> None:
    thinning = Thinning(1000)
    assert kept(thinning, 1000) == list(range(1000))
    assert thinning.left_out == 0


def test_a_thousand_times_as_many_make_some_ten_times_the_lines() -> None:
    thinning = Thinning(10 * WINDOW)
    count = 10_000 * WINDOW
    numbers = kept(thinning, count)
    assert len(numbers) <= 12 * 10 * WINDOW
    assert thinning.left_out == count - len(numbers)
    assert numbers[-1] > count * 3 / 4, "also of the last part"


def test_neighbours_stay_together() -> None:
    numbers = kept(Thinning(WINDOW), 100 * WINDOW)
    windows = {number // WINDOW for number in numbers}
    assert len(numbers) == len(windows) * WINDOW


def test_many_short_answers_are_thinned_too_and_by_name_and_number_alone() -> None:
    one, other = Thinning(500), Thinning(500)
    requests = [f"{number:032x}" for number in range(5000)]
    of_one = [(request, number) for request in requests for number in kept(one, 3, request)]
    of_other = [(request, number) for request in requests for number in kept(other, 3, request)]
    assert of_one == of_other
    assert 500 < len(of_one) < 5000
