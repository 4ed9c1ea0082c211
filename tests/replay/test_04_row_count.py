"""The answer depends on how many rows are verified: ggml-org/llama.cpp#27407, #25618, Luce-Org/lucebox#625 and others.

Right: a row's logits are the same bits whatever the width, the place in the batch, the sequences beside it and the threads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox.selftest import tiny
from lucebox.selftest.checks import MATRIX_TYPES

WIDTHS = [*range(1, 18), 31, 32, 33]
VARIANTS = _core.variants()


def open_engine(path: Path, **options: object) -> _core.Engine:
    return _core.Engine(_core.GGUFFile(str(path)), **{"max_ctx": 256, "threads": 2, **options})


def tokens(n: int) -> list[int]:
    return np.random.RandomState(4).randint(0, 300, n).tolist()


def in_calls(engine: _core.Engine, ids: list[int], width: int, first: int = 0) -> np.ndarray:
    """All logits, `width` tokens a call; the first call has `first` if that is not 0."""
    engine.reset(0)
    cuts = [0, *range(first or width, len(ids), width), len(ids)]
    return np.concatenate([engine.forward([(0, ids[a:b])], "all") for a, b in zip(cuts, cuts[1:], strict=False)])


@pytest.mark.parametrize("type", MATRIX_TYPES.split())
def test_widths(tmp_path: Path, type: str) -> None:
    path, ids = tmp_path / "tiny.gguf", tokens(66)
    tiny.write(path, tiny.TinyModel(types=type, ff=1280, seed=4))
    expected = in_calls(open_engine(path, variant=VARIANTS[-1]), ids, 1)
    for variant in VARIANTS:
        engine = open_engine(path, variant=variant)
        for width in WIDTHS if variant == VARIANTS[-1] else (1, 5, 33):
            assert np.array_equal(in_calls(engine, ids, width), expected), f"{variant}, {width} rows"
    assert np.array_equal(in_calls(engine, ids, 16, first=5), expected)


@pytest.mark.parametrize("variant", VARIANTS[1:] or VARIANTS)
def test_wide_calls_places_and_threads(tmp_path: Path, variant: str) -> None:
    path, ids = tmp_path / "tiny.gguf", tokens(128)
    types = MATRIX_TYPES.split()
    tiny.write(path, tiny.TinyModel(types=lambda name: types[sum(name.encode()) % len(types)], seed=5))
    expected = in_calls(open_engine(path, variant=variant), ids, 1)
    for threads in (1, 2, 3, 16):
        engine = open_engine(path, variant=variant, threads=threads)
        for width in (127, 128):
            assert np.array_equal(in_calls(engine, ids, width), expected), f"{threads} threads, {width} rows"
    for sequences in range(1, 9):  # the row's own sequence stands in the middle of others
        engine = open_engine(path, variant=variant, slots=sequences)
        own = sequences // 2
        batch = [(s, ids[:9] if s == own else tokens(40)[s : s + 3 + s]) for s in range(sequences)]
        at = sum(len(part) for _, part in batch[:own])
        assert np.array_equal(engine.forward(batch, "all")[at : at + 9], expected[:9]), f"{sequences} sequences"


def test_best_logits_one_ulp_apart(tmp_path: Path) -> None:
    """Each token has a twin whose head row differs in the last bits: an order of sums that moved would show as another token."""
    path, ids = tmp_path / "tiny.gguf", tokens(96)
    model = tiny.TinyModel(types=lambda name: "f32" if name == "output.weight" else "iq4_xs", seed=6)
    tensors = tiny.tensors(model)
    name, type, dims, data = next(t for t in tensors if t[0] == "output.weight")
    head = data.view(np.float32).reshape(dims[1], dims[0]).copy()
    half = dims[1] // 2
    head[half:] = head[:half]
    head[half:, ::7] = np.nextafter(head[half:, ::7], np.float32(np.inf))
    tensors[tensors.index((name, type, dims, data))] = (name, type, dims, head.view(np.uint8).reshape(-1))
    _core.write_gguf(str(path), tiny.metadata(model), tensors)

    expected = in_calls(open_engine(path, variant="portable"), ids, 1)
    top = np.sort(expected, axis=1)[:, -2:]
    gaps = top.view(np.int32)[:, 1] - top.view(np.int32)[:, 0]
    assert ((gaps >= 0) & (gaps <= 1)).sum() >= 10, "the model was to have near ties"
    for variant in VARIANTS:
        engine = open_engine(path, variant=variant)
        for width in (2, 3, 4, 7, 8, 16):
            got = in_calls(engine, ids, width)
            assert np.array_equal(got.argmax(axis=1), expected.argmax(axis=1))
            assert np.array_equal(got, expected)
