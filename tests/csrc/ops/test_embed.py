from __future__ import annotations

import numpy as np
import pytest
from cases import TYPES, VARIANTS, assert_same, blocks
from lucebox._core import dequantize, testing


@pytest.mark.parametrize("name", TYPES)
def test_rows_are_decoded(name):
    columns, ids = 768, [3, 0, 39, 3]
    data = blocks(name, 40, columns, np.random.default_rng(1))
    want = dequantize(name, data.reshape(-1)).reshape(40, columns)[ids]
    for variant in VARIANTS:
        assert_same(testing.embed((name, data, 40), ids, columns, variant=variant), want)
