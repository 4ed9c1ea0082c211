"""A DFlash drafter in numpy, float64: docs/speculation.md as a plain program. Weights by the names of llama.cpp's layout."""

from __future__ import annotations

import numpy as np
from lucebox import _core
from lucebox.selftest.tiny_draft import TinyDrafter, tensors


def weights(drafter: TinyDrafter) -> dict[str, np.ndarray]:
    """Decoded tensors of a tiny drafter in llama.cpp's layout, float64 [rows, columns]."""
    return {
        name: _core.dequantize(type, data).reshape(dims[::-1]).astype(np.float64)
        for name, type, dims, data in tensors(drafter)
    }


def rms(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def f16(x: np.ndarray) -> np.ndarray:
    """As the ring keeps keys and values."""
    return x.astype(np.float16).astype(np.float64)


def rope(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """x [rows, heads, dims]; channel c turns with channel c + dims / 2."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * (1e7 ** (-np.arange(half) / half))
    a, b, cos, sin = x[..., :half], x[..., half:], np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


class Drafter:
    """One sequence; the whole context is kept, and the mask alone says what is seen."""

    def __init__(self, drafter: TinyDrafter) -> None:
        self.d, self.w = drafter, weights(drafter)
        self.k: list[np.ndarray] = [np.zeros((0, drafter.kv_heads, drafter.head_dim)) for _ in range(drafter.layers)]
        self.v = list(self.k)

    def _heads(self, x: np.ndarray, name: str) -> np.ndarray:
        return (x @ self.w[name].T).reshape(len(x), -1, self.d.head_dim)

    def _keys(self, x: np.ndarray, blk: str, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        k = rms(self._heads(x, blk + "attn_k.weight"), self.w[blk + "attn_k_norm.weight"])
        return f16(rope(k, positions)), f16(self._heads(x, blk + "attn_v.weight"))

    def context(self, taps: np.ndarray) -> None:
        """Rows [n, taps * hidden] of the target's layers, appended."""
        c = rms(taps @ self.w["fc.weight"].T, self.w["enc.output_norm.weight"])
        start = len(self.k[0])
        for i in range(self.d.layers):
            k, v = self._keys(c, f"blk.{i}.", np.arange(start, start + len(c)))
            self.k[i], self.v[i] = np.concatenate([self.k[i], k]), np.concatenate([self.v[i], v])

    def _conv(self, x: np.ndarray, delta: np.ndarray | None, side: int, name: str) -> np.ndarray:
        if delta is None:
            return x
        base, d = self.w[name][side], np.repeat(delta[:, side], self.d.conv_group, -1)
        before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
        return (base[0] + d[:, 0]) * x + (base[1] + d[:, 1]) * before

    def _kernels(self, x: np.ndarray, name: str) -> np.ndarray | None:
        return (x @ self.w[name].T).reshape(len(x), 2, 2, -1) if self.d.version == 2 else None

    def _attention(self, x: np.ndarray, i: int) -> np.ndarray:
        blk, n = f"blk.{i}.", len(self.k[i])
        positions = np.arange(n, n + len(x))
        q = rope(rms(self._heads(x, blk + "attn_q.weight"), self.w[blk + "attn_q_norm.weight"]), positions)
        k, v = self._keys(x, blk, positions)
        share = self.d.heads // self.d.kv_heads
        k = np.concatenate([self.k[i], k]).repeat(share, 1)
        v = np.concatenate([self.v[i], v]).repeat(share, 1)
        back = positions[:, None] - np.arange(n + len(x))
        window = self.d.window[i]
        causal = window > 0 if self.d.causal is None else self.d.causal
        seen = ((np.abs(back) < window) | (window == 0)) & ((back >= 0) | (not causal))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.d.head_dim)
        out = np.einsum("hqk,khd->qhd", softmax(np.where(seen, scores, -np.inf)), v)
        return out.reshape(len(x), -1) @ self.w[blk + "attn_output.weight"].T

    def block(self, embedded: np.ndarray) -> np.ndarray:
        """Normed output rows [rows, hidden] of a block behind the context."""
        h = embedded
        for i in range(self.d.layers):
            blk = f"blk.{i}."
            x = rms(h, self.w[blk + "attn_norm.weight"])
            delta = self._kernels(x, blk + "attn_conv_proj.weight")
            a = self._attention(self._conv(x, delta, 0, blk + "attn_conv_base"), i)
            h = h + self._conv(a, delta, 1, blk + "attn_conv_base")
            x = rms(h, self.w[blk + "ffn_norm.weight"])
            delta = self._kernels(x, blk + "ffn_conv_proj.weight")
            y = self._conv(x, delta, 0, blk + "ffn_conv_base")
            gate = y @ self.w[blk + "ffn_gate.weight"].T
            y = gate / (1 + np.exp(-gate)) * (y @ self.w[blk + "ffn_up.weight"].T) @ self.w[blk + "ffn_down.weight"].T
            h = h + self._conv(y, delta, 1, blk + "ffn_conv_base")
        return rms(h, self.w["output_norm.weight"])

    def logits(self, rows: np.ndarray, head: np.ndarray) -> np.ndarray:
        z, cap = rows @ head.T * self.d.multiplier, self.d.softcap
        return np.tanh(z / cap) * cap if cap else z

    def edges(self, rows: np.ndarray, ids: np.ndarray, values: np.ndarray, anchor: int) -> list[np.ndarray]:
        """Scores [predecessors, candidates] of each row."""
        if self.d.version == 1:
            return [np.repeat(v[None], 1 if i == 0 else len(v), 0) for i, v in enumerate(values)]
        g = rows @ self.w["selector_hidden.weight"].T
        a, b = self.w["selector_predecessor.weight"], self.w["selector_successor.weight"]
        before = [np.array([anchor]), *ids[:-1]]
        return [values[i] + (a[before[i]] * g[i]) @ b[ids[i]].T for i in range(len(rows))]


def best_path(edges: list[np.ndarray], reach: bool) -> list[int]:
    """Every path tried: the most probable one, or the one with the largest expected number of accepted tokens."""
    best, path = -np.inf, []

    def go(row: int, before: int, picks: list[int], probability: float, total: float) -> None:
        nonlocal best, path
        if row == len(edges):
            if (total if reach else probability) > best:
                best, path = (total if reach else probability), picks
            return
        p = softmax(edges[row][before])
        for b in range(len(p)):
            go(row + 1, b, [*picks, b], probability * p[b], total + probability * p[b])

    go(0, 0, [], 1.0, 0.0)
    return path
