"""Matmul of each weight type: GB/s of the file's bytes and its share of the measured read bandwidth, rows x threads.

python benches/bench_matmul.py [--types iq4_xs q8_0] [--rows 1 4 16 128] [--threads 1 2] [--variant auto] [--json]
One line a type and thread count; the share is of a plain read by as many threads in the same run. Weights are several copies, together
beyond the caches; medians. A share above 100 % at one row means that the read was measured under more competing load than the product.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import numpy as np
from lucebox import _core, machine
from lucebox._core import testing
from lucebox.selftest import tiny

BYTES = 120_000_000  # of weights in rotation


def measure(name: str, args: argparse.Namespace, threads: int, rows: int) -> tuple[float, float]:
    """Median seconds of a product, and bytes of the file's blocks."""
    outputs, columns = args.shape
    data = tiny.random_blocks(tiny.Random(1), name, outputs * columns, 0.02)
    x = np.random.default_rng(1).normal(0, 1, (rows, columns)).astype(np.float32)
    copies = max(1, BYTES // data.nbytes)
    repeat = copies * (3 if rows <= 4 else 1) + 1
    weights = [(name, data, outputs)]
    _, seconds = testing.matmul(weights, x, variant=args.variant, threads=threads, repeat=repeat, copies=copies)
    return statistics.median(seconds[1:]), data.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    matrix = [name for _, name, _, _, usable in _core.tensor_types() if usable]
    parser.add_argument("--types", nargs="+", default=matrix, choices=matrix)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 16, 128])
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, machine.cores()}))
    parser.add_argument("--shape", nargs=2, type=int, default=[5120, 5120], metavar=("OUTPUTS", "COLUMNS"))
    parser.add_argument("--variant", default="auto")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for threads in args.threads:
        read = BYTES / statistics.median(testing.read_seconds(BYTES, threads, 7)[1:])
        print(f"threads {threads}: plain read {read / 1e9:.1f} GB/s", file=sys.stderr)
        for name in args.types:
            line = []
            for rows in args.rows:
                seconds, nbytes = measure(name, args, threads, rows)
                results.append(
                    {"type": name, "threads": threads, "rows": rows, "seconds": seconds, "bytes": nbytes, "read": read}
                )
                gmac = args.shape[0] * args.shape[1] * rows / seconds / 1e9
                share = f" ({nbytes / seconds / read:4.0%} of read)" if rows <= 4 else ""
                line.append(f"{rows} rows {nbytes / seconds / 1e9:5.1f} GB/s {gmac:4.0f} GMAC/s{share}")
            if not args.json:
                print(f"{name:8s} {threads} threads: " + " | ".join(line), flush=True)
    if args.json:
        print(
            json.dumps(
                {"cpu": machine.cpu_name(), "variant": args.variant, "load": machine.load_average(), "results": results}
            )
        )


if __name__ == "__main__":
    main()
