"""Random tiny DFlash drafters from a seed, for the tiny models of `tiny`: both layouts, both versions, any types."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lucebox import _core
from lucebox.selftest.tiny import F32, Random, Tensor, random_blocks


@dataclass(frozen=True)
class TinyDrafter:
    """Sizes of a tiny drafter. window: of each layer, 0 = the whole context. causal: None = as the window says."""

    hidden: int = 256
    ff: int = 384
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    vocab: int = 320
    version: int = 2
    taps: tuple[int, ...] = (0, 1, 3)
    window: tuple[int, ...] = (64, 64)
    causal: bool | None = False
    block_size: int = 8
    mask_token: int = 319
    conv_group: int = 16
    rank: int = 32
    top_k: int = 16
    multiplier: float = 1.0
    softcap: float = 0.0
    layout: str = "dflash"
    types: str | Callable[[str], str] = "f32"
    seed: int = 0

    def type_of(self, name: str) -> str:
        return self.types if isinstance(self.types, str) else self.types(name)

    @property
    def own(self) -> bool:
        """Whether the layout is upstream lucebox's."""
        return self.layout != "dflash"


def shapes(d: TinyDrafter) -> list[tuple[str, list[int], float]]:
    """(name, dims as in the file, gain) of every tensor, in file order; gain 0: not a matrix."""
    out: list[tuple[str, list[int], float]] = [
        ("dflash.fc.weight" if d.own else "fc.weight", [d.hidden * len(d.taps), d.hidden], 1.0),
        ("dflash.hidden_norm.weight" if d.own else "enc.output_norm.weight", [d.hidden], 0),
        ("output_norm.weight", [d.hidden], 0),
    ]
    query, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
    layer: list[tuple[str, list[int], float]] = [
        ("attn_norm.weight", [d.hidden], 0),
        ("ffn_norm.weight", [d.hidden], 0),
        ("attn_q_norm.weight", [d.head_dim], 0),
        ("attn_k_norm.weight", [d.head_dim], 0),
        ("attn_q.weight", [d.hidden, query], 1.0),
        ("attn_k.weight", [d.hidden, kv], 1.0),
        ("attn_v.weight", [d.hidden, kv], 1.0),
        ("attn_output.weight", [query, d.hidden], 1.0),
        ("ffn_gate.weight", [d.hidden, d.ff], 1.0),
        ("ffn_up.weight", [d.hidden, d.ff], 1.0),
        ("ffn_down.weight", [d.ff, d.hidden], 1.0),
    ]
    for part in ("attn", "ffn") if d.version == 2 else ():
        layer.append((f"{part}_conv_base", [d.hidden, 2, 2], 0))
        layer.append((f"{part}_conv_proj.weight", [d.hidden, 4 * d.hidden // d.conv_group], 0.3))
    for i in range(d.layers):
        out += [(f"blk.{i}.{name}", dims, gain) for name, dims, gain in layer]
    if d.version == 2:
        selector = "dflash.selector." if d.own else "selector_"
        out.append((selector + "hidden.weight", [d.hidden, d.rank], 1.0))
        out += [(f"{selector}{book}.weight", [d.rank, d.vocab], 2.0) for book in ("predecessor", "successor")]
    return out


def tensors(d: TinyDrafter) -> list[Tensor]:
    """All tensors, in file order."""
    random = Random(d.seed + 1000)
    out: list[Tensor] = []
    for name, dims, gain in shapes(d):
        count = math.prod(dims)
        if gain:
            type = d.type_of(name)
            out.append((name, type, dims, random_blocks(random, type, count, gain / dims[0] ** 0.5)))
            continue
        values: F32 = random.normal(count, 0.5) if "conv_base" in name else np.float32(1) + random.normal(count, 0.1)
        out.append((name, "f32", dims, values.astype(np.float32).view(np.uint8).reshape(-1)))
    return out


def metadata(d: TinyDrafter) -> list[tuple[str, str, Any]]:
    """All keys, in the file's layout."""
    key, own = d.layout + ".", d.own
    part = key + "dflash." if own else key
    keys: list[tuple[str, str, Any]] = [
        ("general.architecture", "str", d.layout),
        ("general.name", "str", "tiny drafter"),
        (key + "block_count", "u32", d.layers),
        (key + "context_length", "u32", 8192),
        (key + "embedding_length", "u32", d.hidden),
        (key + "feed_forward_length", "u32", d.ff),
        (key + "attention.head_count", "u32", d.heads),
        (key + "attention.head_count_kv", "u32", d.kv_heads),
        (key + "attention.key_length", "u32", d.head_dim),
        (key + "attention.value_length", "u32", d.head_dim),
        (key + "attention.layer_norm_rms_epsilon", "f32", 1e-6),
        (key + "rope.freq_base", "f32", 1e7),
        (part + "block_size", "u32", d.block_size),
        (part + ("target_layer_ids" if own else "target_layers"), "i32[]", [t + (not own) for t in d.taps]),
        ("qwen35-dflash-draft.dflash.mask_token_id" if own else "tokenizer.ggml.mask_token_id", "u32", d.mask_token),
    ]
    if any(d.window):
        keys += [
            (key + "attention.sliding_window", "u32", max(d.window)),
            (key + "attention.sliding_window_pattern", "bool[]", [w > 0 for w in d.window]),
        ]
    if d.causal is not None:
        keys.append((part + "causal" if own else key + "attention.causal", "bool", d.causal))
    if d.version == 2:
        keys += [
            (part + "conv_kernel_size", "u32", 2),
            (part + "conv_group_size", "u32", d.conv_group),
            (part + "selector_rank", "u32", d.rank),
            (part + "selector_top_k", "u32", d.top_k),
        ]
    if d.multiplier != 1:
        keys.append((part + ("output_multiplier" if own else "logit_scale"), "f32", d.multiplier))
    if d.softcap:
        keys.append((part + "final_logit_softcapping", "f32", d.softcap))
    return keys


def write(path: str | Path, drafter: TinyDrafter, extra: list[tuple[str, str, Any]] | None = None) -> None:
    """Writes the drafter as a GGUF file; a key of `extra` takes the place of the drafter's own."""
    own = {key for key, _, _ in extra or []}
    keys = [entry for entry in metadata(drafter) if entry[0] not in own]
    _core.write_gguf(str(path), keys + [e for e in extra or [] if e[2] is not None], tensors(drafter))
