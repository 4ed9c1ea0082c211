"""Norm, SwiGLU and argmax of the HIP kernels on the emulator, equal to the portable variant by bits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CHIPS, assert_same
from lucebox._core import testing

ORDERS = ["forward", "backward", "shuffled"]


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("chip", CHIPS)
def test_norm(chip, order):
    for hidden in (32, 96, 1024, 1056, 5120):
        x, w = normal(1, 19, hidden), normal(2, hidden)
        x[3, 7], x[4, 8], x[5] = np.nan, np.inf, 0
        options = {"device": f"emulated:{chip}", "order": order}
        assert_same(testing.hip.norm(x, w, 1e-6, **options), testing.norm(x, w, 1e-6, variant="portable"))
        select = [18, 0, 3]
        assert_same(
            testing.hip.norm(x, w, 1e-6, select, **options), testing.norm(x, w, 1e-6, select, variant="portable")
        )


@pytest.mark.parametrize("chip", CHIPS)
def test_swiglu(chip):
    for ff in (32, 992, 1056, 2048):
        gate, up = 8 * normal(3, 17, ff), normal(4, 17, ff)
        gate[1, 5], up[2, 6], up[3] = np.nan, -np.inf, 1e-35
        assert_same(
            testing.hip.swiglu(gate, up, device=f"emulated:{chip}"), testing.swiglu(gate, up, variant="portable")
        )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("vocab", [1, 5, 64, 65, 1000, 40001])
def test_argmax(vocab, order):
    x = normal(5, 9, vocab)
    x[1] = 0
    x[1, ::2] = -0.0
    x[2] = -np.inf
    x[3, -1] = np.nan
    x[4, vocab // 2] = x[4, -1] = x[4].max()
    x[5, vocab // 3] = np.inf
    want = testing.argmax(x, variant="portable")
    for chip in CHIPS:
        assert_same(testing.hip.argmax(x, device=f"emulated:{chip}", order=order), want)
