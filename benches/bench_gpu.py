"""The whole step on a GPU at the 27B's geometry, with random weights: milliseconds, and the weights' bytes a second as a share of the
card's read bandwidth.

    python benches/bench_gpu.py --device cuda:0 [--mix iq4_xs|ud] [--layers 64] [--json]

Every layer of a kind holds the same random blocks, so that a file of 13 GB is written in seconds. Warm-up discarded,
medians of 15 with spread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from lucebox import _core, devices
from lucebox.selftest import tiny

GEOMETRY = {
    "hidden": 5120, "ff": 17408, "heads": 24, "kv_heads": 4, "head_dim": 256, "key_heads": 16, "value_heads": 48, "vocab": 248320,
    "context_length": 262144,
}  # fmt: skip
# What a UD-IQ4_XS file mixes, by role.
UD = {
    "ssm_alpha": "q8_0",
    "ssm_beta": "q8_0",
    "attn_k": "q5_K",
    "attn_v": "q6_K",
    "attn_qkv": "q5_K",
    "ssm_out": "q5_K",
    "ffn_down": "q4_K",
    "output": "q6_K",
    "token_embd": "q4_K",
}


def type_of(mix: str, name: str) -> str:
    role = name.removesuffix(".weight").split(".")[-1]
    if mix == "ud":
        return UD.get(role, "iq4_xs")
    return "iq4_xs"


def write_model(path: Path, mix: str, layers: int) -> None:
    """A model of `layers` layers whose four distinct ones are repeated."""
    model = tiny.TinyModel(**GEOMETRY, layers=4, types=lambda name: type_of(mix, name))
    tensors = tiny.tensors(model)
    own = {t[0]: t for t in tensors}
    repeated = [t for t in tensors if not t[0].startswith(("blk.", "output"))]
    for layer in range(layers):
        repeated += [
            (t[0].replace(f"blk.{layer % 4}.", f"blk.{layer}.", 1), *t[1:])
            for t in tensors
            if t[0].startswith(f"blk.{layer % 4}.")
        ]
    repeated += [own["output_norm.weight"], own["output.weight"]]
    keys = [
        (k, t, layers if k == "qwen35.block_count" else v)
        for k, t, v in tiny.metadata(model)
        if not k.startswith("tokenizer.")
    ]
    keys.append(("qwen35.vocab_size", "u32", model.vocab))
    _core.write_gguf(str(path), keys, repeated)


def timed(engine: _core.Engine, rows: int, context: int, repeats: int) -> tuple[float, float, float]:
    """Milliseconds of a step of `rows` rows after `context` tokens: median, least, most."""
    ids = np.random.RandomState(rows).randint(0, 200000, context + rows * (repeats + 2)).tolist()
    engine.reset(0)
    if context:
        engine.forward([(0, ids[:context])], "none")
    seconds = []
    for i in range(repeats + 2):
        at = context + i * rows
        start = time.perf_counter()
        engine.forward([(0, ids[at : at + rows])], "argmax")
        seconds.append((time.perf_counter() - start) * 1e3)
    seconds = seconds[2:]
    return statistics.median(seconds), min(seconds), max(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--mix", choices=["iq4_xs", "ud"], default="iq4_xs")
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--launch", default="auto")
    parser.add_argument("--contexts", type=int, nargs="*", default=[0, 2048, 16384])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, args.mix, args.layers)
        file = _core.GGUFFile(str(path))
        streamed = sum(t.nbytes for t in file.tensors if t.name != "token_embd.weight")
        start = time.perf_counter()
        engine = _core.Engine(
            file, max_ctx=max(args.contexts) + 1024 + 32 * 128, **devices.options(args.device, launch=args.launch)
        )
        seconds = time.perf_counter() - start
        print(f"{args.device}, {args.mix}, {args.layers} layers, {streamed / 1e9:.2f} GB a step", flush=True)
        print(f"loaded in {seconds:.1f} s, launch {engine.launch}", flush=True)
        for context in args.contexts:
            for rows in args.rows:
                median, least, most = timed(engine, rows, context, args.repeats)
                report.append({"context": context, "rows": rows, "ms": median, "least": least, "most": most})
                print(f"context {context:6d}  rows {rows:3d}  {median:8.2f} ms ({least:.2f} … {most:.2f})  "
                      f"{streamed / median / 1e6:7.0f} GB/s of weights", flush=True)  # fmt: skip
        ids = np.random.RandomState(0).randint(0, 200000, 2048).tolist()
        engine.reset(0)
        start = time.perf_counter()
        engine.forward([(0, ids)], "argmax")
        engine.reset(0)
        start = time.perf_counter()
        engine.forward([(0, ids)], "argmax")
        rate = 2048 / (time.perf_counter() - start)
        print(f"prefill of 2048 tokens: {rate:.0f} tokens/s", flush=True)
        report.append({"prefill_tokens_per_s": rate})
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
