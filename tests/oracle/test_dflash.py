"""Drafts against z-lab's own model in float32 (PyPI `dflash`, installed without its dependencies)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import SequenceParams, StepWork, testing
from lucebox.selftest import tiny
from lucebox.selftest.tiny_draft import TinyDrafter, tensors, write

pytestmark = pytest.mark.oracle

TARGET = tiny.TinyModel(seed=8, context_length=4096)
DRAFTERS = {
    "block 8": TinyDrafter(),
    "block 16, multiplier, softcap": TinyDrafter(
        block_size=16, multiplier=0.19611613, softcap=20.0, layers=3, window=(48,) * 3
    ),
}
NAMES = {
    "fc.weight": "fc.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "output_norm.weight": "norm.weight",
    "selector_hidden.weight": "candidate_selector.hidden_projection.weight",
    "selector_predecessor.weight": "candidate_selector.predecessor_codebook.weight",
    "selector_successor.weight": "candidate_selector.successor_codebook.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "attn_conv_base": "attention_conv.base_kernel",
    "attn_conv_proj.weight": "attention_conv.kernel_projection.weight",
    "ffn_conv_base": "mlp_conv.base_kernel",
    "ffn_conv_proj.weight": "mlp_conv.kernel_projection.weight",
}


def hf_name(name: str) -> str:
    if not name.startswith("blk."):
        return NAMES[name]
    _, layer, rest = name.split(".", 2)
    return f"layers.{layer}.{NAMES[rest]}"


def reference(d: TinyDrafter) -> tuple[Any, Any]:
    import torch
    from dflash.model import DFlash2DraftModel
    from transformers import Qwen3Config

    config = Qwen3Config(
        hidden_size=d.hidden,
        intermediate_size=d.ff,
        num_hidden_layers=d.layers,
        num_attention_heads=d.heads,
        num_key_value_heads=d.kv_heads,
        head_dim=d.head_dim,
        vocab_size=d.vocab,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7},
        rms_norm_eps=1e-6,
        use_sliding_window=True,
        max_window_layers=0,
        sliding_window=d.window[0],
        layer_types=["sliding_attention"] * d.layers,
        num_target_layers=TARGET.layers,
        attn_implementation="sdpa",
        is_causal=False,
        dflash_config={
            "target_layer_ids": list(d.taps),
            "block_size": d.block_size,
            "mask_token_id": d.mask_token,
            "conv_kernel_size": 2,
            "conv_group_size": d.conv_group,
            "selector_rank": d.rank,
            "selector_top_k": d.top_k,
            "output_multiplier": d.multiplier,
            "final_logit_softcapping": d.softcap,
        },
    )
    config.sliding_window = d.window[0]
    model = DFlash2DraftModel(config).eval().float()
    state = {}
    for name, type, dims, data in tensors(d):
        values = _core.dequantize(type, data).reshape(dims[::-1]).copy()
        state[hf_name(name)] = torch.from_numpy(values)
    own = dict(model.named_parameters())
    missing = [name for name in own if name not in state and name.removesuffix(".weight") not in state]
    assert not missing, missing
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(state.get(name, state.get(name.removesuffix(".weight"))))
    return model, config


def as_float(file: _core.GGUFFile, name: str, rows: int) -> np.ndarray:
    return _core.dequantize("f32", np.array(file.data(name))).reshape(rows, -1)


@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts_equal_the_reference(tmp_path: Path, name: str) -> None:
    """32 contexts a geometry, from one token to several windows: the same candidates in order, the same scores, the same walk."""
    torch = pytest.importorskip("torch")
    from transformers import DynamicCache

    d = DRAFTERS[name]
    tiny.write(tmp_path / "t.gguf", TARGET)
    write(tmp_path / "d.gguf", d)
    target = _core.GGUFFile(str(tmp_path / "t.gguf"))
    engine = _core.Engine(target, max_ctx=4096, threads=1, draft=_core.GGUFFile(str(tmp_path / "d.gguf")))
    plain = _core.Engine(target, max_ctx=4096, threads=1)
    table, head = as_float(target, "token_embd.weight", TARGET.vocab), as_float(target, "output.weight", TARGET.vocab)
    model, config = reference(d)
    lm = torch.nn.Linear(d.hidden, d.vocab, bias=False)
    lm.weight.data = torch.from_numpy(head.copy())
    random = np.random.RandomState(3)
    same = total = 0
    for _ in range(32):
        ids = random.randint(0, 256, int(random.randint(1, 6 * d.window[0]))).tolist()
        engine.begin(0, SequenceParams(), ids)
        for at in range(0, len(ids), 128):
            part = ids[at : at + 128]
            result = engine.step([StepWork(0, part, emit=at + len(part) == len(ids))])[0]
        anchor = result.token_ids[0]
        candidates, edges = testing.draft(engine, 0, anchor, d.block_size)
        taps = np.concatenate(list(plain.hidden(ids, list(d.taps))), -1)
        cache = DynamicCache(config=config)
        cache.activate_past_recording()
        embedded = table[[anchor] + [d.mask_token] * (d.block_size - 1)]
        with torch.no_grad():
            rows = model(
                target_hidden=torch.from_numpy(taps)[None],
                noise_embedding=torch.from_numpy(embedded)[None],
                position_ids=torch.arange(len(ids) + d.block_size)[None],
                past_key_values=cache,
                use_cache=True,
            )
            logits = model.compute_logits(rows[:, 1:], lm)[0].numpy()
            path = model.propose(rows[:, 1:], torch.tensor([anchor]), lm, 0.0)[0][0].tolist()
        order = np.argsort(-logits, -1, kind="stable")[:, : d.top_k]
        scale = np.abs(logits).max()
        values = np.take_along_axis(logits, candidates[:, : d.top_k], -1)
        assert np.abs(values - np.take_along_axis(logits, order, -1)).max() < 1e-3 * scale
        same += int((np.sort(candidates[:, : d.top_k]) == np.sort(order)).sum())
        total += order.size
        walked = testing.select(candidates, edges, d.top_k)[0]
        assert walked == path
    assert same / total > 0.999
