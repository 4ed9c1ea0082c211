"""RoPE angles: the f32 nearest to cos and sin of the exact product of position and frequency, over the whole trained context."""

from __future__ import annotations

import numpy as np
import pytest
from lucebox import _core

THETA, DIMS = 1e7, 64


def exact(theta: float, dims: int, positions: np.ndarray) -> np.ndarray:
    """[2, positions, dims / 2] by long double, from the f32 nearest to the real frequency."""
    powers = np.longdouble(np.float32(theta)) ** (-2 * np.arange(dims // 2, dtype=np.longdouble) / dims)
    angle = positions[:, None].astype(np.longdouble) * powers.astype(np.float32).astype(np.longdouble)
    return np.stack([np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)])


def test_every_position_of_the_trained_context() -> None:
    step = 1 << 14
    for first in range(0, 1 << 18, step):
        got = _core.testing.rope(THETA, DIMS, first, step)
        assert np.array_equal(got, exact(THETA, DIMS, np.arange(first, first + step))), f"from position {first} on"


@pytest.mark.parametrize("theta,dims", [(1e4, 128), (5e6, 32), (1e6, 2)])
def test_other_geometries(theta: float, dims: int) -> None:
    positions = np.concatenate([np.arange(3000), np.array([(1 << 20) - 1, (1 << 24) - 1])])
    got = np.concatenate([_core.testing.rope(theta, dims, int(p), 1) for p in positions], axis=1)
    # Values within a few f64 ulp of a tie may differ from long double; none was seen.
    assert (got != exact(theta, dims, positions)).mean() < 1e-5
