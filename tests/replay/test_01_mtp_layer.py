"""Replay case 1: an MTP layer that is counted or not, and there or not, never moves the trunk.

ggml-org/llama.cpp#26916, #24211, #23033; ollama/ollama#16282; TheTom/llama-cpp-turboquant#323; unslothai/unsloth#6071.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import Engine, GGUFFile, ModelInfo
from lucebox.errors import GGUFError, UnsupportedModelError
from lucebox.selftest.tiny import TinyModel, metadata, tensors

MODEL = TinyModel(types="q8_0")
TRUNK = tensors(MODEL)
N = MODEL.layers
IDS = [int(i) for i in np.random.default_rng(11).integers(0, MODEL.vocab, 40)]


def mtp_tensors(block: int) -> list:
    """An attention layer under another number, and what joins it to the trunk."""
    attention = [
        (t[0].replace("blk.3.", f"blk.{block}."), *t[1:])
        for t in tensors(replace(MODEL, seed=5))
        if t[0].startswith("blk.3.")
    ]
    one = np.ones(MODEL.hidden, np.float32)
    norms = [
        (f"blk.{block}.nextn.{name}.weight", "f32", [MODEL.hidden], one.view(np.uint8))
        for name in ("enorm", "hnorm", "shared_head_norm")
    ]
    eh_proj = _core.quantize("q8_0", np.ones((MODEL.hidden, 2 * MODEL.hidden), np.float32)).reshape(-1)
    return [
        *attention,
        (f"blk.{block}.nextn.eh_proj.weight", "q8_0", [2 * MODEL.hidden, MODEL.hidden], eh_proj),
        *norms,
    ]


MTP = mtp_tensors(N)


def written(tmp_path, blocks: int, nextn: int | None, given: list) -> GGUFFile:
    pairs = [("qwen35.block_count", "u32", blocks) if p[0] == "qwen35.block_count" else p for p in metadata(MODEL)]
    if nextn is not None:
        pairs.append(("qwen35.nextn_predict_layers", "u32", nextn))
    path = str(tmp_path / "m.gguf")
    _core.write_gguf(path, pairs, given)
    return GGUFFile(path)


FILES = {
    "a: N, no key": (N, None, TRUNK, "none"),
    "b: N+1, key, tensors": (N + 1, 1, TRUNK + MTP, "present"),
    "b, MTP tensors first": (N + 1, 1, MTP + TRUNK, "present"),
    "c: N+1, key, no tensors": (N + 1, 1, TRUNK, "announced but absent"),
    "d: N, key, no tensors": (N, 1, TRUNK, "announced but absent"),
    "N, key, tensors": (N, 1, TRUNK + MTP, "present"),
    "N, key 0": (N, 0, TRUNK, "none"),
}


def trunk_hash(file: GGUFFile) -> str:
    logits = Engine(file, max_ctx=64).forward([(0, IDS)], "all")
    assert not np.isnan(logits).any()
    return hashlib.sha256(logits.tobytes()).hexdigest()


@pytest.mark.parametrize("case", FILES)
def test_the_trunk_is_the_same(tmp_path, case):
    blocks, nextn, given, mtp = FILES[case]
    file = written(tmp_path, blocks, nextn, given)
    info = ModelInfo(file)
    assert info.mtp == mtp
    assert info.layers == N
    assert info.recurrent == [True, True, True, False]
    assert trunk_hash(file) == trunk_hash(written(tmp_path, N, None, TRUNK))


def test_flags_of_the_trunk_decide(tmp_path):
    for flags in ([True, True, True, False], [True, True, True, False, False]):
        for given, mtp in ((TRUNK, "announced but absent"), (TRUNK + MTP, "present")):
            path = str(tmp_path / "m.gguf")
            pairs = [p for p in metadata(MODEL) if p[0] not in ("qwen35.block_count", "qwen35.full_attention_interval")]
            pairs += [
                ("qwen35.block_count", "u32", N + 1),
                ("qwen35.nextn_predict_layers", "u32", 1),
                ("qwen35.attention.recurrent_layers", "bool[]", flags),
            ]
            _core.write_gguf(path, pairs, given)
            info = ModelInfo(GGUFFile(path))
            assert (info.layers, info.mtp, info.recurrent) == (N, mtp, [True, True, True, False])


OPTIONAL = f"blk.{N}.nextn.shared_head_norm.weight"


@pytest.mark.parametrize("name", [t[0] for t in MTP if t[0] != OPTIONAL])
@pytest.mark.parametrize("blocks", [N, N + 1])
def test_e_one_mtp_tensor_is_missing(tmp_path, blocks, name):
    with pytest.raises(GGUFError) as caught:
        ModelInfo(written(tmp_path, blocks, 1, TRUNK + [t for t in MTP if t[0] != name]))
    assert caught.value.field == name
    assert "MTP layer" in str(caught.value)


def test_e_half_of_the_mtp_tensors(tmp_path):
    for half in (
        MTP[: len(MTP) // 2],
        MTP[len(MTP) // 2 :],
        MTP[::2],
        MTP[1::2],
        [t for t in MTP if "nextn" in t[0]],
        [t for t in MTP if "nextn" not in t[0]],
    ):
        for blocks in (N, N + 1):
            names = {t[0] for t in half}
            with pytest.raises(GGUFError) as caught:
                ModelInfo(written(tmp_path, blocks, 1, TRUNK + half))
            assert caught.value.field in {t[0] for t in MTP} - names


def test_the_optional_norm_may_be_missing(tmp_path):
    assert ModelInfo(written(tmp_path, N + 1, 1, TRUNK + [t for t in MTP if t[0] != OPTIONAL])).mtp == "present"


def test_a_file_of_an_mtp_layer_alone(tmp_path):
    outer = [t for t in TRUNK if not t[0].startswith("blk.")]
    with pytest.raises(UnsupportedModelError, match="holds an MTP layer only"):
        ModelInfo(written(tmp_path, N + 1, 1, outer + MTP))


def test_mtp_tensors_without_a_key_are_no_trunk(tmp_path):
    for blocks in (N, N + 1):
        with pytest.raises((GGUFError, UnsupportedModelError), match=rf"blk\.{N}\."):
            ModelInfo(written(tmp_path, blocks, None, TRUNK + MTP))
