"""RMS norm and the int8 rows that every matmul reads."""

from __future__ import annotations

import numpy as np
import pytest
from cases import FAST, VARIANTS, assert_same, quantized
from lucebox._core import testing

WIDTHS = [32, 96, 256, 512, 992, 1024, 1280, 5120, 6144, 16384]
# What a row may hold: values around 1, tiny, subnormal and huge ones, zeros, and what breaks a group.
SCALES = [1.0, 1e-12, 1e-33, 1e-42, 1e30, 0.0]


def rows(width: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (len(SCALES) + 3, width))
    x[: len(SCALES)] *= np.array(SCALES)[:, None]
    x[-3, width // 2] = np.nan
    x[-2, 1] = np.inf
    x[-1, -1] = -np.inf
    return x.astype(np.float32)


@pytest.mark.parametrize("width", WIDTHS)
def test_norm(width):
    x, w = rows(width, 1), np.random.default_rng(2).normal(1, 0.1, width).astype(np.float32)
    y, q, d, sums = testing.norm(x, w, 1e-6, variant="portable")
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-6))) * w
    regular = [i for i, s in enumerate(SCALES) if 1e-20 < s < 1e10]
    np.testing.assert_allclose(y[regular], want[regular], rtol=2e-6)
    assert_same((q, d, sums), quantized(y))
    for variant in FAST:
        for threads in (1, 2):
            assert_same(testing.norm(x, w, 1e-6, variant=variant, threads=threads), (y, q, d, sums))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_quantize(width, variant):
    x = np.concatenate([rows(width, seed) for seed in range(3)])
    got = testing.quantize_rows(x, variant=variant)
    assert_same(got[1:], quantized(x))
    assert (np.abs(got[1]) <= 127).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiny_groups_are_zeros(variant):
    """Both sides of 2^-100: below it a scale would be too coarse for its quants."""
    limit = np.float32(2.0**-100)
    x = np.full((2, 32), limit, np.float32)
    x[0] = np.nextafter(limit, np.float32(0))
    _, q, d, _ = testing.quantize_rows(x, variant=variant)
    assert (q[0] == 0).all() and d[0, 0] == 0
    assert (q[1] == 127).all() and d[1, 0] > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_ties_round_to_even(variant):
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127, 0.5, 1.5, 2.5, -0.5, -1.5]
    assert testing.quantize_rows(x, variant=variant)[1][0, :6].tolist() == [127, 0, 2, 2, 0, -2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_select(variant):
    x, w = np.random.default_rng(3).normal(0, 1, (9, 512)).astype(np.float32), np.ones(512, np.float32)
    all_rows = testing.norm(x, w, 1e-6, variant=variant)
    chosen = testing.norm(x, w, 1e-6, select=[7, 0, 3], variant=variant)
    assert_same(chosen, tuple(part[[7, 0, 3]] for part in all_rows))
