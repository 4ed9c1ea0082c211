"""Products of the HIP kernels on the emulator: every type, row count and odd shape, equal to the portable variant by bits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CHIPS, FLOAT_TYPES, TYPES, assert_same, blocks, columns_of, scale_places
from lucebox._core import testing

ROWS = [1, 2, 3, 8, 16, 64, 128]
OUTPUTS = [6, 17, 48]


def activations(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (rows, columns)).astype(np.float32)


def check(name: str, data: np.ndarray, x: np.ndarray, chip: str, **options) -> None:
    (want,), _ = testing.matmul([(name, data, len(data))], x, variant="portable")
    (got,) = testing.hip.matmul([(name, data, len(data))], x, device=f"emulated:{chip}", **options)
    assert_same(got, want)


@pytest.mark.parametrize("name", TYPES)
def test_rows(name):
    k = columns_of(name)[-1]
    data = blocks(name, 48, k, np.random.default_rng(1))
    for rows in ROWS:
        check(name, data, activations(rows, k, rows), "gfx12")


@pytest.mark.parametrize("name", TYPES)
def test_shapes(name):
    for n in OUTPUTS:
        for k in columns_of(name):
            data = blocks(name, n, k, np.random.default_rng(n + k))
            for rows in (1, 4, 9):
                check(name, data, activations(rows, k, rows), "gfx12")


@pytest.mark.parametrize("chip", CHIPS[1:])
@pytest.mark.parametrize("name", TYPES)
def test_chips(name, chip):
    k = columns_of(name)[-1]
    data = blocks(name, 17, k, np.random.default_rng(2))
    for rows in (1, 3, 8, 16, 33, 64):
        check(name, data, activations(rows, k, rows), chip)


@pytest.mark.parametrize("order", ["backward", "shuffled"])
@pytest.mark.parametrize("name", ["iq4_xs", "q8_0", "q6_K", "q2_K", "iq3_s", "iq1_m", "bf16"])
def test_orders(name, order):
    k = columns_of(name)[-1]
    data = blocks(name, 17, k, np.random.default_rng(3))
    for rows in (1, 4, 8, 32):
        check(name, data, activations(rows, k, rows), "gfx12", order=order)


def test_long_rows():
    """More segments than a workgroup has waves: 17,408 columns are 17."""
    for name in ("iq4_xs", "q8_0", "f16"):
        data = blocks(name, 16, 17408, np.random.default_rng(4))
        for rows in (1, 16):
            check(name, data, activations(rows, 17408, rows), "gfx12")


@pytest.mark.parametrize("chip", ["gfx12", "nvidia"])
@pytest.mark.parametrize("rows", [1, 4, 8, 16, 40])
def test_shared_tiles(chip, rows):
    """Few tiles of many segments: several workgroups share one, and the last to come adds up; the counters are fit for the next launch."""
    rng, x = np.random.default_rng(13), activations(rows, 9216, rows)
    weights = [(name, blocks(name, n, 9216, rng), n) for name, n in [("iq4_xs", 33), ("q8_0", 6), ("q4_K", 17)]]
    want, _ = testing.matmul(weights, x, variant="portable")
    for order in ("forward", "shuffled"):
        assert_same(testing.hip.matmul(weights, x, shared=True, device=f"emulated:{chip}", order=order), want)


@pytest.mark.parametrize("order", ["forward", "shuffled"])
@pytest.mark.parametrize("rows", [17, 32, 33, 100, 128])
def test_tiles_of_one_workgroup(rows, order):
    """From 17 rows on NVIDIA's workgroups take several tiles, of few outputs segments by turns: uneven ones, two weights."""
    for name, n, k in [
        ("iq4_xs", 33, 5376),
        ("q8_0", 100, 3168),
        ("q4_K", 215, 1024),
        ("q2_K", 17, 2304),
        ("q5_1", 1000, 96),
    ]:
        data, x = blocks(name, n, k, np.random.default_rng(14)), activations(rows, k, rows)
        weights, residual = (
            [(name, data, n), (name, data[: n // 2], n // 2)],
            [activations(rows, n, 1), activations(rows, n // 2, 2)],
        )
        want, _ = testing.matmul(weights, x, [r.copy() for r in residual], variant="portable")
        assert_same(testing.hip.matmul(weights, x, residual, device="emulated:nvidia", order=order), want)


def test_several_weights_and_the_residual():
    """Weights of mixed types and sizes in one call; the product is added to what is there."""
    rng, x = np.random.default_rng(5), activations(3, 1024, 6)
    weights = [
        (name, blocks(name, n, 1024, rng), n) for name, n in [("q4_K", 33), ("q8_0", 6), ("q4_K", 100), ("f32", 9)]
    ]
    residual = [rng.normal(0, 1, (3, n)).astype(np.float32) for _, _, n in weights]
    assert_same(testing.hip.matmul(weights, x), testing.matmul(weights, x, variant="portable")[0])
    want, _ = testing.matmul(weights, x, [r.copy() for r in residual], variant="portable")
    assert_same(testing.hip.matmul(weights, x, residual), want)


@pytest.mark.parametrize("name", [t for t in TYPES if scale_places(t) and t not in FLOAT_TYPES])
def test_damaged_weights(name):
    """NaN scales spoil their own outputs and no others."""
    k = columns_of(name)[-1]
    data = blocks(name, 40, k, np.random.default_rng(7))
    data[5, scale_places(name)[0] :][:2] = [0, 0x7E]
    for rows in (2, 16):
        (got,) = testing.hip.matmul([(name, data, 40)], activations(rows, k, 8))
        assert np.isnan(got[:, 5]).all() and np.isnan(got).sum() == rows
        check(name, data, activations(rows, k, 8), "gfx12")


def test_rows_that_are_not_numbers():
    x = activations(4, 1024, 9)
    x[1, 70], x[2, 3] = np.nan, np.inf
    for name in ("iq4_xs", "q5_1", "q2_K", "f32"):
        check(name, blocks(name, 17, 1024, np.random.default_rng(10)), x, "gfx12")
        check(name, blocks(name, 17, 1024, np.random.default_rng(10)), np.tile(x, (4, 1)), "gfx12")


@pytest.mark.parametrize("name", TYPES)
def test_embed(name):
    k = columns_of(name)[-1]
    data, ids = blocks(name, 70, k, np.random.default_rng(11)), [0, 69, 31, 32, 5]
    for chip in CHIPS:
        got = testing.hip.embed((name, data, 70), ids, k, device=f"emulated:{chip}")
        assert_same(got, testing.embed((name, data, 70), ids, k, variant="portable"))
