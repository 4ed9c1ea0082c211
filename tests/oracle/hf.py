"""A float32 `transformers` model with the weights of a qwen35 GGUF file: the inverse of what llama.cpp's converter did."""

from __future__ import annotations

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

_LAYER = {
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def _untile(x: np.ndarray, key_heads: int, value_heads: int) -> np.ndarray:
    """Rows of value heads from the file's order (head j reads key head j mod key_heads) to the checkpoint's (grouped)."""
    rest = x.shape[0] // value_heads
    return x.reshape(value_heads // key_heads, key_heads, rest, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def _restore(name: str, w: np.ndarray, hk: int, hv: int) -> np.ndarray:
    key = 2 * hk * 128  # q and k rows keep their order
    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        w = np.concatenate([w[:key], _untile(w[key:], hk, hv)])
    elif name in ("attn_gate.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"):
        w = _untile(w, hk, hv)
    elif name == "ssm_out.weight":
        w = _untile(w.T, hk, hv).T
    if name == "ssm_a":
        return np.log(-w)
    if name == "ssm_conv1d.weight":
        return w[:, None, :]
    return w - 1 if name.endswith("norm.weight") and name != "ssm_norm.weight" else w


def load(path: str) -> Qwen3_5ForCausalLM:
    reader = GGUFReader(path)
    kv = {k.removeprefix("qwen35."): f.contents() for k, f in reader.fields.items() if k.startswith("qwen35.")}
    weights = {
        t.name: dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]).astype(np.float32) for t in reader.tensors
    }
    layers = kv["block_count"]
    config = Qwen3_5TextConfig(
        vocab_size=len(weights["token_embd.weight"]),
        hidden_size=kv["embedding_length"],
        intermediate_size=kv["feed_forward_length"],
        num_hidden_layers=layers,
        num_attention_heads=kv["attention.head_count"],
        num_key_value_heads=kv["attention.head_count_kv"],
        head_dim=kv["attention.key_length"],
        linear_num_key_heads=kv["ssm.group_count"],
        linear_num_value_heads=kv["ssm.time_step_rank"],
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        rms_norm_eps=kv["attention.layer_norm_rms_epsilon"],
        max_position_embeddings=kv["context_length"],
        tie_word_embeddings="output.weight" not in weights,
        layer_types=[
            "full_attention" if (i + 1) % kv.get("full_attention_interval", 4) == 0 else "linear_attention"
            for i in range(layers)
        ],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": kv["rope.freq_base"],
            "partial_rotary_factor": kv["rope.dimension_count"] / kv["attention.key_length"],
            "mrope_interleaved": True,
            "mrope_section": list(kv["rope.dimension_sections"][:3]),
        },
    )
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "model.norm.weight": weights["output_norm.weight"] - 1,
    }
    state["lm_head.weight"] = weights.get("output.weight", weights["token_embd.weight"])
    for name, w in weights.items():
        if name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            state[f"model.layers.{layer}.{_LAYER[rest]}"] = _restore(
                rest, w, kv["ssm.group_count"], kv["ssm.time_step_rank"]
            )
    model = Qwen3_5ForCausalLM(config).to(torch.float32).eval()
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()})
    return model


def run(model: Qwen3_5ForCausalLM, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(logits [n, vocab], residual stream after each layer [layers, n, hidden]); the last layer's is what the final norm reads."""
    kept: list[np.ndarray] = []
    hooks = [
        layer.register_forward_hook(
            lambda m, a, out: kept.append((out[0] if isinstance(out, tuple) else out)[0].numpy())
        )
        for layer in model.model.layers
    ]
    try:
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    finally:
        for hook in hooks:
            hook.remove()
    return logits, np.stack([h.reshape(len(ids), -1) for h in kept])
