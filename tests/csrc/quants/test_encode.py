"""The encoders: the bytes of gguf's and ggml's own, and what must hold for any of them."""

from __future__ import annotations

import ctypes

import gguf
import numpy as np
import pytest
from lucebox._core import dequantize, quantize
from lucebox.errors import RequestError

QUANTS = ["q8_0", "q4_0", "q4_K", "q6_K", "iq4_xs"]
FLOATS = ["f32", "f16", "bf16"]
# Root of the mean squared error over that of the values, on normal values: a little above what the formats reach.
ERROR = {"q8_0": 0.006, "q4_0": 0.09, "q4_K": 0.075, "q6_K": 0.02, "iq4_xs": 0.08}


def cases(rows: int = 40, columns: int = 1024) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    normal = rng.standard_normal((rows, columns))
    made = {
        "normal": normal * 0.02,
        "heavy tails": rng.standard_t(2, (rows, columns)),
        "sparse": normal * (rng.random((rows, columns)) < 0.1),
        "positive": np.abs(normal),
        "negative": -np.abs(normal) - 1,
        "integers": rng.integers(-5, 6, (rows, columns)),
        "tiny": normal * 1e-15,
        "scales of all sizes": normal * 10.0 ** rng.integers(-38, 17, (rows, columns // 32)).repeat(32, 1),
        "zero": np.zeros((rows, columns)),
        "minus zero": np.zeros((rows, columns)) * -1,
        "constant": np.ones((rows, columns)) * rng.standard_normal((rows, 1)),
        "subnormal": normal * 1e-41,
    }
    return {name: np.ascontiguousarray(x, np.float32) for name, x in made.items()}


CASES = cases()


def importances(columns: int) -> list[np.ndarray | None]:
    rng = np.random.default_rng(8)
    return [
        None,
        rng.random(columns, np.float32) ** 4,
        (rng.random(columns) < 0.5).astype(np.float32),
        np.zeros(columns, np.float32),
    ]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["q8_0", "q4_0", *FLOATS])
def test_bytes_of_the_gguf_package(name, case):
    x = (
        CASES[case] + 0 if name == "q4_0" else CASES[case]
    )  # the package takes the sign of a group's first zero, ggml does not
    with np.errstate(all="ignore"):
        want = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name.upper()]).view(np.uint8).reshape(len(x), -1)
    got = quantize(name, x)
    if case == "subnormal" and name in ("q8_0", "q4_0"):  # 1 / d overflows; what the quants are then means nothing
        assert not dequantize(name, got).any()
    else:
        assert (got == want).all()


def test_every_f16_and_bf16_comes_back():
    bits = np.arange(65536, dtype=np.uint16)
    for name in ("f16", "bf16"):
        x = dequantize(name, bits.view(np.uint8))
        back = quantize(name, x[None]).view(np.uint16)[0]
        finite = ~np.isnan(x)
        assert (back[finite] == bits[finite]).all()
        assert np.isnan(dequantize(name, back.view(np.uint8))[~finite]).all()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_halfway_values_round_to_even(name):
    """Around each representable number and each middle between two: one f32 below, the value, one f32 above."""
    x = dequantize(name, np.arange(0x7C00 if name == "f16" else 0x7F80, dtype=np.uint16).view(np.uint8))
    middle = (x[:-1].astype(np.float64) + x[1:]) / 2
    at = np.concatenate([x, middle.astype(np.float32), [np.float32(65520), np.finfo(np.float32).max]]).astype(
        np.float32
    )
    with np.errstate(over="ignore"):
        values = np.concatenate([np.nextafter(at, np.float32(-np.inf)), at, np.nextafter(at, np.float32(np.inf))])
        values = np.concatenate([values, -values]).astype(np.float32)
        got = quantize(name, values[None]).view(np.uint16)[0]
        want = (
            values.astype(np.float16).view(np.uint16)
            if name == "f16"
            else gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16).view(np.uint16)
        )
    assert (got == want).all()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", QUANTS)
def test_a_row_does_not_depend_on_the_others(name, case):
    for importance in importances(1024):
        whole = quantize(name, CASES[case], importance)
        assert (np.concatenate([quantize(name, row[None], importance) for row in CASES[case]]) == whole).all()


@pytest.mark.parametrize("name", QUANTS)
def test_error(name):
    x = np.random.default_rng(9).standard_normal((64, 1024)).astype(np.float32)
    y = dequantize(name, quantize(name, x)).reshape(x.shape)
    assert np.sqrt(np.mean((x - y) ** 2)) < ERROR[name]


@pytest.mark.parametrize("name", ["q4_0", "q4_K", "q6_K", "iq4_xs"])
def test_importance_moves_the_error(name):
    x = np.random.default_rng(10).standard_normal((64, 1024)).astype(np.float32)
    importance = np.where(np.arange(1024) % 8 == 0, 100, 1).astype(np.float32)

    def weighted(data):
        return np.mean(importance * (dequantize(name, data).reshape(x.shape) - x) ** 2)

    assert weighted(quantize(name, x, importance)) < weighted(quantize(name, x))


@pytest.mark.parametrize("name", QUANTS)
def test_zeros_stay_zeros(name):
    assert not dequantize(name, quantize(name, np.zeros((2, 256), np.float32))).any()


@pytest.mark.parametrize("name", [*QUANTS, *FLOATS])
def test_no_rows(name):
    assert quantize(name, np.zeros((0, 256), np.float32)).shape[0] == 0


def test_refused():
    x = np.ones((2, 256), np.float32)
    with pytest.raises(RequestError, match="type q5_K has no encoder"):
        quantize("q5_K", x)
    with pytest.raises(RequestError, match="rows have 128 values; type q4_K needs a multiple of 256"):
        quantize("q4_K", x[:, :128].copy())
    with pytest.raises(RequestError, match=r"1 dimensions; \[rows, columns\] is wanted"):
        quantize("q8_0", x[0])
    with pytest.raises(RequestError, match="importance has 255 values for 256 columns"):
        quantize("q4_K", x, np.ones(255, np.float32))
    for bad in (-1, np.nan, np.inf):
        with pytest.raises(RequestError, match="importance of column 0"):
            quantize("q4_K", x, np.full(256, bad, np.float32))
    for bad in (np.nan, np.inf, -np.inf):
        x[1, 3] = bad
        with pytest.raises(RequestError, match="value 259 is not finite"):
            quantize("iq4_xs", x)


@pytest.fixture(scope="module")
def ggml():
    import xllamacpp

    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    ]
    return library


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [*QUANTS, "f16", "bf16"])
def test_bytes_of_ggml(ggml, name, case):
    x, type = CASES[case], gguf.GGMLQuantizationType[name.upper()]
    for importance in importances(x.shape[1]):
        got = quantize(name, x, importance)
        want = np.zeros_like(got)
        weights = None if importance is None else importance.ctypes.data
        assert ggml.ggml_quantize_chunk(int(type), x.ctypes.data, want.ctypes.data, 0, *x.shape, weights) == want.nbytes
        assert (got == want).all()
