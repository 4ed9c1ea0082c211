"""Attention over pages against float64, every cache form, both sides of tiles, pages and groups; variants by bits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CONTEXTS, FAST, KV_FORMS, VARIANTS, assert_same, quantized
from lucebox._core import testing

EPS, PAGE, TILE = 1e-6, 256, 32
BYTES = {"q8_0": 1, "f16": 2, "f32": 4}


class Cache:
    """The layout of ops/kv.h, written down a second time. Slots have equally many pages, in a scrambled order."""

    def __init__(self, form: str, slots: int, tokens: int, kv_heads: int, dim: int):
        self.form, self.kv_heads, self.dim = form, kv_heads, dim
        self.tile_bytes = dim * TILE * BYTES[form] + (dim if form == "q8_0" else 0) * 2
        n = -(-tokens // PAGE)
        self.table = np.random.default_rng(1).permutation(slots * n).astype(np.int32).reshape(slots, n)
        self.pages = np.zeros((slots * n, kv_heads, PAGE // TILE, 2, self.tile_bytes), np.uint8)

    def views(self, tile: np.ndarray, is_key: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Values as [32 keys, dim] and scales as [32 keys, dim / 32] of tiles [..., tile_bytes]."""
        lead, n = tile.shape[:-1], self.dim * TILE
        if self.form != "q8_0":
            values = tile.view(np.float16 if self.form == "f16" else np.float32)
            return (
                values.reshape(*lead, self.dim, TILE).swapaxes(-1, -2)
                if is_key
                else values.reshape(*lead, TILE, self.dim)
            ), None
        scales = tile[..., n:].view(np.float16).reshape(*lead, self.dim // 32, TILE).swapaxes(-1, -2)
        quants = tile[..., :n].view(np.int8)
        if is_key:
            return quants.reshape(*lead, self.dim // 4, TILE, 4).swapaxes(-2, -3).reshape(*lead, TILE, self.dim), scales
        return quants.reshape(*lead, TILE // 4, self.dim, 4).swapaxes(-1, -2).reshape(*lead, TILE, self.dim), scales

    def read(self, slot: int, kv_head: int, tokens: int, part: int) -> np.ndarray:
        """K (part 0) or V (1) as float64 [tokens, dim]."""
        values, scales = self.views(np.ascontiguousarray(self.pages[self.table[slot], kv_head, :, part]), part == 0)
        values = values.reshape(-1, self.dim).astype(np.float64)
        if scales is not None:
            values *= np.repeat(scales.reshape(-1, self.dim // 32).astype(np.float64), 32, -1)
        return values[:tokens]

    def fill(self, slot: int, tokens: int, rng: np.random.Generator, scale: float = 1.0) -> None:
        """Random K and V for tokens 0 .. tokens - 1, quantised as the op does."""
        n = self.table.shape[1] * PAGE
        for part in range(2):
            x = rng.normal(0, scale, (n, self.kv_heads, self.dim)).astype(np.float32)
            x[tokens:] = 0
            x = x.reshape(-1, PAGE // TILE, TILE, self.kv_heads, self.dim).transpose(0, 3, 1, 2, 4)
            tiles = np.zeros((*x.shape[:3], self.tile_bytes), np.uint8)
            if self.form != "q8_0":
                x = x.swapaxes(-1, -2) if part == 0 else x
                tiles[...] = (
                    np.ascontiguousarray(x.astype(np.float16 if self.form == "f16" else np.float32))
                    .view(np.uint8)
                    .reshape(tiles.shape)
                )
            else:
                q, d, _ = quantized(x)
                q = (
                    q.reshape(*q.shape[:3], TILE, self.dim // 4, 4).swapaxes(-2, -3)
                    if part == 0
                    else q.reshape(*q.shape[:3], TILE // 4, 4, self.dim).swapaxes(-1, -2)
                )
                tiles[..., : self.dim * TILE] = np.ascontiguousarray(q).view(np.uint8).reshape(*tiles.shape[:3], -1)
                tiles[..., self.dim * TILE :] = (
                    np.ascontiguousarray(d.swapaxes(-1, -2))
                    .astype(np.float16)
                    .view(np.uint8)
                    .reshape(*tiles.shape[:3], -1)
                )
            self.pages[self.table[slot], :, :, part] = tiles


class Call:
    """Rows of a call over a filled cache; run() leaves the inputs as they are."""

    def __init__(self, form, contexts, *, heads=6, kv_heads=2, dim=64, rope_dims=32, seed=0, scale=1.0):
        rng = np.random.default_rng(seed)
        self.heads, self.dim, self.rope_dims = heads, dim, rope_dims
        self.cache = Cache(form, len(contexts), max(contexts), kv_heads, dim)
        for slot, n in enumerate(contexts):
            self.cache.fill(slot, n - 1, rng, scale)
        self.rows = [(slot, n - 1) for slot, n in enumerate(contexts)]
        n = len(contexts)
        self.qg = rng.normal(0, 1, (n, heads, 2, dim)).astype(np.float32)
        self.k, self.v = (rng.normal(0, 1, (n, kv_heads, dim)).astype(np.float32) for _ in range(2))
        self.q_norm, self.k_norm = ((scale * rng.uniform(0.5, 2, dim)).astype(np.float32) for _ in range(2))
        angle = np.array([p for _, p in self.rows])[:, None] * 1e7 ** (-np.arange(rope_dims // 2) * 2 / rope_dims)
        self.cos, self.sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def run(self, variant="portable", threads=1, keep=False):
        """y (x, q, d, sums), and the cache after the call."""
        qg, k, pages = self.qg.copy(), self.k.copy(), self.cache.pages.copy()
        y, _ = testing.attention(
            self.rows, self.cache.form, EPS, self.dim, qg, k, self.v, self.q_norm, self.k_norm, self.cos, self.sin,
            pages.reshape(len(pages), -1), self.cache.table, variant=variant, threads=threads,
        )  # fmt: skip
        if keep:
            self.cache.pages, self.qg_after, self.k_after = pages, qg, k
        return y, pages

    def rotated(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Norm and RoPE of [rows, heads, dim] in float64."""
        x = x.astype(np.float64)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + np.float64(np.float32(EPS))) * weight
        half, c, s = self.rope_dims // 2, self.cos[:, None].astype(np.float64), self.sin[:, None].astype(np.float64)
        a, b = x[..., :half].copy(), x[..., half : 2 * half].copy()
        x[..., :half], x[..., half : 2 * half] = a * c - b * s, b * c + a * s
        return x

    def in_float64(self) -> np.ndarray:
        """After run(keep=True): attention over what the cache holds, with the query as the form sees it."""
        out = np.zeros((len(self.rows), self.heads, self.dim))
        for r, (slot, position) in enumerate(self.rows):
            for h in range(self.heads):
                kv = h // (self.heads // self.cache.kv_heads)
                keys, values = (self.cache.read(slot, kv, position + 1, part) for part in range(2))
                q = self.qg_after[r, h, 0]
                if self.cache.form == "q8_0":
                    i8, d, _ = quantized(q)
                    q = i8.astype(np.float64) * np.repeat(d.astype(np.float64), 32)
                s = keys @ q.astype(np.float64) / np.sqrt(self.dim)
                p = np.exp(s - s.max())
                out[r, h] = p @ values / p.sum() / (1 + np.exp(-self.qg_after[r, h, 1].astype(np.float64)))
        return out.reshape(len(self.rows), -1)


@pytest.mark.parametrize("form", KV_FORMS)
def test_against_float64(form):
    call = Call(form, CONTEXTS)
    (y, q, d, sums), _ = call.run(keep=True)
    np.testing.assert_allclose(
        call.qg_after[:, :, 0], call.rotated(call.qg[:, :, 0], call.q_norm), atol=2e-6, rtol=1e-5
    )
    np.testing.assert_allclose(call.k_after, call.rotated(call.k, call.k_norm), atol=2e-6, rtol=1e-5)
    assert (call.qg_after[:, :, 1] == call.qg[:, :, 1]).all()
    for r, (slot, position) in enumerate(call.rows):
        for kv in range(2):  # half a step and 127 times the rounding of its f16 in q8_0, half an ulp in f16
            for part, x in enumerate((call.k_after, call.v)):
                stored = call.cache.read(slot, kv, position + 1, part)[position]
                unit = {"q8_0": np.abs(x[r, kv]).max() / 127 * 0.57, "f16": np.abs(x[r, kv]).max() * 2**-11, "f32": 0}[
                    form
                ]
                assert (np.abs(stored - x[r, kv]) <= unit).all()
    np.testing.assert_allclose(y, call.in_float64(), atol=1e-4 if form == "q8_0" else 3e-6)
    assert_same((q, d, sums), quantized(y))


# heads, kv_heads, head_dim, rope_dims: the true model's, one head a group, more heads than a kernel takes at once, ...
SHAPES = [(6, 1, 256, 64), (2, 2, 128, 128), (20, 2, 32, 16), (3, 1, 96, 64), (10, 1, 64, 2)]


@pytest.mark.parametrize("variant", FAST)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", KV_FORMS)
def test_variants_by_bits(form, shape, variant):
    heads, kv_heads, dim, rope_dims = shape
    contexts = CONTEXTS if heads <= 6 and dim <= 128 else [n for n in CONTEXTS if n < 4000] + [4097]
    call = Call(form, contexts, heads=heads, kv_heads=kv_heads, dim=dim, rope_dims=rope_dims, seed=heads)
    want, pages = call.run()
    for threads in (1, 2):
        got, got_pages = call.run(variant, threads)
        assert_same(got, want)
        assert (got_pages == pages).all()


@pytest.mark.parametrize("form", KV_FORMS)
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 30.0])
def test_scales(form, scale):
    """Values that make p * d_v tiny, scores that make the softmax flat or one-hot."""
    call = Call(form, [5, 33, 300], scale=scale, seed=3)
    want, _ = call.run()
    assert np.isfinite(want[0]).all()
    for variant in FAST:
        assert_same(call.run(variant)[0], want)


@pytest.mark.parametrize("form", KV_FORMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_one_sequence(form, variant):
    """Rows of a call see the ones before them and not the ones after: one call of eight rows equals eight calls."""
    call = Call(form, [300], seed=4)
    rng, n = np.random.default_rng(5), 40
    qg, k, v = rng.normal(0, 1, (n, 6, 2, 64)), rng.normal(0, 1, (n, 2, 64)), rng.normal(0, 1, (n, 2, 64))
    qg, k, v = (x.astype(np.float32) for x in (qg, k, v))
    cos, sin = np.repeat(call.cos, n, 0), np.repeat(call.sin, n, 0)
    positions = [(0, 230 + i) for i in range(n)]

    def run(first, last, pages, threads=1):
        part = slice(first, last)
        return testing.attention(
            positions[part], form, EPS, 64, qg[part].copy(), k[part].copy(), v[part], call.q_norm, call.k_norm,
            cos[part], sin[part], pages.reshape(len(pages), -1), call.cache.table, variant=variant, threads=threads,
        )[0]  # fmt: skip

    together, apart = call.cache.pages.copy(), call.cache.pages.copy()
    want = run(0, n, together, threads=2)
    parts = [run(i, i + 1, apart) for i in range(n)]
    assert_same(tuple(np.concatenate(p) for p in zip(*parts, strict=True)), want)
    assert (together == apart).all()


@pytest.mark.parametrize("form", KV_FORMS)
@pytest.mark.parametrize("part", ["k", "v", "q", "gate"])
def test_rows_that_are_not_numbers(form, part):
    call = Call(form, [40, 300], seed=6)
    if part == "q":
        call.qg[0, 1, 0, 5] = np.nan
    elif part == "gate":
        call.qg[0, 1, 1, 5] = np.nan
    else:
        getattr(call, part)[0, 1, 5] = np.inf if part == "v" else np.nan
    want, _ = call.run()
    heads = ~np.isfinite(want[0]).reshape(2, 6, 64).all(-1)  # an Inf among float values stays one
    assert not heads[1].any() and heads[0].any() and not heads[0].all()
    for variant in FAST:
        assert_same(call.run(variant)[0], want)


@pytest.mark.parametrize("variant", VARIANTS)
def test_absent_keys_take_no_part(variant):
    """What a page holds behind a row's position, NaN scales too, changes nothing."""
    for form in KV_FORMS:
        call = Call(form, [37], seed=7)
        want, _ = call.run(variant)
        tile = call.cache.pages[call.cache.table[0, 0], :, 1]  # tokens 32 .. 63
        for p in range(2):
            values, scales = call.cache.views(tile[:, p], p == 0)
            values[:, 5:] = 100 if form == "q8_0" else np.nan
            if scales is not None:
                scales[:, 5:] = np.nan
        assert np.shares_memory(tile, call.cache.pages)
        assert_same(call.run(variant)[0], want)
