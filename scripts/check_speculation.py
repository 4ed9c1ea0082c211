"""The whole matrix of speculation on nano: 3 files x 24 prompts x 5 widths x lookup x adaptive x threads; tokens and
logits' bits against plain decoding. Minutes; docs/results.md keeps what it printed.

    python scripts/check_speculation.py [--device cuda:0] [--tokens 64]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from lucebox import _core
from lucebox.engine import BUNDLED, BUNDLED_DRAFTERS
from lucebox.prompts import PROMPTS
from lucebox.selftest import drafts


def in_type(source: Path, target: Path, name: str) -> Path:
    """The model with its matrices in another type."""
    file = _core.GGUFFile(str(source))
    kinds = {bool: "bool", int: "i64", float: "f32", str: "str"}
    keys = []
    for key, value in file.metadata.items():
        kind = kinds[type(value[0] if isinstance(value, list) and value else value)] if value != [] else "str"
        if key.endswith("token_type"):
            kind = "i32"
        keys.append((key, kind + "[]" * isinstance(value, list), value))
    tensors = []
    for t in file.tensors:
        data = file.data(t.name)
        if t.type != "f32":
            data = _core.quantize(name, _core.dequantize(t.type, data).reshape(-1, t.dims[0])).reshape(-1)
        tensors.append((t.name, t.type if t.type == "f32" else name, t.dims, data))
    _core.write_gguf(str(target), keys, tensors)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    args = parser.parse_args()
    prompts, ways, wrong = drafts.nano_prompts(args.prompts), drafts.ways(), 0
    with tempfile.TemporaryDirectory() as folder:
        files = {"iq4_xs": BUNDLED["nano"]}
        files |= {name: in_type(BUNDLED["nano"], Path(folder) / f"{name}.gguf", name) for name in ("q8_0", "f16")}
        for name, file in files.items():
            for threads in (1, 2) if args.device == "cpu" else (0,):
                core = drafts.open_engine(file, BUNDLED_DRAFTERS["nano"], device=args.device, threads=threads)
                start = time.perf_counter()
                results = list(drafts.check(core, prompts, ways, args.tokens))
                bad = [r for r in results if r.wrong]
                steps = sum(r.tokens for r in results) / sum(r.steps for r in results)
                print(f"{name}, {args.device}, {threads} threads: {len(results)} texts of {args.tokens} tokens, "
                      f"{steps:.2f} tokens a step, {len(bad)} differ, {time.perf_counter() - start:.0f} s", flush=True)  # fmt: skip
                for r in bad[:5]:
                    print(f"  prompt {r.prompt}, {r.drafting}: {r.wrong}")
                wrong += len(bad)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
