"""The plan of the real model on a 32 GB card, from a header alone: a sparse file as long as the weights, of which nothing is read."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from lucebox import _core
from lucebox.selftest import tiny

GIB = 1 << 30
DRAFTER_BYTES = 2_050_000_000  # of the 5-layer drafter in Q8_0, and 42 MB for its ring
SIZES = dict(
    hidden=5120,
    ff=17408,
    heads=24,
    kv_heads=4,
    key_heads=16,
    value_heads=48,
    vocab=248320,
    context_length=262144,
    layers=64,
)
# A UD-IQ4_XS mixture, by role.
UD = {
    "ssm_alpha": "q8_0",
    "ssm_beta": "q8_0",
    "attn_k": "q5_K",
    "attn_v": "q6_K",
    "attn_qkv": "q5_K",
    "output": "q6_K",
    "token_embd": "q4_K",
}
KINDS = {"str": "add_string", "u32": "add_uint32", "f32": "add_float32", "i32[]": "add_array", "str[]": "add_array"}


def shapes() -> list[tuple[str, str, list[int]]]:
    """(name, type, dims as in the file) of every tensor, the sizes of a tiny model's roles replaced by the real ones."""
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
    rows = [("token_embd.weight", [h, 248320]), ("output_norm.weight", [h]), ("output.weight", [h, 248320])]
    for layer in range(64):
        rows += [
            (f"blk.{layer}.{name}", dims) for name, dims in {**every, **(full if layer % 4 == 3 else linear)}.items()
        ]
    return [(name, type_of(name, dims), dims) for name, dims in rows]


def type_of(name: str, dims: list[int]) -> str:
    if len(dims) == 1 or "conv1d" in name:
        return "f32"
    return UD.get(name.removesuffix(".weight").split(".")[-1], "iq4_xs")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> _core.GGUFFile:
    path = tmp_path_factory.mktemp("plan") / "27b.gguf"
    writer = gguf.GGUFWriter(path, "qwen35")
    for key, kind, value in tiny.metadata(tiny.TinyModel(**SIZES)):
        if key != "general.architecture" and not key.startswith("tokenizer."):
            getattr(writer, KINDS[kind])(key, value)
    writer.add_uint32("qwen35.vocab_size", 248320)
    total = 0
    sizes = {name: (block, nbytes) for _, name, block, nbytes, _ in _core.tensor_types()}
    for name, type, dims in shapes():
        block, nbytes = sizes[type]
        size = dims[0] // block * nbytes * (dims[1] if len(dims) > 1 else 1)
        raw = [*dims[1:][::-1], dims[0] // block * nbytes] if type != "f32" else dims[::-1]
        quant = gguf.GGMLQuantizationType[type.upper()]
        dtype = "float32" if type == "f32" else "uint8"
        writer.add_tensor_info(name, raw, np.dtype(dtype), size, raw_dtype=quant)
        total += (size + 31) // 32 * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as f:
        f.truncate((path.stat().st_size + 31) // 32 * 32 + total)
    return _core.GGUFFile(str(path))


@pytest.mark.parametrize("max_ctx", [131072, 262144])
def test_the_27b_fits_a_32_gb_card(file: _core.GGUFFile, max_ctx: int) -> None:
    entries = _core.plan(file, max_ctx=max_ctx, device="hip:0")
    taken = sum(e.nbytes for e in entries if e.kind == "allocated")
    kv = next(e.nbytes for e in entries if e.name == "KV pages")
    assert kv == max_ctx * 34816  # q8_0, 16 layers of 4 heads of 256
    assert taken + DRAFTER_BYTES <= 31 * GIB
    assert taken >= sum(t.nbytes for t in file.tensors) * 0.98 + kv
