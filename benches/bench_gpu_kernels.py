"""Where a step's time goes on a GPU: microseconds of every kernel at the 27B's geometry, read from the driver's own records (CUPTI, through
torch.profiler, so torch with CUDA must be there), and of the matmuls the bytes of weights a second as a share of the card's read bandwidth.

    python benches/bench_gpu_kernels.py [--device cuda:0] [--mix iq4_xs|ud] [--rows 1 8 16] [--contexts 0 16384] [--draft] [--read 4480]

A kernel is named with the kernel before it, which tells the places of a step apart. Medians over all layers and steps.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import bench_gpu
import numpy as np
import torch
from bench_gpu_drafts import Text, write_drafter
from lucebox import _core, devices


def bytes_a_weight(files: list[_core.GGUFFile]) -> dict[str, float]:
    return {t.type: t.nbytes / int(np.prod(t.dims)) for file in files for t in file.tensors}


def streamed(kernel: str, before: str, blocks: int, widths: dict[str, float]) -> float:
    """Bytes of weights that a matmul's launch of up to 16 rows reads: its tiles of 32 outputs times the columns of its input."""
    found = re.fullmatch(r"matmul_(\w+)_r(\d+)", kernel)
    if not found or int(found[2]) > 16:
        return 0.0
    shape = bench_gpu.GEOMETRY
    mixer = shape["value_heads"] * 128
    columns = {"swiglu": shape["ff"], "deltanet_finish": mixer, "attention_join": mixer}.get(before, shape["hidden"])
    return blocks * 32 * columns * widths[found[1]]


def records(step: Callable[[], object], steps: int) -> tuple[list[dict], float]:
    """The kernels of `steps` steps, in order, and the median step's milliseconds from its embedding to its last kernel's end."""
    for _ in range(3):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    spans, first, last = [], None, 0.0
    for e in kernels:
        if e["name"].startswith("luce_embed"):
            if first is not None:
                spans.append((last - first) / 1e3)
            first = e["ts"]
        last = e["ts"] + e["dur"]
    spans.append((last - first) / 1e3)
    return kernels, statistics.median(spans)


def plain_step(engine: _core.Engine, context: int, rows: int) -> Callable[[], object]:
    """The next rows of a random text behind `context` tokens."""
    source = np.random.RandomState(rows)
    engine.reset(0)
    if context:
        engine.forward([(0, source.randint(0, 200000, context).tolist())], "none")
    return lambda: engine.forward([(0, source.randint(0, 200000, rows).tolist())], "argmax")


def draft_step(engine: _core.Engine, context: int, rows: int) -> Callable[[], object]:
    """A draft of so many rows, not verified."""
    text = Text(engine, context, 2)
    text.begin(rows)
    return lambda: engine.propose([(0, rows)])


def table(kernels: list[dict], steps: int, read: float, files: list[_core.GGUFFile]) -> None:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    weights: dict[tuple[str, str], float] = {}
    widths, before = bytes_a_weight(files), None
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
    parser.add_argument("--draft", action="store_true", help="drafts of a random drafter instead of steps; rows from 2")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--read", type=float, default=4480, help="the card's read bandwidth in GB/s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        bench_gpu.write_model(path, args.mix, args.layers)
        files, more = [_core.GGUFFile(str(path))], {}
        if args.draft:
            write_drafter(Path(folder) / "draft.gguf", args.layers)
            files.append(_core.GGUFFile(str(Path(folder) / "draft.gguf")))
            more = {"draft": files[1], "draft_block_size": 16}
        engine = _core.Engine(files[0], max_ctx=max(args.contexts) + 8192, **more, **devices.options(args.device))
        make = draft_step if args.draft else plain_step
        for context in args.contexts:
            for rows in args.rows:
                kernels, span = records(make(engine, max(context, 1) if args.draft else context, rows), args.steps)
                what = "a draft" if args.draft else "a step"
                print(
                    f"\n== {args.mix}, context {context}, {rows} rows: {what} {span:.3f} ms under the profiler",
                    flush=True,
                )
                table(kernels, args.steps, args.read, files)


if __name__ == "__main__":
    main()
