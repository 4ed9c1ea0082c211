"""Drafting and verifying in one go: the path that a look in between would have taken, and the text of plain decoding.
The emulator; a GPU with LUCEBOX_TEST_DEVICE=cuda:0.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from cases import CHIPS
from lucebox import _core, devices
from lucebox._core import SequenceParams, StepWork, testing
from lucebox.errors import DeviceError, RequestError
from lucebox.selftest import tiny
from lucebox.selftest.tiny_draft import TinyDrafter, write

DEVICE = os.environ.get("LUCEBOX_TEST_DEVICE", "emulated")
ON_GPU = DEVICE != "emulated"


def pair(folder: Path) -> dict[str, _core.GGUFFile]:
    """A target of two layers, and the drafter."""
    made = tiny.TinyModel(layers=2, seed=6)
    keys = [(k, t, 2 if k == "qwen35.full_attention_interval" else v) for k, t, v in tiny.metadata(made)]
    _core.write_gguf(str(folder / "t.gguf"), keys, tiny.tensors(made, interval=2))
    write(folder / "d.gguf", TinyDrafter(layers=1, window=(64,), taps=(0, 1)))
    return {"file": _core.GGUFFile(str(folder / "t.gguf")), "draft": _core.GGUFFile(str(folder / "d.gguf"))}


def open_engine(files: dict, device: str, chip: str = "auto", launch: str = "auto", **options: object) -> _core.Engine:
    return _core.Engine(
        **files,
        **{"max_ctx": 512, "slots": 3, "max_rows": 64, **options},
        **devices.options(device, variant=chip if device == "emulated" else "auto", launch=launch, threads=1),
    )


def feed(core: _core.Engine, slot: int, ids: list[int], **params: object) -> int:
    core.begin(slot, SequenceParams(**params), ids)
    return core.step([StepWork(slot, ids, emit=True)])[0].token_ids[0]


def prompts() -> list[list[int]]:
    return [np.random.RandomState(n).randint(0, 256, n).tolist() for n in (20, 3, 9)]


BLOCKS = ((6, 6), (9, 4), (2, 2))


def test_the_path_is_that_of_the_selector(tmp_path: Path) -> None:
    core = open_engine(pair(tmp_path), "cpu")
    anchors = [feed(core, slot, ids) for slot, ids in enumerate(prompts())]
    expected, tokens = [], []
    for slot, (rows, verified) in enumerate(BLOCKS):
        path = testing.select(*testing.draft(core, slot, anchors[slot], rows), 16)[0]
        expected += path
        tokens.append([anchors[slot], *path][:verified])
    path, best = testing.speculate(core, [(s, anchors[s], *block) for s, block in enumerate(BLOCKS)])
    assert path.tolist() == expected
    core.reset(0), core.reset(1), core.reset(2)
    for slot, ids in enumerate(prompts()):
        logits = core.forward([(slot, ids + tokens[slot])], "all")
        verified = BLOCKS[slot][1]
        at = sum(v for _, v in BLOCKS[:slot])
        assert np.array_equal(best[at : at + verified], np.argmax(logits[-verified:], axis=1))


@pytest.mark.parametrize("chip", ["auto"] if ON_GPU else CHIPS)
def test_every_chip_gives_the_same(tmp_path: Path, chip: str) -> None:
    files, found = pair(tmp_path), []
    for device, variant in (("cpu", "auto"), (DEVICE, chip)):
        core = open_engine(files, device, variant)
        anchors = [feed(core, slot, ids) for slot, ids in enumerate(prompts())]
        found.append(testing.speculate(core, [(s, anchors[s], *block) for s, block in enumerate(BLOCKS)]))
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("launch", ["graph", "split", "direct"])
def test_text(tmp_path: Path, launch: str) -> None:
    """Steps of one go, of two, and without drafts, between and beside each other: the text of plain decoding."""
    files = pair(tmp_path)
    length, expected = 60 if ON_GPU else 6, []
    cpu = open_engine({"file": files["file"]}, "cpu")
    for ids in prompts():
        text = [feed(cpu, 0, ids)]
        while len(text) < length:
            text += cpu.step([StepWork(0, limit=1, draft=[])])[0].token_ids
        expected.append(text)
    core = open_engine(files, DEVICE, launch=launch, draft_block_size=5)
    texts = [[feed(core, slot, ids, lookup=slot == 2)] for slot, ids in enumerate(prompts())]
    at_once = number = 0
    while min(map(len, texts)) < length:
        waiting = [s for s in range(3) if len(texts[s]) < length]
        running = [s for s in waiting if s != 1 or number % 3 != 1 or waiting == [1]]
        works = [
            StepWork(s, limit=length - len(texts[s]), draft=[] if number % 4 == 3 else None, logits=number % 5 == 4)
            for s in running
        ]
        results = core.step(works)
        at_once += any(r.drafted and r.draft_ms == 0 for r in results)
        for result in results:
            texts[result.slot] += result.token_ids
        number += 1
    assert texts == expected
    assert at_once > 0


def test_blocks_must_fit(tmp_path: Path) -> None:
    core = open_engine(pair(tmp_path), "cpu")
    anchor = feed(core, 0, prompts()[0])
    for rows, verify in ((5, 1), (5, 6), (1, 1)):
        with pytest.raises(RequestError, match="rows"):
            testing.speculate(core, [(0, anchor, rows, verify)])
    assert core.length(0) == 20


def test_a_token_that_is_no_number_is_named(tmp_path: Path) -> None:
    """The drafter cannot propose behind it, and the target's fault names the layer and leaves its slot empty."""
    files = pair(tmp_path)
    table = next(t for t in files["file"].tensors if t.name == "token_embd.weight")
    bad, row = 77, table.nbytes // table.dims[1]
    with (tmp_path / "t.gguf").open("r+b") as f:
        f.seek(table.offset + bad * row)
        f.write(b"\xff" * row)
    files["file"] = _core.GGUFFile(str(tmp_path / "t.gguf"))
    for device in ("cpu", DEVICE):
        core = open_engine(files, device)
        ids = [id for id in prompts()[0] if id != bad]
        feed(core, 0, ids), feed(core, 1, ids)
        with pytest.raises(DeviceError, match="layer 0"):
            testing.speculate(core, [(0, bad, 4, 4)])
        assert (core.length(0), core.length(1)) == (0, len(ids))
