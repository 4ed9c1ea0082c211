"""Every block format against the `gguf` package, bit by bit: random blocks, and every bit pattern of the scales."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from lucebox._core import dequantize, tensor_types
from lucebox.errors import RequestError

TYPES = {
    name: (gguf.GGMLQuantizationType(id), block, nbytes) for id, name, block, nbytes, matrix in tensor_types() if matrix
}
# Bytes of a block that hold the f16 scale and minimum, or the exponent of MXFP4; IQ1_M spreads its scale over four u16.
SCALES = {
    "q4_0": [0],
    "q4_1": [0, 2],
    "q5_0": [0],
    "q5_1": [0, 2],
    "q8_0": [0],
    "q2_K": [80, 82],
    "q3_K": [108],
    "q4_K": [0, 2],
    "q5_K": [0, 2],
    "q6_K": [208],
    "iq1_s": [0],
    "iq2_xxs": [0],
    "iq2_xs": [0],
    "iq2_s": [0],
    "iq3_xxs": [0],
    "iq3_s": [0],
    "iq4_nl": [0],
    "iq4_xs": [0],
    "f16": [0],
    "bf16": [0],
}


def random_blocks(name: str, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, TYPES[name][2]), dtype=np.uint8)


def check(name: str, blocks: np.ndarray) -> None:
    """Equal bits; NaN is NaN whatever its payload."""
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(blocks, TYPES[name][0]).reshape(-1).astype(np.float32)
    got = dequantize(name, blocks)
    assert got.dtype == np.float32
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all()
    assert (got.view(np.uint32)[~nan] == want.view(np.uint32)[~nan]).all()


def test_the_table():
    sizes = {t.name: (int(t), *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType}
    for id, name, block, nbytes, _ in tensor_types():
        if name in ("q8_1", "q1_0", "q2_0"):  # the package has 40 bytes for the first and may lack the others
            continue
        assert (id, block, nbytes) == sizes[name.upper()], name
    assert len(TYPES) == 23


@pytest.mark.parametrize("name", TYPES)
def test_random_blocks(name):
    check(name, random_blocks(name, 4000, 1))
    check(name, random_blocks(name, 1, 2))


@pytest.mark.parametrize(("name", "at"), [(n, at) for n, places in SCALES.items() for at in places])
def test_every_f16_scale(name, at):
    """All 65,536: both zeros, subnormals, infinities and NaN among them."""
    blocks = random_blocks(name, 65536, 3)
    blocks[:, at : at + 2] = np.arange(65536, dtype="<u2").view(np.uint8).reshape(-1, 2)
    check(name, blocks)


def test_every_mxfp4_exponent():
    blocks = random_blocks("mxfp4", 256, 4)
    blocks[:, 0] = np.arange(256)
    check("mxfp4", blocks)


def test_every_iq1_m_scale():
    bits = np.arange(65536, dtype=np.uint32)
    blocks = random_blocks("iq1_m", 65536, 5)
    words = blocks[:, 48:].copy().view("<u2")
    for i in range(4):
        words[:, i] = (words[:, i] & 0xFFF) | ((bits >> 4 * i & 15) << 12).astype(np.uint16)
    blocks[:, 48:] = words.view(np.uint8)
    check("iq1_m", blocks)


@pytest.mark.parametrize("name", TYPES)
def test_every_value_of_every_byte(name):
    """Each byte of a block takes all its values: each sub-block scale, each quant, each grid row, each sign."""
    base = random_blocks(name, 1, 6)[0]
    for at in SCALES.get(name, []):
        base[at : at + 2] = (0, 0x3C)  # 1.0
    blocks = np.repeat(base[None], 256 * len(base), axis=0)
    for i in range(len(base)):
        blocks[256 * i : 256 * (i + 1), i] = np.arange(256)
    check(name, blocks)


def test_refused():
    with pytest.raises(RequestError, match="35 bytes are no whole blocks of type q8_0, which have 34"):
        dequantize("q8_0", np.zeros(35, np.uint8))
    with pytest.raises(RequestError, match='"q8" is no tensor type'):
        dequantize("q8", np.zeros(34, np.uint8))
    for _, name, _, nbytes, matrix in tensor_types():
        if not matrix:
            with pytest.raises(RequestError, match=f"type {name} cannot be decoded"):
                dequantize(name, np.zeros(nbytes, np.uint8))
    assert dequantize("q4_K", np.zeros(0, np.uint8)).shape == (0,)
