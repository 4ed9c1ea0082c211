"""The drafter beyond its window: spiritbuun/buun-llama-cpp#32, ikawrakow/ik_llama.cpp PR 2021, Luce-Org/lucebox#740, z-lab/dflash#66.

Right: drafts equal the reference's at every length, positions far out are absolute, and a file without window keys has a
documented default.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import SequenceParams, StepWork, testing
from lucebox.selftest import tiny
from lucebox.selftest.tiny_draft import TinyDrafter, write
from reference import dflash

WINDOW = 64
DRAFTER = TinyDrafter(window=(WINDOW, WINDOW))
CONTEXTS = [1, 63, 64, 65, 127, 128, 1000, 5000]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, _core.GGUFFile]:
    folder: Path = tmp_path_factory.mktemp("replay6")
    tiny.write(folder / "t.gguf", tiny.TinyModel(seed=12, context_length=8192))
    write(folder / "d.gguf", DRAFTER)
    return {"file": _core.GGUFFile(str(folder / "t.gguf")), "draft": _core.GGUFFile(str(folder / "d.gguf"))}


def tokens(n: int) -> list[int]:
    return np.random.RandomState(n).randint(0, 256, n).tolist()


def feed(engine: _core.Engine, ids: list[int]) -> int:
    engine.begin(0, SequenceParams(), ids)
    for at in range(0, len(ids), 128):
        part = ids[at : at + 128]
        result = engine.step([StepWork(0, part, emit=at + len(part) == len(ids))])[0]
    return result.token_ids[0]


def weights(file: _core.GGUFFile, name: str) -> np.ndarray:
    return _core.dequantize("f32", np.array(file.data(name))).reshape(320, -1).astype(np.float64)


@pytest.mark.parametrize("context", CONTEXTS)
def test_drafted_ids_are_the_references(files: dict[str, _core.GGUFFile], context: int) -> None:
    engine = _core.Engine(**files, max_ctx=8192, threads=1)
    ids = tokens(context)
    anchor = feed(engine, ids)
    candidates, edges = testing.draft(engine, 0, anchor, 8)
    reference = dflash.Drafter(DRAFTER)
    taps = _core.Engine(files["file"], max_ctx=8192, threads=1).hidden(ids, list(DRAFTER.taps)).astype(np.float64)
    reference.context(np.concatenate(list(taps), -1))
    rows = reference.block(weights(files["file"], "token_embd.weight")[[anchor] + [DRAFTER.mask_token] * 7])[1:]
    logits = reference.logits(rows, weights(files["file"], "output.weight"))
    order = np.argsort(-logits, -1, kind="stable")[:, :16]
    expected, before = [], anchor
    for i, edge in enumerate(reference.edges(rows, order, np.take_along_axis(logits, order, -1), anchor)):
        place = 0 if i == 0 else order[i - 1].tolist().index(before)
        before = int(order[i, edge[place].argmax()])
        expected.append(before)
    assert testing.select(candidates, edges, 16)[0] == expected


def test_a_cancelled_step_leaves_the_ring_as_it_was(files: dict[str, _core.GGUFFile]) -> None:
    engine = _core.Engine(**files, max_ctx=8192, threads=1)
    anchor = feed(engine, tokens(200))
    before = testing.draft(engine, 0, anchor, 8)
    engine.step([StepWork(0, limit=16, look=True)])
    testing.draft(engine, 0, 7, 16)
    after = testing.draft(engine, 0, anchor, 8)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_shorter_request_on_the_same_slot(files: dict[str, _core.GGUFFile]) -> None:
    used, fresh = (_core.Engine(**files, max_ctx=8192, threads=1) for _ in range(2))
    feed(used, tokens(3000))
    anchor = feed(used, tokens(20))
    assert feed(fresh, tokens(20)) == anchor
    assert all(
        np.array_equal(a, b)
        for a, b in zip(testing.draft(used, 0, anchor, 8), testing.draft(fresh, 0, anchor, 8), strict=True)
    )


def test_a_file_without_window_keys(tmp_path: Path, files: dict[str, _core.GGUFFile]) -> None:
    """Version 2 slides over 2,048 positions, as all published ones do; version 1 sees the whole context."""
    none = [
        ("dflash.attention.sliding_window", "u32", None),
        ("dflash.attention.sliding_window_pattern", "bool[]", None),
    ]
    write(tmp_path / "bare.gguf", TinyDrafter(window=(2048, 2048)), none)
    write(tmp_path / "told.gguf", TinyDrafter(window=(2048, 2048)))
    results = []
    for name in ("bare", "told"):
        engine = _core.Engine(
            file=files["file"], draft=_core.GGUFFile(str(tmp_path / f"{name}.gguf")), max_ctx=4096, threads=1
        )
        anchor = feed(engine, tokens(2500))
        results.append(testing.draft(engine, 0, anchor, 8))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
