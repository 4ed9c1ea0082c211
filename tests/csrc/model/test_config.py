"""Sizes and tensors of a qwen35 file: refused with names when they disagree, before anything is allocated."""

from __future__ import annotations

import math
import struct
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import GGUFFile, ModelInfo
from lucebox.errors import GGUFError, UnsupportedModelError
from lucebox.selftest.tiny import TinyModel, metadata, tensors

SMALL = TinyModel(
    key_heads=1, value_heads=2, hidden=32, ff=32, heads=2, kv_heads=1, head_dim=32, rope_dims=16, vocab=272, types="f16"
)
TENSORS = tensors(SMALL)
KEY = "qwen35."


def written(tmp_path, pairs=None, given=None) -> GGUFFile:
    path = str(tmp_path / "m.gguf")
    _core.write_gguf(path, metadata(SMALL) if pairs is None else pairs, TENSORS if given is None else given)
    return GGUFFile(path)


def changed(key: str, kind: str | None, value: Any = None) -> list[tuple[str, str, Any]]:
    """The metadata with one key set, added or, with kind None, left out."""
    pairs = [p for p in metadata(SMALL) if p[0] != key]
    return pairs if kind is None else [*pairs, (key, kind, value)]


def tensor(name: str, type: str, dims: list[int]) -> tuple[str, str, list[int], np.ndarray]:
    block, nbytes = next((b, n) for _, t, b, n, _ in _core.tensor_types() if t == type)
    return name, type, dims, np.zeros(math.prod(dims) // block * nbytes, np.uint8)


def with_tensor(new: tuple[str, str, list[int], np.ndarray]) -> list:
    return [new if t[0] == new[0] else t for t in TENSORS] + ([] if any(t[0] == new[0] for t in TENSORS) else [new])


def refused(file: GGUFFile, kind: type[Exception]) -> Any:
    with pytest.raises(kind) as caught:
        ModelInfo(file)
    assert file.path in str(caught.value)
    return caught.value


@pytest.mark.parametrize("key_heads, value_heads", [(2, 2), (2, 4), (1, 3)])
def test_sizes(tmp_path, key_heads, value_heads):
    model = replace(SMALL, key_heads=key_heads, value_heads=value_heads, layers=8, tied=key_heads == 1)
    info = ModelInfo(written(tmp_path, metadata(model), tensors(model)))
    assert (info.architecture, info.vocab, info.hidden, info.layers, info.context_length) == (
        "qwen35",
        272,
        32,
        8,
        8192,
    )
    assert info.recurrent == [True, True, True, False] * 2
    assert info.mtp == "none"


def test_nano():
    from importlib.resources import files

    for path in (files("lucebox") / "models" / "nano").iterdir():
        if "IQ4_XS" in path.name:
            info = ModelInfo(GGUFFile(str(path)))
            assert (info.vocab, info.hidden, info.layers, info.context_length) == (12288, 512, 12, 32768)


EQUAL = [
    ("no interval", changed(KEY + "full_attention_interval", None)),
    ("flags", changed(KEY + "attention.recurrent_layers", "bool[]", [True, True, True, False])),
    (
        "flags before the interval",
        [
            *changed(KEY + "full_attention_interval", "u32", 2),
            (KEY + "attention.recurrent_layers", "bool[]", [True, True, True, False]),
        ],
    ),
    ("vocab_size", changed(KEY + "vocab_size", "u32", 272)),
    ("no tokens", [*changed("tokenizer.ggml.tokens", None), (KEY + "vocab_size", "u32", 272)]),
    ("u64", changed(KEY + "embedding_length", "u64", 32)),
    ("i8", changed(KEY + "block_count", "i8", 4)),
    ("f64", changed(KEY + "rope.freq_base", "f64", 1e7)),
    ("sections of u32", changed(KEY + "rope.dimension_sections", "u32[]", [11, 11, 10, 0])),
    ("no scaling", changed(KEY + "rope.scaling.type", "str", "none")),
    ("factor 1", changed(KEY + "rope.scaling.factor", "f32", 1.0)),
    ("nextn 0", changed(KEY + "nextn_predict_layers", "u32", 0)),
]


@pytest.mark.parametrize("pairs", [c[1] for c in EQUAL], ids=[c[0] for c in EQUAL])
def test_the_same_said_otherwise(tmp_path, pairs):
    info = ModelInfo(written(tmp_path, pairs))
    assert (info.vocab, info.hidden, info.layers, info.recurrent) == (272, 32, 4, [True, True, True, False])


REQUIRED = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.dimension_count",
    "ssm.conv_kernel",
    "ssm.state_size",
    "ssm.group_count",
    "ssm.time_step_rank",
    "ssm.inner_size",
]
NUMBERS = ("attention.layer_norm_rms_epsilon", "rope.freq_base")


@pytest.mark.parametrize("key", [KEY + k for k in REQUIRED])
def test_required_keys(tmp_path, key):
    assert refused(written(tmp_path, changed(key, None)), GGUFError).field == key
    for kind, value, text in (
        ("str", "4", "of type str"),
        ("u32[]", [4] * 12, "of type array of 12 u32"),
        ("bool", True, "of type bool"),
    ):
        error = refused(written(tmp_path, changed(key, kind, value)), GGUFError)
        assert error.field == key
        assert text in str(error)
        assert error.offset > 24


@pytest.mark.parametrize("key", [KEY + k for k in REQUIRED if k not in NUMBERS])
@pytest.mark.parametrize("kind, value", [("u32", 0), ("i32", -1), ("u32", (1 << 32) - 1), ("u64", (1 << 64) - 1)])
def test_integers_out_of_range(tmp_path, key, kind, value):
    error = refused(written(tmp_path, changed(key, kind, value)), GGUFError)
    assert error.field == key
    assert str(value) in str(error)


@pytest.mark.parametrize("key", [KEY + k for k in NUMBERS])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_numbers_out_of_range(tmp_path, key, value):
    assert refused(written(tmp_path, changed(key, "f32", value)), GGUFError).field == key


MALFORMED = [
    ("heads", changed(KEY + "attention.head_count_kv", "u32", 3), KEY + "attention.head_count", "no multiple of the 3"),
    ("value heads", changed(KEY + "ssm.group_count", "u32", 4), KEY + "ssm.time_step_rank", "no multiple of the 4"),
    (
        "inner size",
        changed(KEY + "ssm.inner_size", "u32", 384),
        KEY + "ssm.inner_size",
        "2 value heads of 128 make 256",
    ),
    ("no sections", changed(KEY + "rope.dimension_sections", None), KEY + "rope.dimension_sections", "4 are wanted"),
    (
        "3 sections",
        changed(KEY + "rope.dimension_sections", "i32[]", [11, 11, 10]),
        KEY + "rope.dimension_sections",
        "has 3",
    ),
    (
        "sections of text",
        changed(KEY + "rope.dimension_sections", "str[]", ["1"] * 4),
        KEY + "rope.dimension_sections",
        "array of 4 str",
    ),
    (
        "vocab_size",
        changed(KEY + "vocab_size", "u32", 273),
        KEY + "vocab_size",
        "is 273, and tokenizer.ggml.tokens lists 272",
    ),
    ("no vocabulary", changed("tokenizer.ggml.tokens", None), "tokenizer.ggml.tokens", "lists no token"),
    (
        "tokens of numbers",
        changed("tokenizer.ggml.tokens", "u32[]", [1]),
        "tokenizer.ggml.tokens",
        "an array of str is wanted",
    ),
    ("interval 0", changed(KEY + "full_attention_interval", "u32", 0), KEY + "full_attention_interval", "is 0"),
    (
        "flags of numbers",
        changed(KEY + "attention.recurrent_layers", "u32[]", [1] * 4),
        KEY + "attention.recurrent_layers",
        "array of bool",
    ),
    (
        "3 flags",
        changed(KEY + "attention.recurrent_layers", "bool[]", [True] * 3),
        KEY + "attention.recurrent_layers",
        "has 3 flags",
    ),
    ("block_count", changed(KEY + "block_count", "u32", 5), "blk.4.attn_norm.weight", "not in the file"),
    ("blocks without end", changed(KEY + "block_count", "u32", 1 << 30), KEY + "block_count", "1 to 1024"),
    (
        "only MTP layers",
        changed(KEY + "nextn_predict_layers", "u32", 4),
        KEY + "nextn_predict_layers",
        "is 4 of 4 blocks",
    ),
    ("no architecture", changed("general.architecture", None), "general.architecture", "not in the file"),
    ("architecture of numbers", changed("general.architecture", "u32", 1), "general.architecture", "of type u32"),
]


@pytest.mark.parametrize(("pairs", "field", "text"), [c[1:] for c in MALFORMED], ids=[c[0] for c in MALFORMED])
def test_malformed(tmp_path, pairs, field, text):
    error = refused(written(tmp_path, pairs), GGUFError)
    assert error.field == field
    assert text in str(error)


UNSUPPORTED = [
    ("moe", changed("general.architecture", "str", "qwen35moe"), '"qwen35moe" (a mixture of experts)'),
    ("llama", changed("general.architecture", "str", "llama"), '"llama"; supported is "qwen35"'),
    ("dflash", changed("general.architecture", "str", "dflash"), "a drafter"),
    ("yarn", changed(KEY + "rope.scaling.type", "str", "yarn"), '"yarn"'),
    ("linear", changed(KEY + "rope.scaling.factor", "f32", 4.0), "4.0"),
    ("convolution", changed(KEY + "ssm.conv_kernel", "u32", 3), "conv_kernel is 3; only 4"),
    ("SSM heads", changed(KEY + "ssm.state_size", "u32", 64), "state_size is 64; only 128"),
    ("head size", changed(KEY + "attention.key_length", "u32", 288), "key_length is 288"),
    ("head size of odd multiple", changed(KEY + "attention.key_length", "u32", 48), "multiples of 32 up to 256"),
    ("head sizes differ", changed(KEY + "attention.value_length", "u32", 64), "value_length is 64; only 32"),
    ("hidden", changed(KEY + "embedding_length", "u32", 16416), "multiples of 32 up to 16384"),
    ("hidden of odd multiple", changed(KEY + "embedding_length", "u32", 48), "embedding_length is 48"),
    ("ff", changed(KEY + "feed_forward_length", "u32", 262176), "multiples of 32 up to 262144"),
    ("ff of odd multiple", changed(KEY + "feed_forward_length", "u32", 33), "feed_forward_length is 33"),
    ("odd rotation", changed(KEY + "rope.dimension_count", "u32", 15), "dimension_count is 15"),
    ("more rotation than head", changed(KEY + "rope.dimension_count", "u32", 34), "up to 32"),
]


@pytest.mark.parametrize(("pairs", "text"), [c[1:] for c in UNSUPPORTED], ids=[c[0] for c in UNSUPPORTED])
def test_unsupported(tmp_path, pairs, text):
    assert text in str(refused(written(tmp_path, pairs), UnsupportedModelError))


@pytest.mark.parametrize("name", [t[0] for t in TENSORS])
def test_every_tensor_is_needed(tmp_path, name):
    rest = [t for t in TENSORS if t[0] != name]
    if name == "output.weight":
        assert ModelInfo(written(tmp_path, given=rest)).vocab == 272  # tied to token_embd
        return
    assert refused(written(tmp_path, given=rest), GGUFError).field == name


@pytest.mark.parametrize("name", [t[0] for t in TENSORS])
def test_every_shape_is_checked(tmp_path, name):
    type, dims = next((t[1], t[2]) for t in TENSORS if t[0] == name)
    for wrong in (
        [2 * dims[0], *dims[1:]],
        [*dims[:-1], dims[-1] + 1],
        [*dims, 2],
        dims[::-1] if len(dims) > 1 and dims[0] != dims[1] else [*dims, 3],
    ):
        file = written(tmp_path, given=with_tensor(tensor(name, type, wrong)))
        error = refused(file, GGUFError)
        assert error.field == name
        assert str(wrong) in str(error) and str(dims) in str(error)
        with open(
            file.path, "rb"
        ) as data:  # the offset is that of the tensor's entry: its name's length, then the name
            data.seek(error.offset)
            assert data.read(8 + len(name)) == struct.pack("<Q", len(name)) + name.encode()
    assert ModelInfo(written(tmp_path, given=with_tensor(tensor(name, type, [*dims, 1])))).layers == 4


def test_types(tmp_path):
    error = refused(written(tmp_path, given=with_tensor(tensor("blk.1.ssm_norm.weight", "f16", [128]))), GGUFError)
    assert error.field == "blk.1.ssm_norm.weight"
    assert "is of type f16; f32 is wanted" in str(error)
    for type in ("nvfp4", "i8", "f64", "q8_1"):
        given = with_tensor(tensor("blk.0.ssm_out.weight", type, [256, 32]))
        assert f"blk.0.ssm_out.weight is of type {type}; supported are f32 f16 q4_0" in str(
            refused(written(tmp_path, given=given), UnsupportedModelError)
        )


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.attn_q.weight",
        "blk.3.attn_k.bias",
        "blk.0.attn_gate.scale",
        "rope_freqs.weight",
        "blk.4.attn_norm.weight",
        "blk.00.x",
    ],
)
def test_a_tensor_that_nothing_uses(tmp_path, name):
    assert f"tensor {name} is no part" in str(
        refused(written(tmp_path, given=with_tensor(tensor(name, "f32", [32]))), UnsupportedModelError)
    )


def test_every_header_byte_changed(tmp_path):
    """Keys and tensors of a changed file agree, or an error says what does not; never a crash."""
    path = tmp_path / "m.gguf"
    header = min(t.offset for t in written(tmp_path).tensors)
    started, read = time.monotonic(), 0
    with open(path, "r+b", buffering=0) as file:
        original = file.read(header)
        for at in range(header):
            file.seek(at)
            file.write(bytes([original[at] ^ (1 << at % 8)]))
            try:
                ModelInfo(GGUFFile(str(path)))
                read += 1
            except (GGUFError, UnsupportedModelError):
                pass
            file.seek(at)
            file.write(original[at : at + 1])
    assert read > 0
    assert time.monotonic() - started < 60
    assert ModelInfo(GGUFFile(str(path))).layers == 4
