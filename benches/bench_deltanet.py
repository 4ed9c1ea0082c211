"""DeltaNet of one layer: microseconds a token, and GB/s of the state (read and written once a call).

python benches/bench_deltanet.py [--rows 1 4 64] [--threads 1 2] [--json]
Heads of the 27B: 16 key heads, 48 value heads of 128.
"""

from __future__ import annotations

import argparse
import json
import statistics

import numpy as np
from lucebox import machine
from lucebox._core import testing

KEY_HEADS, VALUE_HEADS = 16, 48
CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * 128


def measure(rows: int, threads: int, variant: str, repeat: int) -> float:
    """Median seconds of a committed call of one sequence."""
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 1, shape).astype(np.float32)

    state, ring_u = np.zeros((1, VALUE_HEADS, 128, 128), np.float32), np.zeros((1, 64, CHANNELS), np.float32)
    ring_ab = np.zeros((1, 64, 2, VALUE_HEADS), np.float32)
    weights = (normal(CHANNELS, 4), normal(VALUE_HEADS), -np.abs(normal(VALUE_HEADS)), np.ones(128, np.float32))
    seconds, position = [], 0
    for _ in range(repeat + 1):
        inputs = (
            normal(rows, CHANNELS),
            normal(rows, VALUE_HEADS),
            normal(rows, VALUE_HEADS),
            normal(rows, VALUE_HEADS * 128),
        )
        _, s = testing.deltanet(
            [(0, rows, position, 0, True)], KEY_HEADS, VALUE_HEADS, 1e-6, *inputs, *weights, state, ring_u, ring_ab,
            variant=variant, threads=threads,
        )  # fmt: skip
        seconds.append(s)
        position += rows
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 64])
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, machine.cores()}))
    parser.add_argument("--variant", default="auto")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for threads in args.threads:
        for rows in args.rows:
            seconds = measure(rows, threads, args.variant, args.repeat)
            rate = 2 * VALUE_HEADS * 128 * 128 * 4 / seconds / 1e9
            results.append({"rows": rows, "threads": threads, "seconds": seconds})
            if not args.json:
                print(
                    f"{rows:3d} rows, {threads} threads: {seconds / rows * 1e6:7.1f} us a token, state at {rate:5.1f} GB/s"
                )
    if args.json:
        print(
            json.dumps(
                {"cpu": machine.cpu_name(), "variant": args.variant, "load": machine.load_average(), "results": results}
            )
        )


if __name__ == "__main__":
    main()
