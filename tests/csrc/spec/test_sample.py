"""Sampling: a pure function of logits, parameters, position and choice."""

from __future__ import annotations

import numpy as np
import pytest
from lucebox import _core
from lucebox.errors import DeviceError, RequestError


def logits(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def draw(values: np.ndarray, n: int = 4000, **params: float) -> np.ndarray:
    p = _core.SamplingParams(**{"temperature": 1.0, "seed": 5, **params})
    return np.bincount([_core.sample(values, p, i) for i in range(n)], minlength=len(values)) / n


def philox(seed: int, counter: list[int]) -> int:
    """Philox4x32-10 in plain integers: the first word."""
    c, k, mask = list(counter), [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & mask, (a >> 32) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0]


def test_philox_known_answer() -> None:
    """The published vector of Philox4x32-10 for a zero key and counter."""
    assert philox(0, [0, 0, 0, 0]) == 0x6627E8D5


@pytest.mark.parametrize("seed", [0, 1, 12345678901234567890])
def test_the_token_is_where_the_number_falls(seed: int) -> None:
    """1,000 equal candidates: the id is the uniform number's place."""
    flat = np.zeros(1000, np.float32)
    for position, choice in [(0, 0), (1, 0), (7, 3), (100000, 1)]:
        u = (philox(seed, [position, choice, 0, 0]) >> 8) * 2.0**-24
        got = _core.sample(flat, _core.SamplingParams(temperature=1.0, seed=seed), position, choice)
        assert got == int(u * 1000)


def test_greedy_and_ties() -> None:
    values = logits([1, 3, -0.0, 3, 0.0])
    assert _core.sample(values, _core.SamplingParams(), 0) == 1
    assert _core.sample(logits([-0.0, 0.0]), _core.SamplingParams(), 0) == 0
    assert set(np.flatnonzero(draw(values, temperature=1e-9)).tolist()) <= {1, 3}
    assert draw(logits([1, 3, 2]), temperature=1e-9)[1] == 1


def test_distribution() -> None:
    values = logits([0.0, 1.0, 2.0, -1.0])
    for temperature in (0.5, 1.0, 2.0):
        expected = np.exp(values / temperature) / np.exp(values / temperature).sum()
        assert np.abs(draw(values, temperature=temperature) - expected).max() < 0.03


def test_filters() -> None:
    values = np.log(np.array([0.4, 0.3, 0.2, 0.06, 0.04], np.float32))
    assert np.flatnonzero(draw(values, top_k=2)).tolist() == [0, 1]
    assert np.flatnonzero(draw(values, top_p=0.65)).tolist() == [0, 1]
    assert np.flatnonzero(draw(values, top_p=0.75)).tolist() == [0, 1, 2]
    assert np.flatnonzero(draw(values, min_p=0.4)).tolist() == [0, 1, 2]
    assert np.flatnonzero(draw(values, top_k=1, top_p=0.01, min_p=1.0)).tolist() == [0]


def test_repeatable() -> None:
    values = np.random.RandomState(0).randn(5000).astype(np.float32)
    p = _core.SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=3)
    first = [_core.sample(values, p, i) for i in range(50)]
    assert first == [_core.sample(values, p, i) for i in range(50)]
    assert first != [_core.sample(values, p, i, 1) for i in range(50)]


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"min_p": 2},
    ],
)
def test_bad_parameters(params: dict) -> None:
    with pytest.raises(RequestError, match=next(iter(params))):
        _core.SamplingParams(**params)


def test_nan_is_no_token() -> None:
    for params in (_core.SamplingParams(), _core.SamplingParams(temperature=1.0)):
        with pytest.raises(DeviceError, match="logit 1 is NaN"):
            _core.sample(logits([1, float("nan"), 2]), params, 0)
