"""Small random checkpoints of DFlash drafters, as a folder of config.json and safetensors, and a target for them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from lucebox.selftest import tiny

TARGET = tiny.TinyModel(types="q8_0")
LAYERS = 2


def config(version: int = 2, **changes: Any) -> dict[str, Any]:
    """None takes a key away."""
    found = {
        "architectures": ["DFlash2DraftModel" if version == 2 else "DFlashDraftModel"],
        "hidden_size": TARGET.hidden, "intermediate_size": 320, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "vocab_size": TARGET.vocab,
        "layer_types": ["sliding_attention", "sliding_attention" if version == 2 else "full_attention"], "sliding_window": 64,
        "rope_parameters": {"rope_theta": 10000000}, "block_size": 8,
        "dflash_config": {"mask_token_id": 300, "target_layer_ids": [0, 2]},
    }  # fmt: skip
    if version == 2:
        found |= {"is_causal": False}
        found["dflash_config"] |= {
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 32,
            "selector_top_k": 16,
        }
    return {key: value for key, value in {**found, **changes}.items() if value is not None}


def shapes(version: int = 2) -> dict[str, list[int]]:
    h, ff, vocab = TARGET.hidden, 320, TARGET.vocab
    found = {"fc.weight": [h, 2 * h], "hidden_norm.weight": [h], "norm.weight": [h]}
    for i in range(LAYERS):
        layer = {
            "input_layernorm.weight": [h], "post_attention_layernorm.weight": [h], "self_attn.q_norm.weight": [32],
            "self_attn.k_norm.weight": [32], "self_attn.q_proj.weight": [128, h], "self_attn.k_proj.weight": [64, h],
            "self_attn.v_proj.weight": [64, h], "self_attn.o_proj.weight": [h, 128], "mlp.gate_proj.weight": [ff, h],
            "mlp.up_proj.weight": [ff, h], "mlp.down_proj.weight": [h, ff],
        }  # fmt: skip
        if version == 2:
            for part in ("attention_conv", "mlp_conv"):
                layer[f"{part}.base_kernel"] = [2, 2, h]
                layer[f"{part}.kernel_projection.weight"] = [2 * 2 * h // 16, h]
        found |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    if version == 2:
        found["candidate_selector.hidden_projection.weight"] = [32, h]
        found |= {f"candidate_selector.{part}_codebook": [vocab, 32] for part in ("predecessor", "successor")}
    return found


def values(version: int = 2) -> dict[str, np.ndarray]:
    """f32 values that bf16 holds exactly."""
    random = np.random.RandomState(version)
    found = {}
    for name, shape in shapes(version).items():
        x = random.standard_normal(shape).astype(np.float32)
        found[name] = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return found


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    """tensors: (type, shape, bytes) by name."""
    header, at = {}, 0
    for name, (type, shape, data) in tensors.items():
        header[name] = {"dtype": type, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def as_bf16(x: np.ndarray) -> bytes:
    return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write(
    folder: Path, version: int = 2, *, files: int = 1, tensors: dict[str, np.ndarray] | None = None, **changes: Any
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(version, **changes)))
    held = {
        name: ("BF16", list(x.shape), as_bf16(x))
        for name, x in (values(version) if tensors is None else tensors).items()
    }
    names = list(held)
    for i in range(files):
        own = {name: held[name] for name in names[i::files]}
        write_safetensors(folder / (f"model-{i}.safetensors" if files > 1 else "model.safetensors"), own)
    if files > 1:
        index = {"weight_map": {name: f"model-{i}.safetensors" for i in range(files) for name in names[i::files]}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_target(path: Path, **changes: Any) -> Path:
    tiny.write(path, tiny.TinyModel(**{**TARGET.__dict__, **changes}))
    return path
