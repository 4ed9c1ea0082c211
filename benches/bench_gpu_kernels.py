"""Where a step's time goes on a GPU: microseconds of every kernel at the 27B's geometry, read from the driver's own records (CUPTI, through
torch.profiler, so torch with CUDA must be there), and of the matmuls the bytes of weights a second as a share of the card's read bandwidth.

    python benches/bench_gpu_kernels.py [--device cuda:0] [--mix iq4_xs|ud] [--rows 1 8 16] [--contexts 0 16384] [--read 4480]

A kernel is named with the kernel before it, which tells the places of a step apart. Medians over all layers and steps.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import bench_gpu
import numpy as np
import torch
from lucebox import _core, devices


def bytes_a_weight(file: _core.GGUFFile) -> dict[str, float]:
    return {t.type: t.nbytes / int(np.prod(t.dims)) for t in file.tensors}


def streamed(kernel: str, before: str, blocks: int, widths: dict[str, float]) -> float:
    """Bytes of weights that a matmul's launch reads: its tiles times the columns of its input."""
    found = re.fullmatch(r"matmul_(\w+)_r(\d+)", kernel)
    if not found:
        return 0.0
    outputs = 32 if int(found[2]) <= 16 else 16  # as plan_matmul has it on NVIDIA
    shape = bench_gpu.GEOMETRY
    mixer = shape["value_heads"] * 128
    columns = {"swiglu": shape["ff"], "deltanet_finish": mixer, "attention_join": mixer}.get(before, shape["hidden"])
    return blocks * outputs * columns * widths[found[1]]


def records(engine: _core.Engine, ids: list[int], context: int, rows: int, steps: int) -> tuple[list[dict], float]:
    """The kernels of `steps` steps, in order, and the median step's milliseconds from its first kernel to its last one's end."""
    at = context
    for _ in range(3):
        engine.forward([(0, ids[at : at + rows])], "argmax")
        at += rows
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            engine.forward([(0, ids[at : at + rows])], "argmax")
            at += rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    spans, first = [], 0.0
    for e in kernels:
        if e["name"].startswith("luce_embed"):
            first = e["ts"]
        if e["name"].startswith("luce_argmax_join"):
            spans.append((e["ts"] + e["dur"] - first) / 1e3)
    return kernels, statistics.median(spans)


def table(kernels: list[dict], steps: int, read: float, file: _core.GGUFFile) -> None:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    weights: dict[tuple[str, str], float] = {}
    widths, before = bytes_a_weight(file), None
    for e in kernels:
        name = e["name"].removeprefix("luce_")
        key = (name, "x".join(str(n) for n in e["args"]["grid"]) + f" ({e['args']['block'][0]}) after "
               + (before["name"].removeprefix("luce_") if before else "-"))  # fmt: skip
        times[key].append(e["dur"])
        source = before["name"].removeprefix("luce_") if before else ""
        weights[key] = streamed(name, source, e["args"]["grid"][0], widths)
        if before:
            gaps[key].append(e["ts"] - before["ts"] - before["dur"])
        before = e
    for key in sorted(times, key=lambda k: -sum(times[k])):
        t = times[key]
        rate = weights[key] / statistics.median(t) / 1e3  # GB/s
        share = f"  {rate:5.0f} GB/s, {rate / read:4.0%} of the card's" if rate else ""
        print(f"{key[0]:38s} {key[1]:64s} {len(t) / steps:6.1f} a step  {statistics.median(t):8.2f} us ({min(t):.2f} … {max(t):.2f})  "
              f"{sum(t) / steps / 1e3:7.3f} ms a step  gap before {statistics.median(gaps[key] or [0]):6.2f}"
              f"{share}", flush=True)  # fmt: skip
    busy = sum(sum(t) for t in times.values()) / steps / 1e3
    print(f"kernels {sum(len(t) for t in times.values()) / steps:.0f} a step, busy {busy:.3f} ms a step", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--mix", choices=["iq4_xs", "ud"], default="iq4_xs")
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--contexts", type=int, nargs="*", default=[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--read", type=float, default=4480, help="the card's read bandwidth in GB/s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        bench_gpu.write_model(path, args.mix, args.layers)
        file = _core.GGUFFile(str(path))
        engine = _core.Engine(file, max_ctx=max(args.contexts) + 8192, **devices.options(args.device))
        for context in args.contexts:
            for rows in args.rows:
                ids = np.random.RandomState(rows).randint(0, 200000, context + rows * (args.steps + 4)).tolist()
                engine.reset(0)
                if context:
                    engine.forward([(0, ids[:context])], "none")
                kernels, span = records(engine, ids, context, rows, args.steps)
                print(
                    f"\n== {args.mix}, context {context}, {rows} rows: a step {span:.3f} ms under the profiler",
                    flush=True,
                )
                table(kernels, args.steps, args.read, file)


if __name__ == "__main__":
    main()
