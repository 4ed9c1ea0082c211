"""The checks of `lucebox selftest`: recorded hashes against every kernel variant, thread count, KV type and cut."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lucebox import _core, devices
from lucebox.engine import BUNDLED, KV_TYPES
from lucebox.selftest import tiny

Rows = npt.NDArray[np.float32]

GOLDEN = Path(__file__).parent / "golden.json"
MATRIX_TYPES = (
    "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs "
    "iq3_s iq4_nl iq4_xs mxfp4"
)
LAUNCH_MODES = ("graph", "split", "direct")
CUTS = ("1", "7", "64", "all", "mixed")
"""Tokens a call: so many, all at once, or pieces of all prompts together as sequences of one batch."""


def _mixture(offset: int) -> tiny.TinyModel:
    types = MATRIX_TYPES.split()
    model = tiny.TinyModel(types=lambda name: types[(zlib.crc32(name.encode()) + offset) % len(types)])
    return replace(model, key_heads=2, seed=offset)


TINY = {
    "tiny, 2 value heads": replace(_mixture(0), value_heads=2),
    "tiny, 4 value heads": replace(_mixture(7), value_heads=4),
    "tiny, 6 value heads": replace(_mixture(15), value_heads=6, tied=True),
}
"""n_v = n_k, 2 n_k and 3 n_k; their matrices have all types in turn."""
DEEP = {
    f"deep, {layers} layers": tiny.TinyModel(
        layers=layers, value_heads=2, ff=256, heads=1, types="iq4_xs", seed=1000 + layers
    )
    for layers in (8, 24, 96)
}
"""Their steps are graphs of some 50 to 800 nodes, replayed with other inputs for each token: a driver that replays stale
arguments in long graphs is found by them."""
RANDOM = {**TINY, **DEEP}


@dataclass(frozen=True)
class Case:
    model: str
    kv: str
    variant: str
    threads: int
    cut: str
    prompts: tuple[str, ...]
    device: str = "cpu"
    launch: str = "auto"


@dataclass(frozen=True)
class Result:
    case: Case
    rows: int
    seconds: float
    wrong: str | None
    """The first difference; None when there is none."""


@lru_cache
def golden() -> dict[str, Any]:
    """{model: {"ids": {prompt: ids}, kv: {prompt: hash of each row, or of all rows in order}}}"""
    data: dict[str, Any] = json.loads(GOLDEN.read_text())
    return data


def cases(*, full: bool, variants: Sequence[str], threads: int) -> list[Case]:
    """All combinations, or a choice of them that takes seconds in place of minutes."""
    if full:
        counts = sorted({1, threads})
        return [
            Case(model, kv, variant, count, cut, tuple(golden()[model]["ids"]))
            for variant in variants
            for count in counts
            for model in ("nano", *TINY)
            for kv in KV_TYPES
            if kv in golden()[model]
            for cut in CUTS
        ]
    return [case for variant in variants for case in _few(variant, threads)]


def device_cases(device: str, *, full: bool) -> list[Case]:
    """Every launch mode of a GPU or of the emulator, in short and in long graphs; the emulator, which is slow, on short prompts."""
    emulated = device == "emulated"
    planned = []
    for launch in LAUNCH_MODES:
        for model in TINY:
            prompts = tuple(golden()[model]["ids"])[: 2 if emulated and not full else None]
            for kv in KV_TYPES if launch == "graph" or full else ("q8_0",):
                for cut in ("mixed",) if emulated and not full else ("1", "7", "all", "mixed"):
                    planned.append(Case(model, kv, "auto", 0, cut, prompts, device, launch))
        for model in DEEP:
            prompts = tuple(golden()[model]["ids"])[: 1 if emulated and not full else None]
            planned += [Case(model, "q8_0", "auto", 0, cut, prompts, device, launch) for cut in ("1", "mixed")]
        texts = tuple(golden()["nano"]["ids"])
        if not emulated:
            planned += [
                Case("nano", kv, "auto", 0, cut, texts, device, launch) for kv in ("q8_0", "f32") for cut in CUTS
            ]
    return planned


def _few(variant: str, threads: int) -> Iterator[Case]:
    """Every model and KV type; the portable kernels, which are slow, on short prompts."""
    slow = variant == "portable"
    for model in TINY:
        prompts = tuple(golden()[model]["ids"])[: 3 if slow else None]
        for kv in KV_TYPES:
            for cut in ("mixed",) if slow else ("7", "mixed"):
                yield Case(model, kv, variant, threads, cut, prompts)
        if not slow and threads > 1:
            yield Case(model, "q8_0", variant, 1, "all", prompts)
    texts = tuple(golden()["nano"]["ids"])
    for kv in ("q8_0", "f32"):
        for cut in ("all",) if slow else ("all", "mixed"):
            yield Case("nano", kv, variant, threads, cut, texts[:1] if slow else texts[:6])
    if not slow:
        yield Case("nano", "q8_0", variant, threads, "64", texts[6:])


def run(planned: Sequence[Case], folder: Path) -> Iterator[Result]:
    """Results in the order of the cases; tiny models are written into the folder."""
    engine: tuple[tuple[Any, ...], _core.Engine] | None = None
    for case in planned:
        key = (case.model, case.kv, case.variant, case.threads, case.device, case.launch)
        if engine is None or engine[0] != key:
            engine = key, _engine(case, folder)
        started = time.perf_counter()
        rows = logits(engine[1], [golden()[case.model]["ids"][prompt] for prompt in case.prompts], case.cut)
        wrong = None
        for prompt, got in zip(case.prompts, rows, strict=True):
            wrong = wrong or _difference(prompt, got, golden()[case.model][case.kv][prompt])
        yield Result(case, sum(map(len, rows)), time.perf_counter() - started, wrong)


def model_file(model: str, folder: Path) -> Path:
    if model in BUNDLED:
        return BUNDLED[model]
    path = folder / f"{model.replace(', ', '-').replace(' ', '-')}.gguf"
    if not path.exists():
        tiny.write(path, RANDOM[model])
    return path


def logits(engine: _core.Engine, prompts: Sequence[Sequence[int]], cut: str) -> list[Rows]:
    """All rows of each prompt [len(prompt), vocab]; the engine has a slot for each."""
    for slot in range(engine.slots):
        engine.reset(slot)
    if cut == "mixed":
        return _mixed(engine, prompts)
    found = []
    for slot, ids in enumerate(prompts):
        step = len(ids) if cut == "all" else int(cut)
        parts = [engine.forward([(slot, ids[at : at + step])], "all") for at in range(0, len(ids), step)]
        found.append(np.concatenate(parts))
    return found


def _mixed(engine: _core.Engine, prompts: Sequence[Sequence[int]]) -> list[Rows]:
    parts: list[list[Rows]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    turn = 0
    while any(at < len(ids) for at, ids in zip(done, prompts, strict=True)):
        # Pieces of 1 to 21 rows, other ones each turn.
        batch = [
            (slot, ids[done[slot] : done[slot] + 1 + (turn * 7 + slot * 5) % 21])
            for slot, ids in enumerate(prompts)
            if done[slot] < len(ids)
        ]
        rows = engine.forward(batch, "all")
        at = 0
        for slot, ids in batch:
            parts[slot].append(rows[at : at + len(ids)])
            at += len(ids)
            done[slot] += len(ids)
        turn += 1
    return [np.concatenate(part) for part in parts]


def hashes(rows: Rows) -> list[str]:
    return [hashlib.sha256(row.astype("<f4", copy=False).tobytes()).hexdigest() for row in rows]


def whole_hash(rows: Rows) -> str:
    return hashlib.sha256(rows.astype("<f4", copy=False).tobytes()).hexdigest()


def _difference(prompt: str, rows: Rows, recorded: str | list[str]) -> str | None:
    if isinstance(recorded, str):
        return None if whole_hash(rows) == recorded else f"{prompt}: other bits"
    for i, (got, wanted) in enumerate(zip(hashes(rows), recorded, strict=True)):
        if got != wanted:
            return f"{prompt}: other bits from row {i} on"
    return None


def _engine(case: Case, folder: Path) -> _core.Engine:
    recorded = golden()[case.model]["ids"]
    return _core.Engine(
        _core.GGUFFile(str(model_file(case.model, folder))),
        max_ctx=max(map(len, recorded.values())),
        kv=case.kv,
        slots=min(len(recorded), 8),
        **devices.options(case.device, variant=case.variant, launch=case.launch, threads=case.threads),
    )
