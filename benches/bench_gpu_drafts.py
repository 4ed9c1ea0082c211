"""Drafted steps on a GPU at the 27B's geometry, with a random target and a random five-layer drafter: milliseconds of a
draft, of steps whose drafts are scripted to be right so far, and of steps that draft and verify in one go, beside a plain step.

    python benches/bench_gpu_drafts.py --device cuda:0 [--layers 64] [--json]

The text is the target's own, so that a draft which is right for k tokens keeps k. Warm-up discarded, medians of 15 with
spread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_gpu import write_model
from lucebox import _core, devices
from lucebox._core import SequenceParams, StepWork
from lucebox.selftest import tiny_draft
from sparse_model import DRAFTER


def write_drafter(path: Path, layers: int) -> int:
    """A drafter whose layers are one and the same; taps fit a target of so many layers. Returns its bytes."""
    taps = tuple(min(layers - 5 + i, tap) for i, tap in enumerate(DRAFTER.taps))
    one = tiny_draft.tensors(replace(DRAFTER, layers=1))
    tensors = [t for t in one if not t[0].startswith("blk.")]
    for layer in range(DRAFTER.layers):
        tensors += [(t[0].replace("blk.0.", f"blk.{layer}.", 1), *t[1:]) for t in one if t[0].startswith("blk.")]
    _core.write_gguf(str(path), tiny_draft.metadata(replace(DRAFTER, taps=taps)), tensors)
    return sum(t[3].nbytes for t in tensors)


def timed(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    seconds = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        call()
        seconds.append((time.perf_counter() - start) * 1e3)
    seconds = seconds[2:]
    return statistics.median(seconds), min(seconds), max(seconds)


class Text:
    """A sequence whose greedy text is known ahead, so that drafts are right for as long as they should be."""

    def __init__(self, core: _core.Engine, context: int, length: int) -> None:
        self.core = core
        self.prompt = np.random.RandomState(1).randint(0, 200000, context).tolist()
        self.begin()
        while len(self.made) < length:
            self.made += core.step([StepWork(0, limit=1, draft=[])])[0].token_ids
        self.known = self.made

    def begin(self, width: int = 0) -> None:
        """width: rows of the drafter's blocks, 0: the engine's."""
        self.width = width
        self.core.begin(0, SequenceParams(lookup=False, adaptive=False, draft_width=width), self.prompt)
        rows = self.core.max_rows
        for at in range(0, len(self.prompt), rows):
            last = at + rows >= len(self.prompt)
            result = self.core.step([StepWork(0, self.prompt[at : at + rows], emit=last)])[0]
        self.made = list(result.token_ids)

    def step(self, width: int, kept: int, drafts: bool) -> None:
        """One step of `width` rows that keeps `kept` drafts; `drafts`: the drafter runs before it."""
        if len(self.made) + width > len(self.known):
            self.begin(self.width)
        if drafts:
            self.core.propose([(0, width)])
        at = len(self.made)
        right = self.known[at : at + width - 1]
        draft = right[:kept] + [(id + 1) % 200000 for id in right[kept:]]
        result = self.core.step([StepWork(0, limit=width, draft=draft)])[0]
        assert result.accepted == kept, (result.accepted, kept)
        self.made += result.token_ids

    def speculate(self, width: int) -> None:
        """One step in one go. What the drafter gets right is its own affair."""
        if len(self.made) + width > len(self.known):
            self.begin(self.width)
        result = self.core.step([StepWork(0, limit=width)])[0]
        assert result.drafted == width - 1 and result.draft_ms == 0
        self.made += result.token_ids
        assert self.made == self.known[: len(self.made)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--contexts", type=int, nargs="*", default=[64, 4096])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = []
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "t.gguf", "iq4_xs", args.layers)
        nbytes = write_drafter(Path(folder) / "d.gguf", args.layers)
        files = [_core.GGUFFile(str(Path(folder) / name)) for name in ("t.gguf", "d.gguf")]
        core = _core.Engine(
            files[0],
            draft=files[1],
            max_ctx=max(args.contexts) + 1024,
            draft_block_size=16,
            **devices.options(args.device),
        )
        print(f"{args.device}, {args.layers} layers, drafter {nbytes / 1e9:.2f} GB, launch {core.launch}", flush=True)
        for context in args.contexts:
            text = Text(core, context, 600)

            def show(name: str, figures: tuple[float, float, float], context: int = context) -> None:
                report.append(
                    {"context": context, "what": name, "ms": figures[0], "least": figures[1], "most": figures[2]}
                )
                print(
                    f"context {context:6d}  {name:40s} {figures[0]:8.2f} ms ({figures[1]:.2f} … {figures[2]:.2f})",
                    flush=True,
                )

            text.begin()
            show("plain step", timed(lambda t=text: t.step(1, 0, False), args.repeats))
            for width in (8, 16):
                text.begin(width)
                show(f"draft of {width}", timed(lambda w=width, t=text: t.core.propose([(0, w)]), args.repeats))
                show(f"one go, {width} rows", timed(lambda w=width, t=text: t.speculate(w), args.repeats))
                for tokens in (4, 6, 12):
                    if tokens <= width:
                        for drafts, name in ((False, "verify and accept"), (True, "whole step")):
                            run = lambda w=width, k=tokens - 1, d=drafts, t=text: t.step(w, k, d)  # noqa: E731
                            show(f"{name}, {width} rows, {tokens} tokens", timed(run, args.repeats))
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
