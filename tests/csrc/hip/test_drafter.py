"""The drafter on a device: candidates, scores and text equal to the CPU's by bits. The emulator; a GPU with LUCEBOX_TEST_DEVICE=cuda:0."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from cases import CHIPS
from lucebox import _core, devices
from lucebox._core import SequenceParams, StepWork, testing
from lucebox.selftest import tiny
from lucebox.selftest.tiny_draft import TinyDrafter, write

DEVICE = os.environ.get("LUCEBOX_TEST_DEVICE", "emulated")
ON_GPU = DEVICE != "emulated"
DRAFTERS = {
    "dflash2": TinyDrafter(layers=1, window=(64,), taps=(0, 1)),
    "softcap, five candidates": TinyDrafter(
        layers=1, window=(33,), taps=(1,), multiplier=0.2, softcap=20.0, top_k=5, rank=40
    ),
    "v1, sliding and full": TinyDrafter(
        version=1, window=(64, 0), causal=None, taps=(0, 1), heads=6, kv_heads=2, head_dim=96
    ),
    "quantised": TinyDrafter(layers=1, window=(300,), taps=(0,), types="q8_0", ff=512, rank=64),
}
CONTEXTS = [1, 63, 64, 65, 257, 1000, 5000] if ON_GPU else [70]
WIDTHS = [2, 8, 16] if ON_GPU else [5]


def pair(folder: Path, drafter: TinyDrafter) -> dict[str, _core.GGUFFile]:
    """A target of two layers, and the drafter."""
    made = tiny.TinyModel(layers=2, seed=6)
    keys = [(k, t, 2 if k == "qwen35.full_attention_interval" else v) for k, t, v in tiny.metadata(made)]
    _core.write_gguf(str(folder / "t.gguf"), keys, tiny.tensors(made, interval=2))
    write(folder / "d.gguf", drafter)
    return {"file": _core.GGUFFile(str(folder / "t.gguf")), "draft": _core.GGUFFile(str(folder / "d.gguf"))}


def open_engine(
    files: dict, device: str, *, chip: str = "auto", launch: str = "auto", **options: object
) -> _core.Engine:
    variant = chip if device == "emulated" else "auto"
    return _core.Engine(
        **files, **{"max_ctx": 8192, **options}, **devices.options(device, variant=variant, launch=launch, threads=1)
    )


def tokens(n: int) -> list[int]:
    return np.random.RandomState(n).randint(0, 256, n).tolist()


def feed(engine: _core.Engine, ids: list[int], slot: int = 0) -> int:
    engine.begin(slot, SequenceParams(), ids)
    for at in range(0, len(ids), engine.max_rows):
        part = ids[at : at + engine.max_rows]
        result = engine.step([StepWork(slot, part, emit=at + len(part) == len(ids))])[0]
    return result.token_ids[0]


@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts(tmp_path: Path, name: str) -> None:
    files = pair(tmp_path, DRAFTERS[name])
    k = DRAFTERS[name].top_k if DRAFTERS[name].version == 2 else 1
    for chip in ["auto"] if ON_GPU else CHIPS if name == "dflash2" else CHIPS[:1]:
        cpu, core = open_engine(files, "cpu"), open_engine(files, DEVICE, chip=chip)
        for context in CONTEXTS:
            ids = tokens(context)
            anchor = feed(cpu, ids)
            assert feed(core, ids) == anchor
            for width in WIDTHS:
                want, got = (testing.draft(e, 0, anchor, width) for e in (cpu, core))
                assert np.array_equal(got[0], want[0]), (chip, context, width)
                assert np.array_equal(got[1][0, 0, :k], want[1][0, 0, :k]), (chip, context, width)
                assert np.array_equal(got[1][1:, :k, :k], want[1][1:, :k, :k]), (chip, context, width)


@pytest.mark.parametrize("launch", ["graph", "split", "direct"] if ON_GPU else ["graph"])
def test_text_with_drafts(tmp_path: Path, launch: str) -> None:
    """Two sequences that draft in one batch, and one that does not: the tokens of plain decoding on the CPU."""
    files = pair(tmp_path, DRAFTERS["dflash2"])
    length = 40 if ON_GPU else 6
    cpu = open_engine({"file": files["file"]}, "cpu")
    prompts = [tokens(70 if ON_GPU else 20), tokens(9), tokens(33 if ON_GPU else 3)]
    expected = []
    for ids in prompts:
        text = [feed(cpu, ids)]
        while len(text) < length:
            text += cpu.step([StepWork(0, limit=1, draft=[])])[0].token_ids
        expected.append(text)
    core = open_engine(files, DEVICE, launch=launch, slots=3)
    texts = [[feed(core, ids, slot)] for slot, ids in enumerate(prompts)]
    while min(map(len, texts)) < length:
        running = [s for s in range(3) if len(texts[s]) < length]
        works = [StepWork(s, limit=length - len(texts[s]), draft=[] if s == 2 else None) for s in running]
        for result in core.step(works):
            assert not result.error
            texts[result.slot] += result.token_ids
    assert texts == expected
