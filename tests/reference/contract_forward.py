"""The forward of a tiny qwen35 file, with every weight decoded by the `gguf` package and multiplied here.

Slow and plain. Norm, SwiGLU, attention and DeltaNet are the portable ops, which have references of their own; what
this checks is that each tensor is read with its own type, stride and role. The rule for every line of `matmul` is in
docs/numerics.md, "Quantised matmul".
"""

from __future__ import annotations

import gguf
import numpy as np
from lucebox._core import GGUFFile, tensor_types, testing

SIZES = {
    name: (gguf.GGMLQuantizationType(id), block, nbytes) for id, name, block, nbytes, matrix in tensor_types() if matrix
}
# Where d and the minimum's factor lie in a block, and the whole number that makes the integers of its values whole.
FIELDS = {
    "q4_0": (0, None, 1),
    "q4_1": (0, 2, 1),
    "q5_0": (0, None, 1),
    "q5_1": (0, 2, 1),
    "q8_0": (0, None, 1),
    "iq4_nl": (0, None, 1),
    "q2_K": (80, 82, 1),
    "q3_K": (108, None, 1),
    "q4_K": (0, 2, 1),
    "q5_K": (0, 2, 1),
    "q6_K": (208, None, 1),
    "iq4_xs": (0, None, 1),
    "iq1_s": (0, None, 8),
    "iq2_xxs": (0, None, 8),
    "iq2_xs": (0, None, 8),
    "iq2_s": (0, None, 8),
    "iq3_xxs": (0, None, 4),
    "iq3_s": (0, None, 1),
}


def fma(a, b, c):
    """a * b + c rounded once: the f64 sum is rounded to odd, so that only the rounding to f32 counts."""
    p, c = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    even = np.atleast_1d(s).view(np.int64).reshape(s.shape) % 2 == 0
    return np.where((error != 0) & even, np.nextafter(s, np.copysign(np.inf, error)), s).astype(np.float32)


def decoded(name: str, blocks: np.ndarray) -> np.ndarray:
    """blocks [n, bytes] as f32 [n, values]."""
    return gguf.quants.dequantize(blocks, SIZES[name][0]).astype(np.float32).reshape(len(blocks), -1)


def with_f16(blocks: np.ndarray, at: int | None, value: float) -> np.ndarray:
    out = blocks.copy()
    if at is not None:
        out[:, at : at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return out


def integers(name: str, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Whole numbers scale * q [n, values], d [n], minimums [n, values], dmin [n] of blocks [n, bytes]."""
    if name == "mxfp4":
        unit = blocks.copy()
        unit[:, 0] = 128
        return (
            decoded(name, unit).astype(np.int64),
            np.ldexp(np.float32(1), blocks[:, 0].astype(int) - 128).astype(np.float32),
            None,
            None,
        )
    if name == "iq1_m":
        words = blocks[:, 48:].copy().view("<u2")
        d = sum((words[:, i].astype(np.uint32) >> 12) << 4 * i for i in range(4)).astype(np.uint16).view(np.float16)
        unit = blocks.copy()
        unit[:, 48:] = (
            (words & 0xFFF | np.array([0, 0, 0xC, 0x3], np.uint16) << 12).astype("<u2").view(np.uint8)
        )  # 0x3C00 is 1
        return (8 * decoded(name, unit)).astype(np.int64), d.astype(np.float32) / 8, None, None
    at, at_min, whole = FIELDS[name]
    values = whole * decoded(name, with_f16(with_f16(blocks, at, 1), at_min, 0))
    assert (values == np.rint(values)).all()
    d = blocks[:, at : at + 2].copy().view("<f2")[:, 0].astype(np.float32) / np.float32(whole)
    if at_min is None:
        return values.astype(np.int64), d, None, None
    minimums = np.abs(decoded(name, with_f16(with_f16(blocks, at, 0), at_min, 1)))
    return (
        values.astype(np.int64),
        d,
        minimums,
        blocks[:, at_min : at_min + 2].copy().view("<f2")[:, 0].astype(np.float32),
    )


def float_matmul(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """lane_sum of weight times the unrounded row."""
    total = None
    for s in range(0, w.shape[1], 1024):
        lanes = np.zeros((len(x), len(w), 32), np.float32)
        for i in range(s, min(s + 1024, w.shape[1]), 32):
            lanes = fma(w[None, :, i : i + 32], x[:, None, i : i + 32], lanes)
        for half in (16, 8, 4, 2, 1):
            lanes = lanes[..., :half] + lanes[..., half : 2 * half]
        total = lanes[..., 0] if total is None else total + lanes[..., 0]
    return total


def matmul(weight: tuple[str, np.ndarray, int], acts: tuple) -> np.ndarray:
    """weight (type, bytes, rows), acts (x, q, d, sums of 16) of [tokens, columns]: [tokens, rows]."""
    name, data, rows = weight
    x, q, d_a, sums = acts
    _, block, nbytes = SIZES[name]
    blocks = data.reshape(-1, nbytes)
    if name in ("f32", "f16", "bf16"):
        return float_matmul(decoded(name, blocks).reshape(rows, -1), x)
    values, d, minimums, dmin = (None if v is None else v.reshape(rows, -1) for v in integers(name, blocks))
    columns = values.shape[1]
    p = np.einsum("tgi,rgi->trg", q.reshape(len(q), -1, 32).astype(np.int64), values.reshape(rows, -1, 32))
    assert np.abs(p).max() < 1 << 24
    acc, total = np.zeros((len(x), rows), np.float32), None
    for start in range(0, columns, block):
        if start % 1024 == 0 and start:
            total, acc = acc if total is None else total + acc, np.zeros_like(acc)
        at, first = start // block, start // 32
        if block == 32:
            da = d_a[:, first, None]
            acc = fma(d[None, :, at] * da, p[:, :, first], acc)
            if minimums is not None:
                acc = fma(
                    dmin[None, :, at],
                    da * sums[:, 2 * first : 2 * first + 2].sum(axis=1, dtype=np.float32)[:, None],
                    acc,
                )
            continue
        f = np.zeros_like(acc)
        for g in range(first, first + 8):
            f = fma(d_a[:, g, None], p[:, :, g], f)
        acc = fma(d[None, :, at], f, acc)
        if minimums is None:
            continue
        m = np.zeros_like(acc)
        step = 1 if name == "q2_K" else 2  # sixteenths whose minimum is one
        for t in range(2 * first, 2 * first + 16, step):
            share = d_a[:, t // 2, None] * sums[:, t : t + step].sum(axis=1).astype(np.float32)[:, None]
            m = fma(minimums[None, :, 16 * t], share, m)
        acc = fma(-dmin[None, :, at], m, acc)
    return acc if total is None else total + acc


def forward(file: GGUFFile, ids: list[int]) -> np.ndarray:
    """Logits [tokens, vocab] of a fresh sequence of at most 256 ids, with a q8_0 cache."""
    keys = {k.removeprefix("qwen35."): v for k, v in file.metadata.items()}
    infos = {t.name: t for t in file.tensors}
    heads, kv_heads, head_dim = (
        keys["attention.head_count"],
        keys["attention.head_count_kv"],
        keys["attention.key_length"],
    )
    key_heads, value_heads, eps, n = (
        keys["ssm.group_count"],
        keys["ssm.time_step_rank"],
        keys["attention.layer_norm_rms_epsilon"],
        len(ids),
    )
    plain = {"variant": "portable"}

    def weight(name):
        return infos[name].type, file.data(name), infos[name].dims[1]

    def vector(name):
        return file.data(name).view(np.float32).reshape(infos[name].dims[::-1])

    def normed(h, name):
        return testing.norm(h, vector(name), eps, **plain)

    dims = keys["rope.dimension_count"]
    inv_freq = np.power(np.float64(np.float32(keys["rope.freq_base"])), -2.0 * np.arange(dims // 2) / dims).astype(
        np.float32
    )
    angles = np.arange(n)[:, None] * inv_freq.astype(np.float64)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    name, data, rows = weight("token_embd.weight")
    _, _, nbytes = SIZES[name]
    h = decoded(name, data.reshape(rows, -1)[ids].reshape(-1, nbytes)).reshape(n, -1)
    for i in range(keys["block_count"]):
        blk = f"blk.{i}."
        y = normed(h, blk + "attn_norm.weight")
        if (i + 1) % keys["full_attention_interval"]:
            u, z, alpha, beta = (
                matmul(weight(blk + w + ".weight"), y) for w in ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta")
            )
            state = np.zeros((1, value_heads, 128, 128), np.float32)
            rings = np.zeros((1, 64, u.shape[1]), np.float32), np.zeros((1, 64, 2, value_heads), np.float32)
            vectors = (vector(blk + v) for v in ("ssm_conv1d.weight", "ssm_dt.bias", "ssm_a", "ssm_norm.weight"))
            mixed, _ = testing.deltanet(
                [(0, n, 0, 0, True)], key_heads, value_heads, eps, u, alpha, beta, z, *vectors, state, *rings, **plain
            )
            h = h + matmul(weight(blk + "ssm_out.weight"), mixed)
        else:
            qg, k, v = (matmul(weight(blk + w + ".weight"), y) for w in ("attn_q", "attn_k", "attn_v"))
            qg, k, v = (
                qg.reshape(n, heads, 2, head_dim),
                k.reshape(n, kv_heads, head_dim),
                v.reshape(n, kv_heads, head_dim),
            )
            pages, table = np.zeros((1, 2 * kv_heads * head_dim * 256 * 2), np.uint8), np.zeros((1, 1), np.int32)
            norms = vector(blk + "attn_q_norm.weight"), vector(blk + "attn_k_norm.weight")
            mixed, _ = testing.attention(
                [(0, p) for p in range(n)], "q8_0", eps, head_dim, qg, k, v, *norms, cos, sin, pages, table, **plain
            )
            h = h + matmul(weight(blk + "attn_output.weight"), mixed)
        y = normed(h, blk + "post_attention_norm.weight")
        gated = testing.swiglu(
            matmul(weight(blk + "ffn_gate.weight"), y), matmul(weight(blk + "ffn_up.weight"), y), **plain
        )
        h = h + matmul(weight(blk + "ffn_down.weight"), gated)
    head = "output.weight" if "output.weight" in infos else "token_embd.weight"
    return matmul(weight(head), normed(h, "output_norm.weight"))
