"""lucebox serve beside llama-server (benches/build_llama_cpp.sh): what their clients see, turn by turn in one run.

    python benches/bench_serve_peer.py LLAMA_BIN [--model nano|FILE] [--draft nano|random|FILE] [--threads 2] [--slots 8]
        [--max-ctx 4096] [--scenario NAME …] [-n TOKENS] [-r ROUNDS] [--json FILE]

Starts both servers on the same files and lets `lucebox bench --url … --url …` ask both; prints its table and, for each
scenario, the ratios of the medians. Both servers keep their defaults but for slots, context and threads. A random drafter is one of a
layer in Q8_0 for the model's sizes, which is hardly ever right: what a useless drafter costs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lucebox import _core
from lucebox.engine import BUNDLED, BUNDLED_DRAFTERS
from lucebox.selftest import tiny_draft
from servers import serving

PORT = 8483
DRAFT = ["--spec-type", "draft-dflash", "--spec-draft-n-max", "7"]


def random_drafter(model: Path, path: Path) -> Path:
    file = _core.GGUFFile(str(model))
    sizes = {key: file.metadata[f"qwen35.{key}"] for key in ("embedding_length", "block_count")}
    vocab = next(t for t in file.tensors if t.name == "token_embd.weight").dims[1]
    taps = (0, sizes["block_count"] - 2)  # llama.cpp has no place for the last layer's output
    drafter = tiny_draft.TinyDrafter(
        hidden=sizes["embedding_length"], ff=4096, layers=1, heads=8, kv_heads=2, head_dim=128, vocab=vocab,
        taps=taps, window=(2048,), mask_token=vocab - 1, rank=64, types="q8_0",
    )  # fmt: skip
    words = [(k, file.value_types[k], v) for k, v in file.metadata.items() if k.startswith("tokenizer.")]
    tiny_draft.write(path, drafter, words)
    return path


def commands(args: argparse.Namespace, folder: Path) -> list[list[Any]]:
    """The two servers' command lines: ours, theirs."""
    model = BUNDLED.get(args.model, args.model)
    ours = [sys.executable, "-m", "lucebox", "serve", model, "--port", PORT, "--slots", args.slots]
    ours += ["--max-ctx", args.max_ctx, "--threads", args.threads]
    theirs = [args.bin / "llama-server", "-m", model, "--port", PORT + 1, "-np", args.slots]
    theirs += ["-c", args.slots * args.max_ctx, "-t", args.threads]
    if args.draft:
        draft = BUNDLED_DRAFTERS.get(args.draft, args.draft)
        if args.draft == "random":
            draft = random_drafter(Path(model), folder / "random.gguf")
        ours += ["--draft", draft]
        theirs += ["-md", draft, *DRAFT]
    return [ours, theirs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--draft")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--max-ctx", type=int, default=4096)
    parser.add_argument("--scenario", action="append", default=[])
    parser.add_argument("-n", type=int)
    parser.add_argument("-r", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    urls = [f"http://127.0.0.1:{PORT + i}" for i in range(2)]
    bench = [sys.executable, "-m", "lucebox", "bench", "--json", "-r", args.r]
    for url in urls:
        bench += ["--url", url]
    for name in args.scenario:
        bench += ["--scenario", name]
    if args.n:
        bench += ["-n", args.n]
    with ExitStack() as servers:
        folder = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        for url, command in zip(urls, commands(args, folder), strict=True):
            servers.enter_context(serving(command, url))
        output = subprocess.run(list(map(str, bench)), check=True, stdout=subprocess.PIPE, text=True).stdout
    report = json.loads(output)
    if args.json:
        args.json.write_text(output)
    show(report, urls)


def show(report: dict[str, Any], urls: list[str]) -> None:
    rows = {(r["scenario"], r["url"]): r for r in report["results"]}
    figures = ("ttft_s", "decode_tok_per_s", "total_tok_per_s")
    for name in dict.fromkeys(scenario for scenario, _ in rows):
        ours, theirs = (rows[name, next(u for _, u in rows if u.startswith(url))] for url in urls)
        if "refused" in ours or "refused" in theirs:
            print(f"{name:8s} refused: {ours.get('refused')} | {theirs.get('refused')}")
            continue
        cells = []
        for figure in figures:
            a, b = ours[figure], theirs[figure]
            spread = f"({a['min']:.3g} … {a['max']:.3g} | {b['min']:.3g} … {b['max']:.3g})"
            cells.append(
                f"{re.sub('_s$', '', figure)} {a['median']:.3g} | {b['median']:.3g} = {a['median'] / b['median']:.2f} {spread}"
            )
        print(f"{name:8s} " + "  ".join(cells))


if __name__ == "__main__":
    main()
