"""The same GGUF files in llama.cpp (the xllamacpp wheel): greedy tokens of float files, and how far quantised files are from float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lucebox
import numpy as np
import pytest
from oracle.files import NANO, rewrite

pytestmark = pytest.mark.oracle

PROMPTS = [
    "import os\n\n\nclass FileCache:\n    def __init__(self, path):\n",
    'def read_json(path):\n    """Read a JSON file and return its content."""\n',
    "The purpose of this chapter is to describe how",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|>user\nWrite a Python function `is_even(n)`.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|>user\nCreate a JSON array of 3 people.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "class TestStack(unittest.TestCase):\n\n    def setUp(self):\n        self.stack = Stack()\n\n    def test_push(self):\n",
    "## Installation\n\nTo install the package, run the following command:\n\n",
]
# What llama-quantize would give: base type, and the type of the tied head.
MIXES = {"IQ4_XS": ("IQ4_XS", "Q6_K"), "Q4_0": ("Q4_0", "Q6_K"), "Q4_K": ("Q4_K", "Q6_K"), "Q8_0": ("Q8_0", "Q8_0")}


class Peer:
    """llama.cpp with one file, one slot."""

    def __init__(self, path: Path) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.warmup = 1024, 1, False
        params.cpuparams.n_threads = 2
        self._server = xllamacpp.Server(params)

    def complete(self, ids: list[int], **options: Any) -> dict[str, Any]:
        answer = self._server.handle_completions({"prompt": ids, "temperature": 0, "cache_prompt": True, **options})
        answer = answer if isinstance(answer, dict) else json.loads(answer)
        assert "choices" in answer, answer
        return answer["choices"][0]["logprobs"]["content"]

    def greedy(self, ids: list[int], n: int) -> list[int]:
        return [token["id"] for token in self.complete(ids, n_predict=n, n_probs=1)]

    def distribution(self, ids: list[int], vocab: int) -> np.ndarray:
        """Log-probabilities of the token after ids, [vocab]."""
        (token,) = self.complete(ids, n_predict=1, n_probs=vocab)
        out = np.full(vocab, -np.inf)
        for entry in token["top_logprobs"]:
            out[entry["id"]] = entry["logprob"]
        return log_softmax(out)  # its float32 sums leave the total a few 1e-5 off one


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("type", ["F32", "F16"])
def test_greedy_tokens_of_float_files(tmp_path: Path, type: str) -> None:
    path = tmp_path / "nano.gguf"
    rewrite(NANO, path, lambda name: type)
    peer = Peer(path)
    with lucebox.load(str(path), kv="f16", max_ctx=1024) as engine:
        for prompt in PROMPTS:
            ids = engine.tokenizer.encode(prompt)
            mine = [id for piece in engine.generate(ids, max_tokens=64) for id in piece.token_ids]
            theirs = peer.greedy(ids, 64)
            shorter = min(len(mine), len(theirs))  # they do not report the end token
            assert shorter >= len(mine) - 1
            assert mine[:shorter] == theirs[:shorter], prompt


@pytest.mark.parametrize("mix", MIXES)
def test_quantised_files(tmp_path: Path, mix: str, record_property: Any) -> None:
    """Files made by llama.cpp's quantiser load here; KL against float32 of the same weights is no worse than llama.cpp's."""
    base, head = MIXES[mix]
    path, exact = tmp_path / "nano.gguf", tmp_path / "exact.gguf"
    rewrite(NANO, path, lambda name: head if name == "token_embd.weight" else base)
    rewrite(path, exact, lambda name: "F32")
    peer = Peer(path)
    with lucebox.load(str(path), max_ctx=1024) as engine, lucebox.load(str(exact), max_ctx=1024, kv="f32") as reference:
        kl: dict[str, list[float]] = {"ours": [], "llama.cpp": []}
        same = {"ours": 0, "llama.cpp": 0}
        for prompt in PROMPTS[2:6]:
            ids = engine.tokenizer.encode(prompt)
            ids += [id for piece in reference.generate(ids, max_tokens=24) for id in piece.token_ids][:24]
            expected = log_softmax(reference.forward(ids))
            mine = log_softmax(engine.forward(ids))
            theirs = np.stack([peer.distribution(ids[: i + 1], expected.shape[1]) for i in range(len(ids))])
            for name, got in (("ours", mine), ("llama.cpp", theirs)):
                kl[name] += (np.exp(expected) * (expected - got)).sum(axis=1).tolist()
                same[name] += int((expected.argmax(axis=1) == got.argmax(axis=1)).sum())
    mean = {name: float(np.mean(values)) for name, values in kl.items()}
    rows = len(kl["ours"])
    print(f"{mix}: {rows} rows, " + ", ".join(f"{n} KL {mean[n]:.2e} top-1 {same[n]}" for n in kl))
    record_property(mix, json.dumps({"kl": mean, "top1": same, "rows": rows}))
    # Q8_0: both quantise activations alike, so the two differ by chance alone; the others are four times closer here.
    assert mean["ours"] <= mean["llama.cpp"] * (1.2 if mix == "Q8_0" else 0.5)
    assert same["ours"] >= same["llama.cpp"] - max(2, rows // 50)
