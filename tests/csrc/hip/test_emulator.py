"""Planted faults that the emulator must find, and the right kernels that it must run."""

from __future__ import annotations

import numpy as np
import pytest
from lucebox._core import testing
from lucebox.errors import DeviceError

WORDS = np.random.default_rng(0).integers(-(2**31), 2**31, 256).astype(np.int32)
ORDERS = ["forward", "backward", "shuffled"]
PASSED = np.roll(WORDS, 1)


@pytest.mark.parametrize("order", ORDERS)
def test_right_kernel(order):
    assert (testing.hip.faulty("passes_on", WORDS, order) == PASSED).all()


def test_missing_barrier_shows_in_another_order():
    assert (testing.hip.faulty("without_barrier", WORDS, "forward") == PASSED).all()
    for order in ORDERS[1:]:
        assert (testing.hip.faulty("without_barrier", WORDS, order) != PASSED).any()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", ["divergent_barrier", "divergent_exchange", "too_much_memory"])
def test_faults_are_named(kernel, order):
    with pytest.raises(DeviceError, match=f"kernel {kernel}, workgroup 0,0,0: .*(barrier|exchange|workgroup memory)"):
        testing.hip.faulty(kernel, WORDS, order)
    assert (testing.hip.faulty("passes_on", WORDS, order) == PASSED).all()  # the next launch works


def test_workgroup_memory_starts_as_nan():
    got = testing.hip.faulty("uninitialised", WORDS)
    assert (got[::2] == WORDS[::2]).all()
    assert np.isnan(got[1::2].view(np.float32)).all()


def test_fragment_map_of_another_chip():
    rows = WORDS.view(np.int8)[: 16 * 32].reshape(16, 32).astype(np.int32)
    want = rows @ rows.T
    assert (testing.hip.faulty("tile", WORDS)[:256].reshape(16, 16) == want).all()
    assert (testing.hip.faulty("tile_of_another_chip", WORDS)[:256].reshape(16, 16) != want).any()
