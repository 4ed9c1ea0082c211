"""Every type against float64, and every variant against the portable one by bits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import (
    FAST,
    FLOAT_TYPES,
    OUTPUTS,
    ROWS,
    TYPES,
    VARIANTS,
    assert_same,
    blocks,
    columns_of,
    quantized,
    scale_places,
)
from lucebox._core import dequantize, testing


def product(name, data, x, **options):
    (y,), _ = testing.matmul([(name, data, len(data))], x, **options)
    return y


def activations(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (rows, columns)).astype(np.float32)


def in_float64(name: str, data: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product with the rows as the kernels see them, and the sum of the terms' sizes, which bounds the error."""
    w = dequantize(name, data.reshape(-1)).reshape(len(data), -1).astype(np.float64)
    if name in FLOAT_TYPES:
        seen = x.astype(np.float64)
    else:
        q, d, _ = quantized(x)
        seen = q.astype(np.float64) * np.repeat(d.astype(np.float64), 32, -1)
    return seen @ w.T, np.abs(seen) @ np.abs(w.T)


@pytest.mark.parametrize("name", TYPES)
def test_against_float64(name):
    for columns in (columns_of(name)[0], columns_of(name)[-1]):
        rng = np.random.default_rng(columns)
        data, x = blocks(name, 33, columns, rng), activations(5, columns, 2)
        want, size = in_float64(name, data, x)
        for variant in VARIANTS:
            assert (np.abs(product(name, data, x, variant=variant) - want) <= 2e-6 * size).all(), (variant, columns)


@pytest.mark.parametrize("name", TYPES)
def test_variants_by_bits(name):
    """All row counts with one shape, all shapes with some row counts."""
    columns = columns_of(name)
    shapes = [(rows, 48, columns[2]) for rows in ROWS] + [
        (rows, n, k) for rows in (1, 3, 9) for n in OUTPUTS for k in columns
    ]
    for rows, n, k in shapes:
        data, x = blocks(name, n, k, np.random.default_rng(n + k)), activations(rows, k, rows)
        want = product(name, data, x, variant="portable")
        for variant in FAST:
            assert_same(product(name, data, x, variant=variant), want)


@pytest.mark.parametrize("name", TYPES)
def test_a_row_does_not_depend_on_the_others(name):
    k = columns_of(name)[3]
    data, x = blocks(name, 40, k, np.random.default_rng(5)), activations(19, k, 6)
    for variant in VARIANTS:
        together = product(name, data, x, variant=variant, threads=2)
        assert_same(np.concatenate([product(name, data, x[r : r + 1], variant=variant) for r in range(19)]), together)


@pytest.mark.parametrize("name", [t for t in TYPES if t not in FLOAT_TYPES])
def test_damaged_weights(name):
    """Any bits: NaN and Inf scales spoil their own outputs and no others."""
    k, rng = columns_of(name)[3], np.random.default_rng(7)
    block, nbytes = TYPES[name]
    data = rng.integers(0, 256, (64, k // block * nbytes), dtype=np.uint8)
    for i, bits in enumerate([0x7E00, 0x7C00, 0xFC00, 0x0001, 0x8000, 0x7BFF]):
        for at in scale_places(name):
            data[i, at : at + 2] = [bits & 255, bits >> 8]
    if name == "mxfp4":
        data[:3, 0] = [0, 1, 255]
    x = activations(6, k, 8)
    want = product(name, data, x, variant="portable")
    assert name == "mxfp4" or np.isnan(want).any()
    assert not np.isnan(want).all()
    for variant in FAST:
        assert_same(product(name, data, x, variant=variant), want)


@pytest.mark.parametrize("name", TYPES)
def test_rows_that_are_not_numbers(name):
    k = columns_of(name)[-1]
    x = activations(11, k, 9)
    x[2, 40 % k], x[3, k - 1], x[4, 0], x[5] = np.nan, np.inf, -np.inf, 0
    x[6] *= np.float32(1e-33)
    data = blocks(name, 20, k, np.random.default_rng(10))
    want = product(name, data, x, variant="portable")
    broken = ~np.isfinite(want).any(-1)
    assert broken.tolist() == [False, False, True, True, True] + [False] * 6
    assert (want[5] == 0).all()
    for variant in FAST:
        assert_same(product(name, data, x, variant=variant), want)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_several_weights_and_a_residual(variant, threads):
    x, rng = activations(7, 1280, 11), np.random.default_rng(12)
    weights = [
        (name, blocks(name, n, 1280, rng), n) for name, n in [("iq4_xs", 200), ("q6_K", 48), ("f32", 6), ("q3_K", 17)]
    ]
    alone = [product(name, data, x, variant="portable") for name, data, _ in weights]
    ys, seconds = testing.matmul(weights, x, variant=variant, threads=threads)
    assert_same(tuple(ys), tuple(alone))
    assert len(seconds) == 1
    h = [rng.normal(0, 1, y.shape).astype(np.float32) for y in alone]
    ys, _ = testing.matmul(weights, x, residual=h, variant=variant, threads=threads)
    assert_same(tuple(ys), tuple(a + b for a, b in zip(h, alone, strict=True)))


@pytest.mark.parametrize("name", ["q6_K", "q8_0", "iq4_xs"])
def test_largest_values(name):
    """Quants, scales and activations at their limits: no sum may wrap (|P| < 2^24 a 32; vpmaddubsw has 16 bits)."""
    k = 1024
    block, nbytes = TYPES[name]
    for byte in (0x00, 0x80, 0xFF):
        data = np.full((16 * k // block, nbytes), byte, np.uint8)
        for at in scale_places(name):
            data[:, at : at + 2] = [0, 0x3C]
        x = np.where(np.arange(2 * k).reshape(2, k) % 2, -1, 1).astype(np.float32)
        x[1] = 1
        data = data.reshape(16, -1)
        want = product(name, data, x, variant="portable")
        exact, size = in_float64(name, data, x)
        assert (np.abs(want - exact) <= 1e-6 * size).all()
        for variant in FAST:
            assert_same(product(name, data, x, variant=variant), want)
