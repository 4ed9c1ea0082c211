"""Replay case 2: many tensor types in one file, and types that do not exist.

EricLBuehler/mistral.rs#2100, #2121; paiml/aprender#3091; tinygrad/tinygrad#17806; gittensor-ai-lab/sparkinfer#224
(Q5_K read with Q4_K's stride: silent corruption of one projection).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest
from gguf_files import Layout, T
from lucebox import _core
from lucebox._core import Engine, GGUFFile, tensor_types, variants
from lucebox.errors import GGUFError
from lucebox.selftest import tiny
from reference.contract_forward import forward

TYPES = [name for _, name, _, _, matrix in tensor_types() if matrix]
IDS = [3, 250, 17, 3]
ROLES = {
    "qkv": ("attn_qkv", "attn_q", "attn_k", "attn_v"),
    "gate": ("attn_gate",),
    "ssm": ("ssm_alpha", "ssm_beta", "ssm_out"),
    "attention output": ("attn_output",),
    "ffn": ("ffn_gate", "ffn_up", "ffn_down"),
    "output": ("output",),
    "token embedding": ("token_embd",),
}
MODEL = tiny.TinyModel(key_heads=1, value_heads=2, heads=1, ff=256, vocab=272, types="q8_0")


def role(name: str) -> str:
    return next(r for r, stems in ROLES.items() if name.removesuffix(".weight").split(".")[-1] in stems)


def check(path, model: tiny.TinyModel) -> None:
    tiny.write(path, model)
    file = GGUFFile(str(path))
    want = forward(file, IDS)
    assert not np.isnan(want).any()
    for variant in variants():
        got = Engine(file, max_ctx=256, variant=variant).forward([(0, IDS)], "all")
        assert (got.view(np.uint32) == want.view(np.uint32)).all(), variant


@pytest.mark.parametrize("type", TYPES)
def test_a_each_type_in_each_role(tmp_path, type):
    for name in ROLES:
        check(
            tmp_path / "m.gguf",
            replace(MODEL, types=lambda tensor, name=name: type if role(tensor) == name else "q8_0"),
        )


@pytest.mark.parametrize("first", range(0, len(TYPES), 5))
def test_b_another_type_in_each_tensor(tmp_path, first):
    matrices = [
        name
        for name, _, dims, _ in tiny.tensors(replace(MODEL, types="f16"))
        if len(dims) == 2 and "conv1d" not in name
    ]
    types = {name: TYPES[(first + i) % len(TYPES)] for i, name in enumerate(matrices)}
    assert set(types.values()) == set(TYPES)
    check(tmp_path / "m.gguf", replace(MODEL, types=types.__getitem__))


def test_a_tied_head_is_a_matmul_like_any_other(tmp_path):
    for type in ("q6_K", "q4_K", "iq4_xs", "f16"):
        check(tmp_path / "m.gguf", replace(MODEL, tied=True, types=type))


def test_a_file_that_aligns_nothing(tmp_path):
    """With alignment 1 f32 lies at any address."""
    model = replace(MODEL, types="f32")
    path, pairs = str(tmp_path / "m.gguf"), [*tiny.metadata(model), ("x", "str", "")]
    logits = []
    for alignment in (1, 32):
        for n in range(4):  # a header that is a byte longer each time
            pairs[-1] = ("x", "str", "x" * n)
            _core.write_gguf(path, pairs, tiny.tensors(model), alignment)
            logits += [Engine(GGUFFile(path), max_ctx=256, variant=v).forward([(0, IDS)], "all") for v in variants()]
    assert all((one.view(np.uint32) == logits[0].view(np.uint32)).all() for one in logits)


def large_file(path, type: int, dims: list[int], tensor_bytes: int) -> None:
    """A header with one tensor in doubt after one of 14 GB, which is a hole."""
    first = T("token_embd.weight", [tensor_bytes // 4], 0)
    doubtful = T("blk.0.ffn_up.weight", dims, type, offset=tensor_bytes)
    path.write_bytes(Layout(pairs=[("general.architecture", "str", "qwen35")], tensors=[first, doubtful]).header())
    os.truncate(path, tensor_bytes + (1 << 20))


@pytest.mark.parametrize(
    ("type", "dims", "text"),
    [
        (103, [256, 4], "type 103 is not a ggml type (known: 0 f32, 1 f16, 2 q4_0"),
        (255, [256, 4], "type 255 is not a ggml type (known: 0 f32, 1 f16, 2 q4_0"),
        (23, [288, 4], "rows of 288 values; type iq4_xs needs a multiple of 256"),
        (8, [33, 4], "rows of 33 values; type q8_0 needs a multiple of 32"),
    ],
)
def test_c_d_what_no_type_is(tmp_path, type, dims, text):
    large_file(tmp_path / "m.gguf", type, dims, 14 << 30)
    started = time.monotonic()
    with pytest.raises(GGUFError) as caught:
        GGUFFile(str(tmp_path / "m.gguf"))
    assert time.monotonic() - started < 1
    assert caught.value.field == "blk.0.ffn_up.weight"
    assert text in str(caught.value)
    assert f"byte {caught.value.offset}" in str(caught.value)


def test_e_a_part_is_missing(tmp_path):
    """The parts' numbers and totals: tests/csrc/gguf/test_reader.py."""
    tiny.write(tmp_path / "whole.gguf", MODEL)
    whole = GGUFFile(str(tmp_path / "whole.gguf"))
    ids = {name: id for id, name, *_ in tensor_types()}
    tensors = [T(t.name, t.dims, ids[t.type], whole.data(t.name).tobytes()) for t in whole.tensors]
    for part in range(3):
        pairs = [("split.no", "u16", part), ("split.count", "u16", 3), ("split.tensors.count", "i32", len(tensors))]
        given = Layout(pairs=(tiny.metadata(MODEL) if part == 0 else []) + pairs, tensors=tensors[part::3])
        (tmp_path / f"m-0000{part + 1}-of-00003.gguf").write_bytes(given.bytes())
    split = GGUFFile(str(tmp_path / "m-00001-of-00003.gguf"))
    logits = [Engine(file, max_ctx=256).forward([(0, IDS)], "all") for file in (whole, split)]
    assert (logits[0].view(np.uint32) == logits[1].view(np.uint32)).all()
    os.unlink(tmp_path / "m-00002-of-00003.gguf")
    with pytest.raises(GGUFError, match="No such file") as caught:
        GGUFFile(str(tmp_path / "m-00001-of-00003.gguf"))
    assert caught.value.file == str(tmp_path / "m-00002-of-00003.gguf")
