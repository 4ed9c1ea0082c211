"""exp, sigmoid, SiLU, softplus, f16 rounding: ulp error against float64, and equal bits from every variant's flags."""

from __future__ import annotations

import numpy as np
import pytest
from cases import FAST, assert_same
from lucebox._core import testing

STEP = 1009  # every float of this distance: 4.3 million points over all bit patterns
EVERY = np.arange(0, 2**32, STEP, dtype=np.uint64).astype(np.uint32).view(np.float32)
FUNCTIONS = ["exp", "sigmoid", "silu", "softplus"]


def reference(function: str, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        if function == "exp":
            return np.exp(x)
        if function == "softplus":
            return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        e = np.exp(-np.abs(x))
        sigmoid = np.where(x >= 0, 1, e) / (1 + e)
        return sigmoid if function == "sigmoid" else x * sigmoid


# Largest error in ulp, and the range in which it holds.
@pytest.mark.parametrize(
    ("function", "low", "high", "ulp"),
    [("exp", -104, 88.72, 0.81), ("sigmoid", -87, 88, 0.79), ("silu", -87, 100, 1.11), ("softplus", -87, 60, 1.56)],
)
def test_error(function, low, high, ulp):
    with np.errstate(invalid="ignore"):
        x = EVERY[(low <= EVERY) & (high >= EVERY)]
    want = reference(function, x)
    got = testing.math(function, x, variant="portable").astype(np.float64)
    unit = np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
    assert (np.abs(got - want) / unit).max() <= ulp


@pytest.mark.parametrize("function", [*FUNCTIONS, "f16"])
@pytest.mark.parametrize("variant", FAST)
def test_variants_return_the_same_bits(function, variant):
    assert_same(testing.math(function, EVERY, variant=variant), testing.math(function, EVERY, variant="portable"))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_edges(function):
    x = np.array([-np.inf, -1e30, -105, -0.0, 0.0, 105, 1e30, np.inf, np.nan], np.float32)
    got = testing.math(function, x, variant="portable")
    assert np.isnan(got[-1])
    if function != "silu":  # -inf * 0
        assert got[0] == 0
    assert (
        got[1:4]
        == {"exp": [0, 0, 1], "sigmoid": [0, 0, 0.5], "silu": [0, 0, 0], "softplus": [0, 0, np.float32(np.log(2))]}[
            function
        ]
    )[[0, 2]].all()
    assert (
        got[6]
        == {
            "exp": testing.math("exp", np.array([89], np.float32))[0],
            "sigmoid": 1,
            "silu": np.float32(1e30),
            "softplus": np.float32(1e30),
        }[function]
    )


def test_f16_rounds_to_nearest_even():
    with np.errstate(all="ignore"):
        want = EVERY.astype(np.float16).astype(np.float32)
    assert_same(testing.math("f16", EVERY, variant="portable"), want)
    ties = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = ((ties[1:].astype(np.float64) + ties[:-1]) / 2).astype(np.float32)
    assert_same(testing.math("f16", middles, variant="portable"), middles.astype(np.float16).astype(np.float32))
