"""A drafter that fits in shape and not in meaning: sgl-project/sglang#37475, z-lab/dflash#157, vllm-project/vllm#48113,
charlie12345/ROCmFPX#44, Anbeeld/beellama.cpp#51.

Right: what can be known at load is an error with both values; what cannot shows as few accepted drafts and pauses the
drafter, and the output never changes by a bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import SequenceParams, StepWork
from lucebox.errors import DrafterMismatchError, Error, GGUFError, UnsupportedModelError
from lucebox.selftest import tiny
from lucebox.selftest.tiny_draft import TinyDrafter, metadata, tensors, write

GOOD = TinyDrafter()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> _core.GGUFFile:
    path: Path = tmp_path_factory.mktemp("replay5") / "t.gguf"
    tiny.write(path, tiny.TinyModel(seed=5))
    return _core.GGUFFile(str(path))


def load(target: _core.GGUFFile, path: Path, **options: object) -> _core.Engine:
    return _core.Engine(target, draft=_core.GGUFFile(str(path)), **{"max_ctx": 1024, "threads": 1, **options})


KEY = "dflash.target_layers"
WITHOUT = [
    ("dflash.block_size", "dflash.block_size"),
    ("dflash.rope.freq_base", "dflash.rope.freq_base"),
    (KEY, KEY),
    ("tokenizer.ggml.mask_token_id", "tokenizer.ggml.mask_token_id"),
    ("dflash.conv_group_size", "dflash.conv_group_size"),
]


@pytest.mark.parametrize("key,named", WITHOUT)
def test_what_is_missing_is_named_and_never_guessed(
    target: _core.GGUFFile, tmp_path: Path, key: str, named: str
) -> None:
    write(tmp_path / "d.gguf", GOOD, [(key, "u32", None)])
    with pytest.raises(GGUFError, match=named):
        load(target, tmp_path / "d.gguf")


@pytest.mark.parametrize(
    "taps,error,text",
    [
        ([1, 2, 5], DrafterMismatchError, "output of layer 4, and this target has layers 0 to 3"),
        ([1, 2, 6], DrafterMismatchError, "output of layer 5"),
        ([0, 1, 2], GGUFError, "names layer 0"),
        ([-1, 2, 3], GGUFError, "names layer -1"),
        ([4, 2, 1], GGUFError, "not in ascending order"),
        ([1, 2, 2], GGUFError, "not in ascending order"),
        ([1, 2], GGUFError, "fc.weight"),
        ([], GGUFError, "has 0 layers"),
    ],
)
def test_taps(target: _core.GGUFFile, tmp_path: Path, taps: list[int], error: type[Error], text: str) -> None:
    write(tmp_path / "d.gguf", GOOD, [(KEY, "i32[]", taps)])
    with pytest.raises(error, match=text):
        load(target, tmp_path / "d.gguf")


def test_a_window_beyond_any_context(target: _core.GGUFFile, tmp_path: Path) -> None:
    """2^31 - 1 would overflow the ring's size."""
    write(tmp_path / "d.gguf", GOOD, [("dflash.attention.sliding_window", "u32", 2**31 - 1)])
    with pytest.raises(GGUFError, match="sliding_window .*is 2147483647; 0 to 16777216"):
        load(target, tmp_path / "d.gguf")


@pytest.mark.parametrize(
    "drafter,text",
    [
        (replace(GOOD, vocab=321), "vocabulary of 321, and this target of 320"),
        (replace(GOOD, hidden=128), "hidden size 128, and this target has 256"),
        (replace(GOOD, mask_token=320), "mask token is 320, and this target has ids 0 to 319"),
    ],
)
def test_another_targets_drafter(target: _core.GGUFFile, tmp_path: Path, drafter: TinyDrafter, text: str) -> None:
    write(tmp_path / "d.gguf", drafter)
    with pytest.raises(DrafterMismatchError, match=text):
        load(target, tmp_path / "d.gguf")


@pytest.mark.parametrize(
    "extra,what", [("d2t", "vocabulary"), ("markov_w1.weight", "Markov"), ("output.weight", "head")]
)
def test_other_kinds_of_drafter(target: _core.GGUFFile, tmp_path: Path, extra: str, what: str) -> None:
    more = (extra, "f32", [32], np.zeros(128, np.uint8))
    _core.write_gguf(str(tmp_path / "d.gguf"), metadata(GOOD), [*tensors(GOOD), more])
    with pytest.raises(UnsupportedModelError, match=what):
        load(target, tmp_path / "d.gguf")


def test_a_tensor_that_is_not_there_is_named(target: _core.GGUFFile, tmp_path: Path) -> None:
    """Any one of them: a drafter without its selector or convolutions would run, and accept little."""
    all_tensors = tensors(GOOD)
    for left_out in range(len(all_tensors)):
        name = all_tensors[left_out][0]
        if name == "selector_hidden.weight":
            continue
        _core.write_gguf(str(tmp_path / "d.gguf"), metadata(GOOD), all_tensors[:left_out] + all_tensors[left_out + 1 :])
        with pytest.raises(GGUFError, match=name.replace(".", r"\.")):
            load(target, tmp_path / "d.gguf")


def follow(engine: _core.Engine, ids: list[int], count: int, **params: object) -> tuple[list[int], int, int]:
    """(tokens, drafted, steps)."""
    engine.begin(0, SequenceParams(**params), ids)
    text = engine.step([StepWork(0, ids, emit=True)])[0].token_ids
    drafted = steps = 0
    while len(text) < count:
        result = engine.step([StepWork(0, limit=count - len(text))])[0]
        text += result.token_ids
        drafted += result.drafted
        steps += 1
    return text, drafted, steps


@pytest.mark.parametrize("change", ["other weights", "taps shifted", "convolution in 4 bits", "block of 16"])
def test_what_cannot_be_known_costs_little_and_changes_nothing(
    target: _core.GGUFFile, tmp_path: Path, change: str
) -> None:
    drafter = {
        "other weights": replace(GOOD, seed=99),
        "taps shifted": replace(GOOD, taps=(0, 2, 3)),
        "convolution in 4 bits": replace(GOOD, types=lambda name: "q4_0" if "conv_proj" in name else "f32"),
        "block of 16": replace(GOOD, block_size=16),
    }[change]
    write(tmp_path / "d.gguf", drafter)
    ids = np.random.RandomState(1).randint(0, 256, 30).tolist()
    plain = _core.Engine(target, max_ctx=1024, threads=1)
    expected, _, _ = follow(plain, ids, 200, speculative="off")
    engine = load(target, tmp_path / "d.gguf")
    got, drafted, steps = follow(engine, ids, 200, lookup=False)
    assert got == expected
    # A drafter of noise: after a few steps it is hardly asked any more.
    assert drafted < 100 and steps > 100
    fixed, _, _ = follow(engine, ids, 200, lookup=False, adaptive=False)
    assert fixed == expected
