"""The drafter's ops of the HIP kernels on the emulator, one by one: windows, rings, spans, candidates; the portable bits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CHIPS, assert_same
from csrc.ops.test_attention import Cache
from lucebox._core import testing

EPS = 1e-6


class Call:
    """A call over rings that are filled whole. spans: (slot, rows, position, context)."""

    def __init__(self, spans, *, window=0, causal=False, heads=4, kv_heads=2, dim=64, pages=None, seed=0):
        rng = np.random.default_rng(seed)
        self.spans, self.window, self.causal = spans, window, causal
        last = max(position + rows for _, rows, position, _ in spans)
        self.cache = Cache("f16", 1 + max(slot for slot, *_ in spans), last, kv_heads, dim)
        for slot in range(len(self.cache.table)):
            self.cache.fill(slot, self.cache.table.shape[1] * 256, rng)
        if pages:  # a ring is a table that repeats its pages
            self.cache.table = np.ascontiguousarray(self.cache.table[:, np.arange(self.cache.table.shape[1]) % pages])
        n = sum(rows for _, rows, *_ in spans)
        self.q = rng.normal(0, 1, (n, heads, dim)).astype(np.float32)
        self.k, self.v = (rng.normal(0, 1, (n, kv_heads, dim)).astype(np.float32) for _ in range(2))
        self.q_norm, self.k_norm = (rng.uniform(0.5, 2, dim).astype(np.float32) for _ in range(2))
        at = np.concatenate([np.arange(position, position + rows) for _, rows, position, _ in spans])
        angle = at[:, None] * 1e6 ** (-np.arange(dim // 2) * 2 / dim)
        self.cos, self.sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def run(self, device, order="forward"):
        q, k, pages = self.q.copy(), self.k.copy(), self.cache.pages.copy()
        y = testing.hip.draft_attention(
            self.spans, self.window, self.causal, EPS, q, k, self.v, self.q_norm, self.k_norm, self.cos, self.sin,
            pages.reshape(len(pages), -1), self.cache.table, device=device, order=order,
        )  # fmt: skip
        return (*y, q, k, pages)


def check(call: Call, device: str = "emulated", order: str = "forward") -> None:
    assert_same(call.run(device, order), call.run("cpu"))


# Both sides of a tile, a page, what a window reaches.
CONTEXTS = [0, 1, 16, 31, 32, 33, 63, 64, 65, 240, 255, 256, 257, 300]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 33, 64, 300])
def test_contexts_and_windows(window: int, causal: bool) -> None:
    for context in CONTEXTS:
        check(Call([(0, 5, context, context)], window=window, causal=causal, heads=3, kv_heads=1, dim=32, seed=context))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_chips_and_orders(chip: str, order: str) -> None:
    check(Call([(0, 16, 500, 290)], window=280, heads=8, kv_heads=2, dim=128), f"emulated:{chip}", order)


@pytest.mark.parametrize(
    "shape", [(4, 4, 64), (5, 1, 32), (6, 2, 96), (8, 2, 128), (3, 1, 160), (4, 2, 256), (17, 1, 32), (32, 2, 64)]
)
def test_shapes(shape: tuple[int, int, int]) -> None:
    """Tiles of 16 queries that end inside a row, hold one row, or are cut short by the last one."""
    heads, kv_heads, dim = shape
    for rows in [1, 4, 7]:
        check(Call([(0, rows, 290, 290)], window=270, heads=heads, kv_heads=kv_heads, dim=dim, seed=rows))


@pytest.mark.parametrize("position", [*range(505, 521), 540])
def test_first_keys_on_both_sides_of_a_page(position: int) -> None:
    """Rows of one tile of queries number their parts from different pages; the first page is seen by all, some or none of them."""
    check(Call([(0, 16, position, position)], window=256, heads=1, kv_heads=1, dim=32))
    check(Call([(0, 16, position, position)], window=256, causal=True, heads=3, kv_heads=1, dim=32))


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_across_a_page(causal: bool) -> None:
    """The last page is seen by some rows of a tile only where keys are causal."""
    check(Call([(0, 16, 250, 250)], window=64, causal=causal, heads=2, kv_heads=1, dim=32))


@pytest.mark.parametrize("position", [767, 1020, 1024, 1100])
def test_rings_that_wrapped(position: int) -> None:
    check(Call([(0, 8, position, 260)], window=260, heads=4, kv_heads=2, dim=64, pages=3))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 100])
def test_spans(window: int, causal: bool) -> None:
    """Blocks of several sequences at different depths, and more spans' buckets and tiles than there are."""
    spans = [(2, 5, 300, 300), (0, 1, 0, 0), (3, 8, 40, 40), (1, 3, 513, 200), (4, 2, 255, 31)]
    check(Call(spans, window=window, causal=causal, heads=6, kv_heads=2, dim=32))


@pytest.mark.parametrize("rows", [16, 33, 128])
def test_parts_of_pages_groups_and_all_keys(rows: int) -> None:
    """16 rows at 5,000 keys take pages of two groups, 33 rows at 8,300 parts of 4,096, 128 rows at 65,600 all keys as one."""
    position = {16: 5000, 33: 8300, 128: 65600}[rows]
    spans = [(0, rows, position, position)] if rows < 128 else [(0, 126, 60, 60), (1, 2, position, position)]
    for dim in (32, 160) if rows == 33 else (32,):
        check(Call(spans, heads=1, kv_heads=1, dim=dim))


def test_a_window_in_parts_of_groups() -> None:
    """Rows whose window begins on both sides of a group of pages."""
    check(Call([(0, 33, 4096 + 180, 4096 + 180)], window=200, heads=1, kv_heads=1, dim=32))
    check(Call([(0, 128, 8192, 8192)], window=4200, causal=True, heads=1, kv_heads=1, dim=32))


@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_rows_that_are_not_numbers(part: str) -> None:
    call = Call([(0, 3, 300, 300), (1, 4, 60, 60)], window=290, causal=True, dim=64)
    getattr(call, part)[1, 1, 5] = np.inf if part == "v" else np.nan
    check(call)


def ring_of(call: Call, slot: int) -> tuple[np.ndarray, np.ndarray]:
    """K and V of the first kv head as [page, tile, 32 keys, dim], to be written to; the slot's pages must lie in order."""
    tiles = call.cache.pages[call.cache.table[slot, 0] :, 0].view(np.float16)
    dim = tiles.shape[-1] // 32
    return tiles[:, :, 0].reshape(-1, 8, dim, 32).swapaxes(-1, -2), tiles[:, :, 1].reshape(-1, 8, 32, dim)


def test_absent_keys_take_no_part() -> None:
    """What a ring holds in front of a window and behind a block changes nothing."""
    call = Call([(0, 4, 40, 40)], window=30, causal=True, heads=2, kv_heads=1, dim=32)
    want = call.run("emulated")[:4]
    for part in ring_of(call, 0):
        part[0, 0, :10], part[0, 1, 12:], part[0, 2:] = np.nan, np.nan, np.inf
    assert_same(call.run("emulated")[:4], want)
    assert_same(call.run("cpu")[:4], want)


def test_absent_keys_do_not_touch_the_sign_of_a_zero() -> None:
    """One key has all the weight and values of 0; the products of the others round to -0, and so does the sum."""
    call = Call([(0, 1, 40, 40)], heads=1, kv_heads=1, dim=32)
    q = call.run("cpu")[4][0, 0]
    keys, values = ring_of(call, 0)
    keys[...], values[...] = 0, 1
    keys[0, 0, 3] = q * np.float32(95 * np.sqrt(32) / (q @ q))
    values[0, 0], values[0, 1, :8], values[0, 0, :4] = -1e-7, -1e-7, 0
    call.k[...], call.v[...] = 0, -1e-7
    want = call.run("cpu")
    assert (want[0] == 0).all()
    assert np.signbit(want[0]).all()
    check(call)


def convolve(spans, group, side, x, delta, base, h, device, order="forward"):
    h = h.copy()
    y = testing.hip.draft_conv(spans, group, side, x, delta, base, h, device=device, order=order)
    return (h,) if h.size else y


@pytest.mark.parametrize(("hidden", "group"), [(32, 1), (96, 6), (1024, 32), (1056, 32), (2080, 10), (3200, 3200)])
@pytest.mark.parametrize("residual", [False, True])
def test_convolution(hidden: int, group: int, residual: bool) -> None:
    rng = np.random.default_rng(hidden)
    spans = [(0, 3, 5, 5), (1, 1, 0, 0), (2, 7, 9, 2)]
    x = rng.normal(0, 1, (11, hidden)).astype(np.float32)
    x[4, 5] = np.nan
    delta = rng.normal(0, 0.3, (11, 4 * (hidden // group))).astype(np.float32)
    base = rng.normal(0, 1, (4, hidden)).astype(np.float32)
    h = rng.normal(0, 1, (11 if residual else 0, hidden)).astype(np.float32)
    for side in (0, 1):
        want = convolve(spans, group, side, x, delta, base, h, "cpu")
        for chip in CHIPS if hidden == 1056 else CHIPS[:1]:
            assert_same(convolve(spans, group, side, x, delta, base, h, f"emulated:{chip}", "shuffled"), want)


def candidates(logits: np.ndarray, k: int, device: str, order: str = "forward", **options: float) -> tuple:
    ids, values = testing.hip.top_k(np.ascontiguousarray(logits), k, **options, device=device, order=order)
    return ids, np.ascontiguousarray(values[:, :k])


def logits_of(kind: str, rows: int, vocab: int) -> np.ndarray:
    rng = np.random.default_rng(vocab)
    x = rng.normal(0, 3, (rows, vocab)).astype(np.float32)
    if kind == "few values":
        x = np.round(x / 4)
    elif kind == "all equal":
        x[...] = -1.5
    elif kind == "zeros of both signs":
        x = np.where(x < 0, np.float32(-0.0), np.float32(0.0))
    elif kind == "descending":
        x = np.sort(x, -1)[:, ::-1]
    elif kind == "infinite":
        x[:, ::2], x[:, 5::7] = -np.inf, np.inf
    elif kind == "all lowest":
        x[...] = -np.inf
    elif kind == "in one work-item":  # ids of a part of 64 that are a workgroup apart
        x[:, ::256] += 100
    elif kind == "not numbers":
        x[0, vocab // 2], x[rows - 1, :] = np.nan, np.nan
    return x


KINDS = [
    "random", "few values", "all equal", "zeros of both signs", "descending", "infinite", "all lowest", "in one work-item", "not numbers",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 5, 16])
def test_top_k(kind: str, k: int) -> None:
    for vocab in (16, 17, 63, 64, 320, 1000, 5003):
        x = logits_of(kind, 3, vocab)
        assert_same(candidates(x, k, "emulated"), candidates(x, k, "cpu"))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["random", "few values", "in one work-item"])
def test_top_k_on_chips(chip: str, kind: str) -> None:
    """Parts of 64 x 256 values and more, in which a work-item has several; where the best are one work-item's they are found in turn."""
    x = logits_of(kind, 2, 700_000 if kind == "in one work-item" else 250_000)
    for order in ["forward", "shuffled"]:
        assert_same(candidates(x, 16, f"emulated:{chip}", order), candidates(x, 16, "cpu"))


@pytest.mark.parametrize("softcap", [0.0, 20.0])
@pytest.mark.parametrize("multiplier", [1.0, 0.2, -1.0])
def test_top_k_of_capped_logits(multiplier: float, softcap: float) -> None:
    """Large logits meet at the cap: the earlier id comes first."""
    x = 100 * logits_of("random", 2, 3000)
    options = {"multiplier": multiplier, "softcap": softcap}
    assert_same(candidates(x, 16, "emulated", **options), candidates(x, 16, "cpu", **options))
