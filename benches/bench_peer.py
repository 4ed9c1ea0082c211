"""lucebox against llama.cpp built for this machine (benches/build_llama_cpp.sh): the same files, threads and work, turn by turn.

python benches/bench_peer.py LLAMA_BIN [--types iq4_xs mix ...] [--tests 1 4 16 512] [--threads 1 2] [--rounds 5] [--json]
Files are random qwen35 models of the 27B's layers (hidden 5120, 24/4 heads of 256, 16/48 DeltaNet heads, feed-forward 17408), three
DeltaNet layers and one with attention, a vocabulary of 4,096: 0.8 to 1.6 GB, made once into $LUCEBOX_CACHE. A test of n rows is one call
of n rows on an empty sequence with the last row's logits (llama-bench -p n; 1 row: 16 decoded tokens, llama-bench -n 16). Each round
measures lucebox, then llama.cpp (its own warm-up discarded); medians, and the least and the largest ratio of a round. llama.cpp repacks
and keeps f16 K/V.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lucebox import _core, machine
from lucebox.selftest import tiny

TYPES = ["iq4_xs", "mix", "q4_0", "q8_0", "q4_K", "q6_K"]
DECODED = 16


def type_of(mix: str, name: str) -> str:
    """mix: as UD-IQ4_XS files have it, attention and outputs in more bits."""
    if name == "token_embd.weight" or mix != "mix":
        return "iq4_xs" if mix == "mix" else mix
    if "ssm_alpha" in name or "ssm_beta" in name:
        return "q8_0"
    for part, kind in [
        ("attn_qkv", "q5_K"),
        ("attn_v", "q5_K"),
        ("attn_gate", "q5_K"),
        ("ssm_out", "q6_K"),
        ("attn_k", "q6_K"),
    ]:
        if part in name:
            return kind
    if name == "output.weight":
        return "q6_K"
    return "iq3_s" if name == "blk.1.ffn_up.weight" else "iq4_xs"


def model_file(mix: str, folder: Path) -> Path:
    path = folder / f"peer-{mix}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = tiny.TinyModel(
            key_heads=16,
            value_heads=48,
            hidden=5120,
            ff=17408,
            heads=24,
            kv_heads=4,
            vocab=4096,
            types=lambda name: type_of(mix, name),
        )
        tiny.write(path, model)
    return path


def llama(binary: Path, path: Path, rows: int, threads: int) -> float:
    """Rows a second."""
    work = ["-p", "0", "-n", str(DECODED)] if rows == 1 else ["-p", str(rows), "-n", "0"]
    command = [binary, "-m", path, "-t", threads, "-r", 1, "-o", "json", *work]
    out = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]["avg_ts"]


def ours(engine: _core.Engine, rows: int) -> float:
    """Rows a second."""
    ids = [(i * 7919 + 13) % 4096 for i in range(max(rows, DECODED))]
    engine.reset(0)
    if rows == 1:
        start = time.perf_counter()
        for token in ids[:DECODED]:
            engine.forward([(0, [token])], "last")
        return DECODED / (time.perf_counter() - start)
    calls = max(1, 16 // rows)
    start = time.perf_counter()
    for _ in range(calls):
        engine.reset(0)
        engine.forward([(0, ids[:rows])], "last")
    return calls * rows / (time.perf_counter() - start)


def compare(args: argparse.Namespace, mix: str, threads: int) -> list[dict]:
    folder = Path(os.environ.get("LUCEBOX_CACHE", Path.home() / ".cache/lucebox"))
    path = model_file(mix, folder)
    file = _core.GGUFFile(str(path))
    engine = _core.Engine(file, max_ctx=1024, threads=threads, variant=args.variant)
    found = []
    for rows in args.tests:
        ours(engine, rows)
        pairs = [
            (ours(engine, rows), llama(args.llama / "llama-bench", path, rows, threads)) for _ in range(args.rounds)
        ]
        mine, theirs = (statistics.median(p[i] for p in pairs) for i in range(2))
        ratios = sorted(a / b for a, b in pairs)
        found.append({"type": mix, "threads": threads, "rows": rows, "lucebox": mine, "llama_cpp": theirs, "ratio": mine / theirs,
                      "least": ratios[0], "most": ratios[-1]})  # fmt: skip
        if rows == 1:
            weights = sum(t.nbytes for t in file.tensors if t.name != "token_embd.weight")
            found[-1]["gb_per_s"] = mine * weights / 1e9
            found[-1]["read_gb_per_s"] = statistics.median(
                0.5 / s for s in _core.testing.read_seconds(500_000_000, threads, 7)[1:]
            )
        if not args.json:
            print(line(found[-1]), flush=True)
    return found


def line(r: dict) -> str:
    text = (
        f"{r['type']:7s} {r['threads']} threads {r['rows']:4d} rows: {r['lucebox']:8.2f} against {r['llama_cpp']:8.2f} rows/s, "
        f"ratio {r['ratio']:.2f} ({r['least']:.2f} to {r['most']:.2f})"
    )
    if "gb_per_s" in r:
        text += f"; weights at {r['gb_per_s']:.1f} GB/s, plain read {r['read_gb_per_s']:.1f} ({r['gb_per_s'] / r['read_gb_per_s']:.0%})"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama", type=Path, help="the folder that build_llama_cpp.sh prints")
    matrix = [name for _, name, _, _, usable in _core.tensor_types() if usable]
    parser.add_argument("--types", nargs="+", default=TYPES, choices=["mix", *matrix])
    parser.add_argument("--tests", nargs="+", type=int, default=[1, 4, 16, 512], help="rows a call")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, machine.cores()}))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant", default="auto")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    build = subprocess.run([str(args.llama / "llama-bench"), "--version"], capture_output=True, text=True)
    print(
        f"{machine.cpu_name()}, load {machine.load_average():.2f}; llama.cpp: {(build.stdout + build.stderr).strip()}",
        file=sys.stderr,
    )
    results = [r for mix in args.types for threads in args.threads for r in compare(args, mix, threads)]
    if args.json:
        print(json.dumps({"cpu": machine.cpu_name(), "load": machine.load_average(), "results": results}))


if __name__ == "__main__":
    main()
