"""Random tiny qwen35 models from a seed: the real model's head sizes, few layers, any types, the same bytes always."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lucebox import _core

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
Tensor = tuple[str, str, list[int], U8]

# Where a block's f16 scale and minimum lie, the minimum that centres random blocks of scale 1, their deviation then.
_BLOCKS: dict[str, tuple[list[int], float, float]] = {
    "q4_0": ([0], 0, 4.6),
    "q4_1": ([0, 2], -7.5, 4.6),
    "q5_0": ([0], 0, 9.2),
    "q5_1": ([0, 2], -15.5, 9.2),
    "q8_0": ([0], 0, 74),
    "q2_K": ([80, 82], 1.5, 13),
    "q3_K": ([108], 0, 43),
    "q4_K": ([0, 2], 7.5, 220),
    "q5_K": ([0, 2], 15.5, 440),
    "q6_K": ([208], 0, 1360),
    "iq2_xxs": ([0], 0, 53),
    "iq2_xs": ([0], 0, 56),
    "iq2_s": ([0], 0, 56),
    "iq3_xxs": ([0], 0, 143),
    "iq3_s": ([0], 0, 140),
    "iq1_s": ([0], 0, 7.2),
    "iq1_m": ([], 0, 7.2),
    "iq4_nl": ([0], 0, 67),
    "iq4_xs": ([0], 0, 1240),
    "mxfp4": ([], 0, 5.8),
}


class Random:
    """SplitMix64 streams: exact integers, so that no library version changes a model."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF

    def bits(self, n: int) -> npt.NDArray[np.uint64]:
        """n numbers of 64 bits."""
        with np.errstate(over="ignore"):
            z = np.uint64(self._state) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            self._state = int(z[-1]) if n else self._state
            z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        result: npt.NDArray[np.uint64] = z ^ z >> np.uint64(31)
        return result

    def normal(self, n: int, deviation: float = 1.0) -> F32:
        """n values, nearly normal: the sum of twelve 16-bit uniforms, centred."""
        parts = self.bits(3 * n).view(np.uint16).reshape(n, 12).astype(np.int64).sum(axis=1) - 6 * 65535
        values: F32 = (parts.astype(np.float64) * (deviation / 65536)).astype(np.float32)
        return values

    def raw_bytes(self, n: int) -> U8:
        data: U8 = self.bits((n + 7) // 8).view(np.uint8)[:n].copy()
        return data


@dataclass(frozen=True)
class TinyModel:
    """Sizes of a tiny model. `types` names the type of a matrix by its tensor's name; vectors are f32."""

    key_heads: int = 2
    value_heads: int = 4
    layers: int = 4
    hidden: int = 256
    ff: int = 512
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    rope_dims: int = 64
    vocab: int = 320
    context_length: int = 8192
    tied: bool = False
    types: str | Callable[[str], str] = "f32"
    seed: int = 0

    def type_of(self, name: str) -> str:
        return self.types if isinstance(self.types, str) else self.types(name)


def random_blocks(random: Random, type: str, count: int, deviation: float) -> U8:
    """count values of a type as random blocks whose values have about this deviation."""
    if type in ("f32", "f16", "bf16"):
        return _core.quantize(type, random.normal(count, deviation).reshape(1, count)).reshape(-1)
    _, _, block, nbytes, _ = next(entry for entry in _core.tensor_types() if entry[1] == type)
    data = random.raw_bytes(count // block * nbytes).reshape(-1, nbytes)
    fields, minimum, spread = _BLOCKS[type]
    d = np.float16(deviation / spread)
    for at, value in zip(fields, (d, np.float16(np.float32(d) * minimum)), strict=False):
        data[:, at : at + 2] = np.frombuffer(value.tobytes(), np.uint8)
    if type == "iq1_m":  # the scale's four nibbles lie in the top bits of four words
        bits = int(d.view(np.uint16))
        for i, at in enumerate((49, 51, 53, 55)):
            data[:, at] = data[:, at] & 0x0F | (bits >> 4 * i & 15) << 4
    if type == "mxfp4":  # a power of two
        data[:, 0] = 128 + int(np.frexp(deviation / spread)[1])
    return data.reshape(-1)


def tensors(model: TinyModel, interval: int = 4) -> list[Tensor]:
    """All tensors, in file order. interval: layers from one attention layer to the next."""
    random = Random(model.seed + 1)
    out: list[Tensor] = []

    def matrix(name: str, columns: int, rows: int, gain: float = 1.0) -> None:
        type = model.type_of(name)
        out.append((name, type, [columns, rows], random_blocks(random, type, columns * rows, gain / columns**0.5)))

    def vector(name: str, values: F32, dims: list[int] | None = None) -> None:
        out.append((name, "f32", dims or [values.size], values.astype(np.float32).view(np.uint8).reshape(-1)))

    def norm(name: str, n: int) -> None:
        vector(name, np.float32(1) + random.normal(n, 0.1))

    matrix("token_embd.weight", model.hidden, model.vocab, gain=model.hidden**0.5)
    width, channels = model.value_heads * 128, (2 * model.key_heads + model.value_heads) * 128
    for i in range(model.layers):
        blk = f"blk.{i}."
        norm(blk + "attn_norm.weight", model.hidden)
        if (i + 1) % interval:
            matrix(blk + "attn_qkv.weight", model.hidden, channels)
            matrix(blk + "attn_gate.weight", model.hidden, width)
            matrix(blk + "ssm_alpha.weight", model.hidden, model.value_heads)
            matrix(blk + "ssm_beta.weight", model.hidden, model.value_heads)
            vector(blk + "ssm_a", -np.float32(0.05) - np.abs(random.normal(model.value_heads, 0.5)))
            vector(blk + "ssm_dt.bias", random.normal(model.value_heads, 0.5))
            vector(blk + "ssm_conv1d.weight", random.normal(4 * channels, 0.5), [4, channels])
            norm(blk + "ssm_norm.weight", 128)
            matrix(blk + "ssm_out.weight", width, model.hidden)
        else:
            matrix(blk + "attn_q.weight", model.hidden, 2 * model.heads * model.head_dim)
            matrix(blk + "attn_k.weight", model.hidden, model.kv_heads * model.head_dim)
            matrix(blk + "attn_v.weight", model.hidden, model.kv_heads * model.head_dim)
            norm(blk + "attn_q_norm.weight", model.head_dim)
            norm(blk + "attn_k_norm.weight", model.head_dim)
            matrix(blk + "attn_output.weight", model.heads * model.head_dim, model.hidden)
        norm(blk + "post_attention_norm.weight", model.hidden)
        matrix(blk + "ffn_gate.weight", model.hidden, model.ff)
        matrix(blk + "ffn_up.weight", model.hidden, model.ff)
        matrix(blk + "ffn_down.weight", model.ff, model.hidden)
    norm("output_norm.weight", model.hidden)
    if not model.tied:
        matrix("output.weight", model.hidden, model.vocab, gain=1.5)
    return out


def metadata(model: TinyModel) -> list[tuple[str, str, Any]]:
    """All keys: the model's sizes and a byte-level tokenizer without merges."""
    key = "qwen35."
    return [
        ("general.architecture", "str", "qwen35"),
        ("general.name", "str", "tiny"),
        (key + "block_count", "u32", model.layers),
        (key + "context_length", "u32", model.context_length),
        (key + "embedding_length", "u32", model.hidden),
        (key + "feed_forward_length", "u32", model.ff),
        (key + "attention.head_count", "u32", model.heads),
        (key + "attention.head_count_kv", "u32", model.kv_heads),
        (key + "attention.key_length", "u32", model.head_dim),
        (key + "attention.value_length", "u32", model.head_dim),
        (key + "attention.layer_norm_rms_epsilon", "f32", 1e-6),
        (key + "full_attention_interval", "u32", 4),
        (key + "rope.freq_base", "f32", 1e7),
        (key + "rope.dimension_count", "u32", model.rope_dims),
        (key + "rope.dimension_sections", "i32[]", [11, 11, 10, 0]),
        (key + "ssm.conv_kernel", "u32", 4),
        (key + "ssm.state_size", "u32", 128),
        (key + "ssm.group_count", "u32", model.key_heads),
        (key + "ssm.time_step_rank", "u32", model.value_heads),
        (key + "ssm.inner_size", "u32", 128 * model.value_heads),
        *_tokenizer(model.vocab),
    ]


def _tokenizer(vocab: int) -> list[tuple[str, str, Any]]:
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in own]
    alphabet = [chr(b) if b in own else chr(0x100 + rest.index(b)) for b in range(256)]
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    user = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    padding = [f"[PAD{i}]" for i in range(vocab - 256 - len(control) - len(user))]
    types = [1] * 256 + [3] * len(control) + [4] * len(user) + [5] * len(padding)
    return [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", "qwen35"),
        ("tokenizer.ggml.tokens", "str[]", alphabet + control + user + padding),
        ("tokenizer.ggml.token_type", "i32[]", types),
        ("tokenizer.ggml.merges", "str[]", []),
        ("tokenizer.ggml.eos_token_id", "u32", 258),
    ]


def write(path: str | Path, model: TinyModel, extra: list[tuple[str, str, Any]] | None = None) -> None:
    """Writes the model as a GGUF file; `extra` keys are added to its metadata."""
    _core.write_gguf(str(path), metadata(model) + (extra or []), tensors(model))
