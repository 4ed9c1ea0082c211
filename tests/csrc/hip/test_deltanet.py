"""DeltaNet of the HIP kernels on the emulator: rows, state and rings of the portable variant, with every pattern of pending and commit."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CHIPS, assert_same
from csrc.ops.test_deltanet import EPS, HEADS, Layer
from lucebox._core import testing


class OnDevice(Layer):
    def run(self, spans, device="emulated:gfx12", order="forward", inputs=None):
        source = inputs or self.inputs
        rows = np.concatenate([np.arange(first, first + n) for _, first, n, _, _ in spans])
        return testing.hip.deltanet(
            [(slot, n, first, pending, commit) for slot, first, n, pending, commit in spans],
            self.key_heads, self.value_heads, EPS,
            **{name: source[name][rows] for name in ("u", "alpha", "beta", "z")}, **self.weights,
            state=self.state, ring_u=self.ring_u, ring_ab=self.ring_ab, device=device, order=order,
        )  # fmt: skip


def both(heads, tokens: int, calls, device="emulated:gfx12", order="forward", seed=0) -> None:
    """The same calls on both; a call is (spans, whether the inputs are a draft's that is not accepted)."""
    want, got = Layer(*heads, tokens=tokens, seed=seed), OnDevice(*heads, tokens=tokens, seed=seed)
    wrong = {name: value[::-1].copy() for name, value in want.inputs.items()}
    for spans, refused in calls:
        inputs = wrong if refused else None
        assert_same(got.run(spans, device, order, inputs), want.run(spans, inputs=inputs))
        assert_same((got.state, got.ring_u, got.ring_ab), (want.state, want.ring_u, want.ring_ab))


PATTERNS = {
    "prefill": [([(0, 0, 128, 0, True)], False), ([(0, 128, 5, 0, True)], False)],
    "decode": [([(0, i, 1, 0, True)], False) for i in range(6)],
    "two sequences": [
        ([(1, 0, 90, 0, True), (0, 0, 13, 0, True)], False),
        ([(0, 13, 1, 0, True), (1, 90, 1, 0, True)], False),
    ],
    "verify": [
        ([(0, 0, 20, 0, True)], False),
        ([(0, 20, 4, 0, False)], False),
        ([(0, 21, 8, 1, False)], True),
        ([(0, 21, 16, 1, False)], False),
        ([(0, 37, 12, 16, False)], False),
        ([(0, 46, 10, 9, True)], False),
    ],
    "most pending": [
        ([(1, 0, 100, 0, True)], False),
        ([(1, 100, 32, 0, False)], False),
        ([(1, 132, 61, 32, False)], False),
        ([(1, 164, 36, 32, True)], False),
    ],
    "mixed": [
        ([(0, 0, 9, 0, True), (1, 0, 3, 0, True)], False),
        ([(1, 3, 5, 0, False), (0, 9, 1, 0, True)], False),
        ([(0, 10, 7, 0, False), (1, 7, 2, 4, True)], False),
    ],
}


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern, heads):
    both(heads, 200, PATTERNS[pattern])


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
@pytest.mark.parametrize("chip", CHIPS)
def test_chips_and_orders(chip, order):
    both((2, 4), 60, PATTERNS["verify"], f"emulated:{chip}", order, seed=3)


def test_rows_that_are_not_numbers():
    want, got = Layer(1, 2, tokens=12, seed=5), OnDevice(1, 2, tokens=12, seed=5)
    for layer in (want, got):
        layer.inputs["u"][6, 300] = np.nan
    assert_same(got.run([(0, 0, 12, 0, True)]), want.run([(0, 0, 12, 0, True)]))
