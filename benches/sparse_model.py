"""The 27B as a GGUF file of which only the header is there: the weights are a hole as long as they are. For plans and launch records."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from lucebox import _core
from lucebox.selftest import tiny, tiny_draft

SIZES = dict(
    hidden=5120, ff=17408, heads=24, kv_heads=4, key_heads=16, value_heads=48, vocab=248320, context_length=262144,
)  # fmt: skip
_KINDS = {
    "str": "add_string",
    "u32": "add_uint32",
    "f32": "add_float32",
    "i32[]": "add_array",
    "bool": "add_bool",
    "bool[]": "add_array",
}


def _shapes(layers: int, tied: bool) -> list[tuple[str, list[int]]]:
    """Name and dims as in the file of every tensor."""
    n, h, ff = 48 * 128, 5120, 17408
    linear = {
        "attn_qkv.weight": [h, 10240], "attn_gate.weight": [h, n], "ssm_alpha.weight": [h, 48], "ssm_beta.weight": [h, 48],
        "ssm_a": [48], "ssm_dt.bias": [48], "ssm_conv1d.weight": [4, 10240], "ssm_norm.weight": [128], "ssm_out.weight": [n, h],
    }  # fmt: skip
    full = {
        "attn_q.weight": [h, 12288], "attn_k.weight": [h, 1024], "attn_v.weight": [h, 1024], "attn_q_norm.weight": [256],
        "attn_k_norm.weight": [256], "attn_output.weight": [n, h],
    }  # fmt: skip
    every = {
        "attn_norm.weight": [h], "post_attention_norm.weight": [h], "ffn_gate.weight": [h, ff], "ffn_up.weight": [h, ff],
        "ffn_down.weight": [ff, h],
    }  # fmt: skip
    rows = [("token_embd.weight", [h, 248320]), ("output_norm.weight", [h])]
    if not tied:
        rows.append(("output.weight", [h, 248320]))
    for layer in range(layers):
        own = {**every, **(full if layer % 4 == 3 else linear)}
        rows += [(f"blk.{layer}.{name}", dims) for name, dims in own.items()]
    return rows


def write(path: Path, type_of: Callable[[str], str], layers: int = 64, tied: bool = False) -> None:
    """type_of: the type of a matrix by its tensor's name; vectors are f32."""
    keys = [
        entry
        for entry in tiny.metadata(tiny.TinyModel(**SIZES, layers=layers))
        if not entry[0].startswith("tokenizer.")
    ]
    keys.append(("qwen35.vocab_size", "u32", SIZES["vocab"]))
    shapes = [
        (name, dims, "f32" if len(dims) == 1 or "conv1d" in name else type_of(name))
        for name, dims in _shapes(layers, tied)
    ]
    _write(path, keys, shapes)


DRAFTER = tiny_draft.TinyDrafter(
    hidden=SIZES["hidden"], ff=SIZES["ff"], layers=5, heads=32, kv_heads=8, head_dim=128, vocab=SIZES["vocab"],
    taps=(5, 19, 33, 47, 61), window=(2048,) * 5, mask_token=248070, rank=256, types="q8_0",
)  # fmt: skip
"""The published drafter's sizes."""


def write_drafter(path: Path, drafter: tiny_draft.TinyDrafter = DRAFTER) -> None:
    """A drafter of matrices in Q8_0."""
    shapes = [(name, dims, "q8_0" if gain else "f32") for name, dims, gain in tiny_draft.shapes(drafter)]
    _write(path, tiny_draft.metadata(drafter), shapes)


def _write(path: Path, keys: list[tuple[str, str, Any]], shapes: list[tuple[str, list[int], str]]) -> None:
    writer = gguf.GGUFWriter(path, next(value for key, _, value in keys if key == "general.architecture"))
    for key, kind, value in keys:
        if key != "general.architecture":
            getattr(writer, _KINDS[kind])(key, value)
    total = 0
    sizes = {name: (block, nbytes) for _, name, block, nbytes, _ in _core.tensor_types()}
    for name, dims, type in shapes:
        block, nbytes = sizes[type]
        size = math.prod(dims) // block * nbytes
        raw = [*dims[1:][::-1], dims[0] // block * nbytes] if type != "f32" else dims[::-1]
        quant = gguf.GGMLQuantizationType[type.upper()]
        writer.add_tensor_info(name, raw, np.dtype("float32" if type == "f32" else "uint8"), size, raw_dtype=quant)
        total += (size + 31) // 32 * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate((path.stat().st_size + 31) // 32 * 32 + total)
