"""The walk on every backend: the path that the host's selector takes, and the rows that verify it."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CHIPS
from lucebox._core import testing

DEVICES = ["cpu", *(f"emulated:{chip}" for chip in CHIPS)]
BLOCKS = [(8, 8)], [(2, 2), (16, 9)], [(5, 2), (16, 16), (3, 3), (8, 4), (2, 2)]


def lattice(seed: int, blocks: list[tuple[int, int]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidates and edges as a draft leaves them: what lies behind k, and other predecessors than the anchor, is no number."""
    random = np.random.RandomState(seed)
    rows = sum(r - 1 for r, _ in blocks)
    candidates = np.full((rows, 16), -1, np.int32)
    candidates[:, :k] = random.randint(0, 1000, (rows, k))
    edges = np.full((rows, 16, 16), np.nan, np.float32)
    edges[:, :k, :k] = random.randint(-3, 4, (rows, k, k))  # with ties
    edges[edges == 0] *= random.choice([-1, 1])
    for first in np.cumsum([0] + [r - 1 for r, _ in blocks])[:-1]:
        edges[first, 1:] = np.nan
    return candidates, edges


def expected(
    candidates: np.ndarray, edges: np.ndarray, blocks: list[tuple[int, int]], k: int
) -> tuple[list[int], list[int]]:
    path, tokens, at = [], [], 0
    for rows, verified in blocks:
        end = at + rows - 1
        ids = testing.select(candidates[at:end], edges[at:end], k)[0]
        path += ids + [-1] * (rows - 1 - len(ids))
        tokens += [-7] + [ids[r] if r < len(ids) else 0 for r in range(verified - 1)]  # the anchor is left as it was
        at = end
    return path, tokens


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("blocks", BLOCKS, ids=len)
@pytest.mark.parametrize("k", [1, 5, 16])
def test_walk(device: str, blocks: list[tuple[int, int]], k: int) -> None:
    candidates, edges = lattice(k, blocks, k)
    path, tokens = testing.walk(candidates, edges, k, blocks, device=device)
    assert (path.tolist(), tokens.tolist()) == expected(candidates, edges, blocks, k)


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_that_is_no_number_ends_its_block_alone(device: str) -> None:
    blocks, k = [(6, 6), (5, 3), (7, 7)], 16
    for spoil in ("nan", "inf", "-inf", "candidate"):
        candidates, edges = lattice(3, blocks, k)
        if spoil == "candidate":
            candidates[2, 11] = -1
        else:
            edges[2, 15, 4] = float(spoil)  # seen by no path, but the row is not to be trusted
        edges[9, 0, 0] = np.nan  # the last block's first row
        path, tokens = testing.walk(candidates, edges, k, blocks, device=device)
        assert (path.tolist(), tokens.tolist()) == expected(candidates, edges, blocks, k)
        assert path[:5].tolist()[2:] == [-1] * 3 and path[9:].tolist() == [-1] * 6 and -1 not in path[5:9]
