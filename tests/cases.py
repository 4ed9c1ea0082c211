"""Sweeps as data, and what the tests of the ops share: variants, blocks with sane scales, comparison by bits."""

from __future__ import annotations

import numpy as np
from lucebox._core import tensor_types, variants

VARIANTS = variants()
FAST = [v for v in VARIANTS if v != "portable"]
TYPES = {name: (block, nbytes) for _, name, block, nbytes, matrix in tensor_types() if matrix}
FLOAT_TYPES = ["f32", "f16", "bf16"]
MINIMUM_TYPES = ["q4_1", "q5_1", "q2_K", "q4_K", "q5_K"]

# Outputs of a weight: no multiple of the 16 of a tile, one tile, several.
OUTPUTS = [1, 6, 16, 17, 48, 100]
ROWS = [1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 128]
# Columns: one block, an odd number of 32s (32-value types only), parts of a segment of 1,024, whole segments, both.
COLUMNS_32 = [32, 96, 288, 992, 1024, 1056, 2080]
COLUMNS_256 = [256, 768, 1024, 1280, 2304]
# Tokens a row sees: both sides of a tile, a page and a group of pages.
CONTEXTS = [1, 31, 32, 33, 255, 257, 4097, 5000]
KV_FORMS = ["q8_0", "f16", "f32"]
# Chips that the emulator knows.
CHIPS = ["gfx12", "gfx11", "gfx9", "nvidia"]


def columns_of(name: str) -> list[int]:
    return COLUMNS_256 if TYPES[name][0] == 256 else COLUMNS_32


def scale_places(name: str) -> list[int]:
    """Where a block holds its f16 scale and minimum; MXFP4 and IQ1_M have none of that form."""
    if name in ("mxfp4", "iq1_m"):
        return []
    return {"q2_K": [80, 82], "q3_K": [108], "q6_K": [208]}.get(name, [0, 2] if name in MINIMUM_TYPES else [0])


def blocks(name: str, rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Random bits with scales near 0.01, as a trained weight has them; [rows, row_bytes]."""
    block, nbytes = TYPES[name]
    if name in FLOAT_TYPES:
        values = rng.normal(0, 0.02, (rows, columns)).astype(np.float32)
        if name == "f16":
            return values.astype(np.float16).view(np.uint8)
        if name == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.view(np.uint8)
    data = rng.integers(0, 256, (rows * columns // block, nbytes), dtype=np.uint8)
    for at in scale_places(name):
        scales = rng.uniform(0.005, 0.02, len(data)).astype(np.float16) / (8 if at == scale_places(name)[-1] else 1)
        data[:, at : at + 2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
    if name == "mxfp4":
        data[:, 0] = rng.integers(116, 122, len(data))
    if name == "iq1_m":  # the four high nibbles of 16-bit words are an f16
        bits = rng.uniform(0.005, 0.02, len(data)).astype(np.float16).view(np.uint16)
        words = data[:, 48:56].view(np.uint16)
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0FFF) | ((bits >> (4 * i) & 15) << 12)
    return data.reshape(rows, -1)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, bit by bit; a NaN equals a NaN whatever its payload."""
    if a.dtype != np.float32:
        return bool(np.array_equal(a, b))
    nan = np.isnan(a)
    return bool((np.isnan(b) == nan).all() and (a.view(np.uint32)[~nan] == b.view(np.uint32)[~nan]).all())


def assert_same(a, b) -> None:
    """For arrays, or tuples of them such as (x, q, d, sum) of quantised rows."""
    if isinstance(a, np.ndarray):
        assert a.shape == b.shape
        assert same_bits(a, b)
        return
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert_same(x, y)


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The contract's int8 rows (q, d, sums of 16), in numpy's float32."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    with np.errstate(all="ignore"):
        amax = np.abs(groups).max(-1)
        finite = np.isfinite(groups).all(-1)
        zero = ~finite | (amax < np.float32(2.0**-100))
        q = np.where(zero[..., None], np.float32(0), np.rint(groups * (np.float32(127) / amax)[..., None]))
        d = np.where(finite, np.where(zero, np.float32(0), amax / np.float32(127)), np.float32(np.nan))
    q = q.astype(np.int8)
    return q.reshape(x.shape), d, q.astype(np.int32).reshape(*x.shape[:-1], -1, 16).sum(-1, dtype=np.int32)
