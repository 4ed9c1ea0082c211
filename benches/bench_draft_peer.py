"""Speculation against llama.cpp (benches/build_llama_cpp.sh) on nano, same files and prompts, one thread, turn by turn.

    python benches/bench_draft_peer.py LLAMA_BIN [--types f16 iq4_xs] [--tokens 128] [--rounds 3] [--threads 1] [--json]

Two questions. Drafts: with fixed blocks of 8 and no lookup, does a text that both engines give alike take the same steps
(llama.cpp's draft-dflash, n_max 7)? Speed: tokens a second of our defaults, of our plain decoding and of both llama.cpp
modes, as ratios to llama.cpp's plain decoding, a kind of text at a time; medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import lucebox
from lucebox.engine import BUNDLED, BUNDLED_DRAFTERS, Engine
from lucebox.prompts import KINDS, PROMPTS
from servers import serving

PORT = 8479
DRAFT = ["--spec-type", "draft-dflash", "--spec-draft-n-max", "7"]
OURS: dict[str, dict[str, Any]] = {
    "plain": {"speculative": "off"},
    "drafter": {"lookup": False, "adaptive": False},
    "lookup": {},  # on an engine without the drafter
    "default": {},
}


def in_type(source: Path, target: Path, name: str) -> Path:
    command = [
        sys.executable,
        "-m",
        "lucebox",
        "quantize",
        "--allow-requantize",
        "--pure",
        str(source),
        str(target),
        name.upper(),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return target


def llama_server(binary: Path, model: Path, port: int, threads: int, *more: Any) -> AbstractContextManager[str]:
    command = [binary, "-m", model, "--port", port, "-c", 1024, "-t", threads, "-np", 1, *more]
    return serving(command, f"http://127.0.0.1:{port}")


def theirs(url: str, ids: list[int], tokens: int) -> tuple[list[int], dict[str, Any]]:
    body = {"prompt": ids, "n_predict": tokens, "temperature": 0, "top_k": 1, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(
        url + "/completion", json.dumps({**body, "return_tokens": True}).encode(), {"Content-Type": "application/json"}
    )
    answer = json.load(urllib.request.urlopen(request))
    return answer["tokens"], answer["timings"]


def ours(engine: Engine, ids: list[int], tokens: int, options: dict[str, Any]) -> tuple[list[int], Any]:
    pieces = list(engine.generate(ids, max_tokens=tokens, ignore_eos=True, **options))
    return [id for piece in pieces for id in piece.token_ids], pieces[-1].timings


def compare(
    plain_url: str, draft_url: str, plain: Engine, drafting: Engine, args: argparse.Namespace
) -> dict[str, Any]:
    rates: dict[tuple[str, str], list[float]] = {}
    alike = same_steps = steps = their_steps = 0
    for prompt in PROMPTS:
        ids = drafting.tokenizer.encode(prompt.text)
        for round in range(args.rounds + 1):
            found = {}
            for name, options in OURS.items():
                engine = plain if name in ("plain", "lookup") else drafting
                text, timings = ours(engine, ids, args.tokens, options)
                found[name] = timings.generated_per_s
                if name == "drafter":
                    drafted, mine = timings.speculation, text
            _, timings = theirs(plain_url, ids, args.tokens)
            found["llama.cpp plain"] = timings["predicted_per_second"]
            text, timings = theirs(draft_url, ids, args.tokens)
            found["llama.cpp draft-dflash"] = timings["predicted_per_second"]
            if round == 0:
                steps += drafted.steps
                their_steps += args.tokens - 1 - timings["draft_n_accepted"]
                if text == mine:
                    alike += 1
                    same = (timings["draft_n"], timings["draft_n_accepted"]) == (drafted.drafted, drafted.accepted)
                    same_steps += same
                continue  # a warm-up for the times
            for name, rate in found.items():
                rates.setdefault((prompt.kind, name), []).append(rate / found["llama.cpp plain"])
    names = list(dict.fromkeys(name for _, name in rates))
    table = {k: {n: statistics.median(rates[k, n]) for n in names} for k in KINDS}
    return {
        "texts": len(PROMPTS),
        "alike": alike,
        "same_steps": same_steps,
        "steps": steps,
        "their_steps": their_steps,
        "ratios": table,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("--types", nargs="+", default=["iq4_xs", "f16"])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        for type in args.types:
            files = [BUNDLED["nano"], BUNDLED_DRAFTERS["nano"]]
            if type != "iq4_xs":
                files = [in_type(f, Path(folder) / f"{type}-{i}.gguf", type) for i, f in enumerate(files)]
            options = {"threads": args.threads, "max_ctx": 1024}
            server = args.bin / "llama-server"
            with (
                llama_server(server, files[0], PORT, args.threads) as plain_url,
                llama_server(server, files[0], PORT + 1, args.threads, "-md", files[1], *DRAFT) as draft_url,
                lucebox.load(files[0], **options) as plain,
                lucebox.load(files[0], draft=files[1], **options) as drafting,
            ):
                report[type] = found = compare(plain_url, draft_url, plain, drafting, args)
            print(
                f"{type}: {found['alike']} of {found['texts']} texts are alike, of these {found['same_steps']} with the same drafted and "
                f"accepted tokens; steps in all {found['steps']} to llama.cpp's {found['their_steps']}"
            )
            for kind, ratios in found["ratios"].items():
                print(f"  {kind:10s} " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()), flush=True)
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
