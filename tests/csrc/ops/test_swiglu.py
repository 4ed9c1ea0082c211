from __future__ import annotations

import numpy as np
import pytest
from cases import FAST, assert_same, quantized
from lucebox._core import testing


@pytest.mark.parametrize("width", [32, 96, 1024, 1280, 2080, 17408])
@pytest.mark.parametrize("rows", [1, 3])
def test_swiglu(width, rows):
    rng = np.random.default_rng(width)
    gate, up = (rng.normal(0, 3, (rows, width)).astype(np.float32) for _ in range(2))
    gate[0, 0], gate[-1, 5], up[0, 17] = np.nan, -200, np.inf
    portable = testing.swiglu(gate, up, variant="portable")
    wide = gate.astype(np.float64)
    np.testing.assert_allclose(portable[0], wide / (1 + np.exp(-wide)) * up, rtol=4e-7, atol=1e-37)
    assert_same(portable[1:], quantized(portable[0]))
    for variant in FAST:
        for threads in (1, 2):
            assert_same(testing.swiglu(gate, up, variant=variant, threads=threads), portable)
