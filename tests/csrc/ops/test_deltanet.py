"""DeltaNet against a float64 token loop; cutting, batching and deferring a sequence must not change a bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from cases import FAST, VARIANTS, assert_same, quantized
from lucebox._core import testing

EPS = 1e-6
HEADS = [(2, 2), (2, 6), (1, 3)]  # key heads, value heads


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@dataclass
class Layer:
    """Weights of a layer and the inputs of a sequence; state as the engine keeps it."""

    key_heads: int
    value_heads: int
    tokens: int
    seed: int = 0
    slots: int = 2
    inputs: dict = field(init=False)
    weights: dict = field(init=False)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        channels, heads = (2 * self.key_heads + self.value_heads) * 128, self.value_heads

        def normal(*shape, scale=1.0):
            return rng.normal(0, scale, shape).astype(np.float32)

        t = self.tokens
        self.inputs = {
            "u": normal(t, channels),
            "alpha": normal(t, heads),
            "beta": normal(t, heads),
            "z": normal(t, heads * 128),
        }
        self.weights = {
            "conv": normal(channels, 4, scale=0.5),
            "dt": normal(heads),
            "a": -np.abs(normal(heads)),
            "norm": 1 + normal(128, scale=0.1),
        }
        self.reset()

    def reset(self):
        channels, heads = (2 * self.key_heads + self.value_heads) * 128, self.value_heads
        self.state = np.zeros((self.slots, heads, 128, 128), np.float32)
        self.ring_u = np.zeros((self.slots, 64, channels), np.float32)
        self.ring_ab = np.zeros((self.slots, 64, 2, heads), np.float32)

    def run(self, spans, variant="portable", threads=1, inputs=None):
        """spans: (slot, first token, rows, pending, commit); the rows' inputs are the sequence's own."""
        source = inputs or self.inputs
        rows = np.concatenate([np.arange(first, first + n) for _, first, n, _, _ in spans])
        y, _ = testing.deltanet(
            [(slot, n, first, pending, commit) for slot, first, n, pending, commit in spans],
            self.key_heads,
            self.value_heads,
            EPS,
            **{name: source[name][rows] for name in ("u", "alpha", "beta", "z")},
            **self.weights,
            state=self.state,
            ring_u=self.ring_u,
            ring_ab=self.ring_ab,
            variant=variant,
            threads=threads,
        )
        return y


def in_float64(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Rows [tokens, value_heads * 128] and the state after them."""
    nk, nv = layer.key_heads, layer.value_heads
    u, alpha, beta, z = (layer.inputs[n].astype(np.float64) for n in ("u", "alpha", "beta", "z"))
    conv, dt, a, norm = (layer.weights[n].astype(np.float64) for n in ("conv", "dt", "a", "norm"))
    padded = np.concatenate([np.zeros((3, u.shape[1])), u])
    c = sum(padded[i : i + len(u)] * conv[:, i] for i in range(4))
    c = (c * sigmoid(c)).reshape(len(u), -1, 128)
    unit = c / np.sqrt((c**2).sum(-1, keepdims=True) + EPS)
    q, k, v = unit[:, :nk] / np.sqrt(128), unit[:, nk : 2 * nk], c[:, 2 * nk :]
    decay, gate = np.exp(np.logaddexp(0, alpha + dt) * a), sigmoid(beta)
    state, out = np.zeros((nv, 128, 128)), np.zeros((len(u), nv, 128))
    for t in range(len(u)):
        for j in range(nv):
            s = state[j] * decay[t, j]
            s = s + np.outer(k[t, j % nk], gate[t, j] * (v[t, j] - k[t, j % nk] @ s))
            state[j], out[t, j] = s, q[t, j % nk] @ s
    normed = out / np.sqrt((out**2).mean(-1, keepdims=True) + EPS) * norm
    return normed.reshape(len(u), -1) * z * sigmoid(z), state


@pytest.mark.parametrize("heads", HEADS)
def test_against_float64(heads):
    layer = Layer(*heads, tokens=40)
    want, state = in_float64(layer)
    y, q, d, sums = layer.run([(0, 0, 40, 0, True)])
    np.testing.assert_allclose(y, want, atol=2e-4, rtol=1e-3)
    np.testing.assert_allclose(layer.state[0], state, atol=1e-5, rtol=1e-4)
    assert (layer.state[1] == 0).all()
    assert_same((q, d, sums), quantized(y))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("variant", FAST)
def test_variants_by_bits(heads, variant):
    spans = [(1, 0, 90, 0, True), (0, 0, 13, 0, True)]
    want = (layer := Layer(*heads, tokens=90, seed=1)).run(spans)
    state, ring_u, ring_ab = layer.state, layer.ring_u, layer.ring_ab
    for threads in (1, 2):
        layer.reset()
        assert_same(layer.run(spans, variant, threads), want)
        assert_same((layer.state, layer.ring_u, layer.ring_ab), (state, ring_u, ring_ab))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cuts", [[1] * 70, [69, 1], [3, 64, 3], [66, 4], [7] * 10])
def test_cuts(variant, cuts):
    layer = Layer(2, 4, tokens=70, seed=2)
    want, state = layer.run([(0, 0, 70, 0, True)], variant), layer.state.copy()
    layer.reset()
    starts = np.cumsum([0, *cuts[:-1]])
    parts = [layer.run([(0, int(first), n, 0, True)], variant) for first, n in zip(starts, cuts, strict=True)]
    assert_same(tuple(np.concatenate(p) for p in zip(*parts, strict=True)), want)
    assert_same(layer.state, state)


@pytest.mark.parametrize("variant", VARIANTS)
def test_verify_then_accept(variant):
    """Rows without commit leave the state alone; the next call replays the accepted ones and forgets the others."""
    layer = Layer(2, 4, tokens=60, seed=3)
    want, end = layer.run([(0, 0, 60, 0, True)], variant), layer.state.copy()
    layer.reset()
    wrong = {name: value[::-1].copy() for name, value in layer.inputs.items()}  # a draft that is not accepted
    got = [layer.run([(0, 0, 20, 0, True)], variant)]
    at, pending = 20, 0
    for drafted, accepted in [(4, 1), (8, 8), (16, 5), (1, 1), (12, 9)]:
        before = layer.state.copy()
        draft = {n: np.concatenate([layer.inputs[n][: at + accepted], wrong[n][at + accepted :]]) for n in wrong}
        rows = layer.run([(0, at, drafted, pending, False)], variant, inputs=draft)
        assert (pending > 0) != np.array_equal(before, layer.state)
        got.append(tuple(part[:accepted] for part in rows))
        at, pending = at + accepted, accepted
    got.append(layer.run([(0, at, 60 - at, pending, True)], variant))
    assert_same(tuple(np.concatenate(p) for p in zip(*got, strict=True)), want)
    assert_same(layer.state, end)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pending_limit(variant):
    """32 pending rows, more than a ring's worth of positions, and a verify of the most rows there may be."""
    layer = Layer(1, 2, tokens=200, seed=4)
    want = layer.run([(1, 0, 128, 0, True)], variant), layer.run([(1, 128, 72, 0, True)], variant)
    layer.reset()
    layer.run([(1, 0, 100, 0, True)], variant)
    layer.run([(1, 100, 32, 0, False)], variant)
    verify = layer.run([(1, 132, 61, 32, False)], variant)
    assert_same(verify, tuple(part[4:65] for part in want[1]))
    rest = layer.run([(1, 164, 36, 32, True)], variant)
    assert_same(rest, tuple(part[36:] for part in want[1]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_that_are_not_numbers(variant):
    layer = Layer(1, 2, tokens=12, seed=5)
    layer.inputs["u"][6, 300] = np.nan  # in the value head 0
    y, q, d, _ = layer.run([(0, 0, 12, 0, True)], variant)
    assert not np.isnan(y[:6]).any()
    assert np.isnan(y[6:, :128]).all() and np.isnan(d[6:, :4]).all() and (q[6:, :128] == 0).all()
    assert not np.isnan(y[:, 128:]).any()
