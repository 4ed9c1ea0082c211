"""Attention of one layer at depth: microseconds a row, and GB/s of K and V.

python benches/bench_attention.py [--contexts 512 4096 16384] [--forms q8_0 f16] [--rows 1 8] [--threads 1 2] [--json]
Head geometry of the 27B: 24 query heads, 4 kv heads, head dimension 256. Rows are of one sequence, the last ones of the context.
"""

from __future__ import annotations

import argparse
import json
import statistics

import numpy as np
from lucebox import machine
from lucebox._core import testing

HEADS, KV_HEADS, DIM, ROPE = 24, 4, 256, 64
BYTES = {"q8_0": 1 + 1 / 16, "f16": 2, "f32": 4}


def measure(form: str, context: int, rows: int, threads: int, variant: str, repeat: int) -> float:
    """Median seconds of a call."""
    rng = np.random.default_rng(1)
    n_pages = -(-context // 256)
    page_bytes = int(BYTES[form] * DIM * 256 * 2 * KV_HEADS)
    pages = np.zeros((n_pages, page_bytes), np.uint8)
    if form == "f32":
        pages[:] = rng.normal(0, 1, (n_pages, page_bytes // 4)).astype(np.float32).view(np.uint8)
    else:  # as int8 and as half floats of modest size
        pages[:] = rng.integers(0, 48, (n_pages, page_bytes), dtype=np.uint8)
    table = np.arange(n_pages, dtype=np.int32).reshape(1, -1)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 1, shape).astype(np.float32)

    positions = [(0, context - rows + i) for i in range(rows)]
    inputs = (
        normal(KV_HEADS * rows, DIM).reshape(rows, KV_HEADS, DIM),
        np.ones(DIM, np.float32),
        np.ones(DIM, np.float32),
    )
    rope = (np.ones((rows, ROPE // 2), np.float32), np.zeros((rows, ROPE // 2), np.float32))
    seconds = []
    for _ in range(repeat + 1):
        qg, k = normal(rows, HEADS, 2, DIM), normal(rows, KV_HEADS, DIM)
        y, s = testing.attention(
            positions, form, 1e-6, DIM, qg, k, *inputs, *rope, pages, table, variant=variant, threads=threads
        )
        seconds.append(s)
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", nargs="+", type=int, default=[256, 4096, 16384])
    parser.add_argument("--forms", nargs="+", default=list(BYTES), choices=list(BYTES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, machine.cores()}))
    parser.add_argument("--variant", default="auto")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for form in args.forms:
        for context in args.contexts:
            for threads in args.threads:
                for rows in args.rows:
                    seconds = measure(form, context, rows, threads, args.variant, args.repeat)
                    rate = BYTES[form] * 2 * KV_HEADS * DIM * context * rows / seconds / 1e9
                    results.append(
                        {"form": form, "context": context, "rows": rows, "threads": threads, "seconds": seconds}
                    )
                    if not args.json:
                        case = f"{form:5s} {context:6d} keys, {rows:3d} rows, {threads} threads"
                        print(f"{case}: {seconds / rows * 1e6:8.1f} us a row, {rate:5.1f} GB/s of K and V")
    if args.json:
        print(
            json.dumps(
                {"cpu": machine.cpu_name(), "variant": args.variant, "load": machine.load_average(), "results": results}
            )
        )


if __name__ == "__main__":
    main()
