from __future__ import annotations

import numpy as np
import pytest
from cases import VARIANTS
from lucebox._core import testing


@pytest.mark.parametrize("vocab", [1, 7, 16, 31, 2047, 2048, 2049, 12288, 151936])
@pytest.mark.parametrize("variant", VARIANTS)
def test_first_of_the_largest(vocab, variant):
    rng = np.random.default_rng(vocab)
    logits = rng.normal(0, 3, (4, vocab)).astype(np.float32)
    logits[1] = np.round(logits[1])  # many equal ones
    logits[2] = -np.inf
    logits[3, vocab // 2 :] = 50
    assert (testing.argmax(logits, variant=variant) == logits.argmax(-1)).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_zeros_are_equal(variant):
    logits = np.full((2, 40), -1, np.float32)
    logits[0, [5, 30]] = [-0.0, 0.0]
    logits[1, [5, 30]] = [0.0, -0.0]
    assert testing.argmax(logits, variant=variant).tolist() == [5, 5]


@pytest.mark.parametrize("at", [0, 1, 15, 16, 2047, 2048, 4998, 4999])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_nan_is_never_a_token(at, variant):
    logits = np.random.default_rng(1).normal(0, 1, (2, 5000)).astype(np.float32)
    logits[0, at] = np.nan
    ids = testing.argmax(logits, variant=variant)
    assert ids[0] == -1 and ids[1] == logits[1].argmax()
