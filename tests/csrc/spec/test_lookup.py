"""History lookup against the plain rule: the longest suffix that occurred before, of equal ones the latest."""

from __future__ import annotations

import numpy as np
import pytest
from lucebox._core import testing


def plainly(ids: list[int]) -> tuple[int, list[int]]:
    best = (0, [])
    for end in range(len(ids) - 1, 2, -1):
        length = 0
        while length < 32 and length < end and ids[end - 1 - length] == ids[-1 - length]:
            length += 1
        if length >= 3 and length > best[0]:
            best = (length, ids[end:])
    return best


@pytest.mark.parametrize("seed", range(60))
def test_against_the_rule(seed: int) -> None:
    random = np.random.RandomState(seed)
    ids = random.randint(0, 2 + seed % 7, int(random.randint(0, 120))).tolist()
    assert testing.look_up(ids) == plainly(ids)


def test_self_overlap() -> None:
    """aaaa: the latest occurrence ends one token earlier, so that its continuation is one token."""
    assert testing.look_up([7] * 10) == (9, [7])
    assert testing.look_up([1, 2, 3] * 4)[1][:3] == [1, 2, 3]


def test_nothing_to_find() -> None:
    for ids in ([], [1], [1, 2], [1, 2, 3], [1, 2, 3, 9, 1, 2]):
        assert testing.look_up(ids) == (0, [])


def test_long_texts_are_searched_in_bounded_time() -> None:
    """A hundred thousand equal tokens: the latest occurrences alone are compared."""
    length, continuation = testing.look_up([5] * 100_000)
    assert length == 32 and continuation == [5]
