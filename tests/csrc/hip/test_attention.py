"""Attention of the HIP kernels on the emulator: every cache form, both sides of tiles, segments and groups; the portable bits."""

from __future__ import annotations

import numpy as np
import pytest
from cases import CHIPS, CONTEXTS, KV_FORMS, assert_same
from csrc.ops.test_attention import EPS, SHAPES, Call
from lucebox._core import testing


def on_device(call: Call, device="emulated:gfx12", order="forward"):
    qg, k, pages = call.qg.copy(), call.k.copy(), call.cache.pages.copy()
    y = testing.hip.attention(
        call.rows, call.cache.form, EPS, call.dim, qg, k, call.v, call.q_norm, call.k_norm, call.cos, call.sin,
        pages.reshape(len(pages), -1), call.cache.table, device=device, order=order,
    )  # fmt: skip
    return y, pages


def check(call: Call, **options) -> None:
    want, pages = call.run()
    got, got_pages = on_device(call, **options)
    assert_same(got, want)
    assert (got_pages == pages).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", KV_FORMS)
def test_shapes(form, shape):
    heads, kv_heads, dim, rope_dims = shape
    contexts = CONTEXTS if heads <= 3 else [n for n in CONTEXTS if n < 4000] + ([4097] if form == "q8_0" else [])
    check(Call(form, contexts, heads=heads, kv_heads=kv_heads, dim=dim, rope_dims=rope_dims, seed=heads))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("form", KV_FORMS)
def test_chips(form, chip):
    check(Call(form, [1, 33, 300, 257], seed=1), device=f"emulated:{chip}")


@pytest.mark.parametrize("order", ["forward", "shuffled"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dim", [128, 256])
def test_tile_products(dim, chip, order):
    """Heads of 128 and 256 in q8_0 pages take the tile kernels where the chip has matrix units."""
    check(Call("q8_0", [1, 33, 300, 257], heads=6, kv_heads=2, dim=dim, seed=8), device=f"emulated:{chip}", order=order)


@pytest.mark.parametrize("order", ["backward", "shuffled"])
@pytest.mark.parametrize("form", KV_FORMS)
def test_orders(form, order):
    check(Call(form, [31, 300], seed=2), order=order)


@pytest.mark.parametrize("form", KV_FORMS)
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 30.0])
def test_scales(form, scale):
    for dim in (64, 128):
        check(Call(form, [5, 33, 300], dim=dim, scale=scale, seed=3))


@pytest.mark.parametrize("rows", [1, 3, 16, 64, 128])
@pytest.mark.parametrize(("form", "dim"), [*((form, 32) for form in KV_FORMS), ("q8_0", 128)])
def test_rows_of_one_sequence(form, dim, rows):
    first = 230
    call = Call(form, [first + rows], heads=3, kv_heads=1, dim=dim, rope_dims=16, seed=4)
    rng = np.random.default_rng(5)
    call.rows = [(0, first + i) for i in range(rows)]
    call.qg, call.k, call.v = (
        rng.normal(0, 1, (rows, *x.shape[1:])).astype(np.float32) for x in (call.qg, call.k, call.v)
    )
    call.cos, call.sin = np.repeat(call.cos, rows, 0), np.repeat(call.sin, rows, 0)
    check(call)


@pytest.mark.parametrize(
    ("chip", "form", "dim"),
    [
        *(("gfx12", form, 32) for form in KV_FORMS),
        ("gfx12", "q8_0", 128),
        ("nvidia", "q8_0", 128),
        ("nvidia", "q8_0", 256),
    ],
)
@pytest.mark.parametrize(("rows", "n"), [(16, 5000), (33, 4400), (33, 8300), (128, 65600)])
def test_parts_of_a_group_and_of_all_keys(chip, form, dim, rows, n):
    """Segments up to 2,048 rows x parts; 33 rows at 8,300 keys take parts of 4,096, 128 rows at 65,600 all keys as one."""
    call = Call(form, [n], heads=1, kv_heads=1, dim=dim, rope_dims=2, seed=6)
    rng = np.random.default_rng(7)
    call.rows = [(0, i) for i in range(rows - 1)] + [(0, n - 1)]
    call.qg, call.k, call.v = (
        rng.normal(0, 1, (rows, *x.shape[1:])).astype(np.float32) for x in (call.qg, call.k, call.v)
    )
    call.cos, call.sin = np.repeat(call.cos, rows, 0), np.repeat(call.sin, rows, 0)
    check(call, device=f"emulated:{chip}")


@pytest.mark.parametrize("form", KV_FORMS)
@pytest.mark.parametrize("part", ["k", "v", "q", "gate"])
@pytest.mark.parametrize("dim", [64, 128])
def test_rows_that_are_not_numbers(form, part, dim):
    call = Call(form, [40, 300], dim=dim, seed=6)
    if part == "q":
        call.qg[0, 1, 0, 5] = np.nan
    elif part == "gate":
        call.qg[0, 1, 1, 5] = np.nan
    else:
        getattr(call, part)[0, 1, 5] = np.inf if part == "v" else np.nan
    check(call)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("form", KV_FORMS)
def test_absent_keys_take_no_part(form, dim):
    """What a page holds behind a row's position, NaN scales too, changes nothing."""
    call = Call(form, [37], dim=dim, seed=7)
    want, _ = on_device(call)
    tile = call.cache.pages[call.cache.table[0, 0], :, 1]  # tokens 32 .. 63
    for p in range(2):
        values, scales = call.cache.views(tile[:, p], p == 0)
        values[:, 5:] = 100 if form == "q8_0" else np.nan
        if scales is not None:
            scales[:, 5:] = np.nan
    assert_same(on_device(call)[0], want)
