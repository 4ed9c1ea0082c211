"""Whole models on a device, bits equal to the CPU's: the emulator here; a GPU, and a larger grid, with LUCEBOX_TEST_DEVICE=cuda:0
(scripts/gpu_check.sh)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from lucebox import _core, devices
from lucebox.errors import DeviceError, RequestError
from lucebox.selftest import tiny
from lucebox.selftest.checks import LAUNCH_MODES, MATRIX_TYPES

DEVICE = os.environ.get("LUCEBOX_TEST_DEVICE", "emulated")
ON_GPU = DEVICE != "emulated"
GEOMETRIES = [(2, 2), (2, 4), (2, 6)]
ROWS = [1, 2, 3, 8, 16, 64, 128] if ON_GPU else [1, 3, 16]
CONTEXTS = [1, 31, 32, 33, 255, 257, 4097, 5000] if ON_GPU else [1, 33, 257]


def model(path: Path, types: object, value_heads: int = 4) -> _core.GGUFFile:
    """Two layers, one of each kind."""
    made = tiny.TinyModel(layers=2, value_heads=value_heads, types=types, seed=value_heads)
    keys = [(k, t, 2 if k == "qwen35.full_attention_interval" else v) for k, t, v in tiny.metadata(made)]
    _core.write_gguf(str(path), keys, tiny.tensors(made, interval=2))
    return _core.GGUFFile(str(path))


def engine(file: _core.GGUFFile, device: str = DEVICE, max_ctx: int = 512, **options: object) -> _core.Engine:
    launch = str(options.pop("launch", "auto"))
    return _core.Engine(file, max_ctx=max_ctx, **devices.options(device, launch=launch), **options)


def tokens(n: int, seed: int = 0) -> list[int]:
    return np.random.RandomState(seed).randint(0, 300, n).tolist()


def in_calls(core: _core.Engine, ids: list[int], width: int) -> np.ndarray:
    core.reset(0)
    return np.concatenate([core.forward([(0, ids[at : at + width])], "all") for at in range(0, len(ids), width)])


@pytest.mark.parametrize("type", MATRIX_TYPES.split())
def test_types_and_rows(tmp_path: Path, type: str) -> None:
    n = 130 if ON_GPU else 20
    for value_heads in [v for _, v in GEOMETRIES] if ON_GPU else [6]:
        file = model(tmp_path / f"{value_heads}.gguf", type, value_heads)
        expected = engine(file, "cpu").forward([(0, tokens(n))], "all")
        core = engine(file)
        for rows in ROWS:
            assert np.array_equal(in_calls(core, tokens(n), rows), expected), f"{value_heads} value heads, {rows} rows"


@pytest.mark.parametrize("kv", ["q8_0", "f16", "f32"])
def test_contexts(tmp_path: Path, kv: str) -> None:
    """The rows at the end of a context, one by one and five at once."""
    file = model(tmp_path / "m.gguf", "q8_0")
    cpu, core = (engine(file, d, max_ctx=max(CONTEXTS) + 8, kv=kv) for d in ("cpu", DEVICE))
    for context in CONTEXTS:
        ids = tokens(context + 6, seed=context)
        for e in (cpu, core):
            e.reset(0)
            e.forward([(0, ids[:context])], "none")
        for part in (ids[context : context + 1], ids[context + 1 :]):
            assert np.array_equal(core.forward([(0, part)], "all"), cpu.forward([(0, part)], "all")), (
                f"context {context}"
            )


@pytest.mark.parametrize("launch", LAUNCH_MODES)
def test_launch_modes_and_sequences(tmp_path: Path, launch: str) -> None:
    """Replays with other inputs: several sequences, cut in odd places, twice over."""
    file = model(tmp_path / "m.gguf", lambda name: ["iq4_xs", "q4_K", "q6_K", "q8_0", "f16"][sum(name.encode()) % 5])
    solo, core = engine(file, "cpu"), engine(file, launch=launch, slots=3)
    parts = [tokens(9, 1), tokens(5, 2), tokens(14, 3)]
    expected = []
    for ids in parts:
        solo.reset(0)
        expected.append(solo.forward([(0, ids)], "all"))
    for _ in range(2):
        for slot in range(3):
            core.reset(slot)
        first = core.forward([(slot, ids[:4]) for slot, ids in enumerate(parts)], "all")
        second = core.forward([(slot, ids[4:]) for slot, ids in enumerate(parts)], "all")
        at = 0
        for slot, ids in enumerate(parts):
            assert np.array_equal(first[4 * slot : 4 * slot + 4], expected[slot][:4])
            assert np.array_equal(second[at : at + len(ids) - 4], expected[slot][4:])
            at += len(ids) - 4
    assert core.launch == launch


def test_argmax_hidden_and_nan(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf", "q8_0")
    core, cpu = engine(file), engine(file, "cpu")
    assert np.array_equal(core.hidden(tokens(6), [0, 1]), cpu.hidden(tokens(6), [0, 1]))
    assert core.forward([(0, tokens(6))], "argmax") == cpu.forward([(0, tokens(6))], "argmax")
    tensor = next(t for t in file.tensors if t.name == "blk.1.ffn_up.weight")
    with (tmp_path / "m.gguf").open("r+b") as f:
        f.seek(tensor.offset)
        f.write(np.float16("nan").tobytes())
    with pytest.raises(DeviceError, match="layer 1"):
        engine(_core.GGUFFile(str(tmp_path / "m.gguf"))).forward([(0, tokens(3))], "argmax")


def test_rows_come_in_tiles(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf", "q8_0")
    with pytest.raises(RequestError, match="max_rows is 100"):
        engine(file, max_rows=100)


def test_the_plan_is_what_is_taken(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf", "q4_K")
    planned = [(e.name, e.nbytes, e.kind) for e in _core.plan(file, max_ctx=512, **devices.options(DEVICE))]
    assert planned == [(e.name, e.nbytes, e.kind) for e in engine(file).allocated()]
