"""The path through the candidates, against every path tried."""

from __future__ import annotations

import numpy as np
import pytest
from lucebox._core import testing
from lucebox.errors import RequestError
from reference import dflash


def lattice(seed: int, rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    candidates = np.full((rows, 16), -1, np.int32)
    candidates[:, :k] = [random.permutation(200)[:k] for _ in range(rows)]
    edges = np.full((rows, 16, 16), np.nan, np.float32)
    edges[0, :1, :k] = random.normal(0, 2, (1, k))
    edges[1:, :k, :k] = random.normal(0, 2, (rows - 1, k, k))
    return candidates, edges


def path_edges(edges: np.ndarray, k: int) -> list[np.ndarray]:
    return [e[: 1 if i == 0 else k, :k].astype(np.float64) for i, e in enumerate(edges)]


@pytest.mark.parametrize("seed", range(40))
def test_searches_equal_every_path_tried(seed: int) -> None:
    rows, k = 1 + seed % 5, 2 + seed % 3
    candidates, edges = lattice(seed, rows, k)
    for selector, reach in (("best-first", False), ("reach", True)):
        ids, confidence, _ = testing.select(candidates, edges, k, selector)
        path = dflash.best_path(path_edges(edges, k), reach)
        assert ids == [candidates[i, b] for i, b in enumerate(path)]
        before = 0
        for e, b, c in zip(path_edges(edges, k), path, confidence, strict=True):
            assert abs(dflash.softmax(e[before])[b] - c) < 1e-6
            before = b


@pytest.mark.parametrize("seed", range(20))
def test_the_walk_takes_the_best_edge(seed: int) -> None:
    candidates, edges = lattice(seed, 7, 16)
    ids, _, _ = testing.select(candidates, edges, 16)
    before = 0
    for row, id in enumerate(ids):
        before = int(np.argmax(edges[row, before]))
        assert id == candidates[row, before]


def test_ties_go_to_the_lower_candidate() -> None:
    candidates, edges = lattice(0, 4, 16)
    edges[:] = 1.0
    for selector in ("walk", "best-first", "reach"):
        assert testing.select(candidates, edges, 16, selector)[0] == candidates[:, 0].tolist()


def test_rows_that_are_no_numbers_end_the_path() -> None:
    candidates, edges = lattice(1, 6, 16)
    edges[3, 2, 5] = np.nan
    for selector in ("walk", "best-first", "reach"):
        assert len(testing.select(candidates, edges, 16, selector)[0]) == 3
    candidates[0] = -1
    assert testing.select(candidates, edges, 16)[0] == []


def test_draws_follow_their_distribution() -> None:
    candidates, edges = lattice(2, 2, 4)
    counts = np.zeros((4, 4))
    for position in range(0, 20000, 2):
        ids, _, q = testing.select(candidates, edges, 4, temperature=0.7, seed=9, position=position)
        first = candidates[0, :4].tolist().index(ids[0])
        counts[first, candidates[1, :4].tolist().index(ids[1])] += 1
        assert q[0][0] == candidates[0, :4].tolist()
    e = path_edges(edges, 4)
    expected = dflash.softmax(e[0][0] / 0.7)[:, None] * dflash.softmax(e[1] / 0.7)
    assert np.abs(counts / counts.sum() - expected).max() < 0.02


def test_unknown_selector() -> None:
    candidates, edges = lattice(0, 2, 4)
    with pytest.raises(RequestError, match="walk, best-first or reach"):
        testing.select(candidates, edges, 4, "greedy")
