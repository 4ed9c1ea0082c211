"""Whether drafts change anything: tokens and logits of drafted decoding against those of plain decoding, on the same engine."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucebox import _core, devices
from lucebox._core import SequenceParams, StepWork
from lucebox.engine import BUNDLED, BUNDLED_DRAFTERS
from lucebox.prompts import PROMPTS
from lucebox.selftest import tiny, tiny_draft
from lucebox.tokenizer import Tokenizer

WIDTHS = (2, 4, 8, 12, 16)
TARGET = tiny.TinyModel(value_heads=2, types="q8_0", seed=40)
DRAFTER = tiny_draft.TinyDrafter(types="q8_0", ff=512, layers=1, window=(40,), seed=40)


@dataclass(frozen=True)
class Drafting:
    """How a text is drafted."""

    width: int
    lookup: bool
    adaptive: bool

    def __str__(self) -> str:
        return f"blocks of {self.width}" + ", lookup" * self.lookup + ", adaptive" * self.adaptive


@dataclass(frozen=True)
class DraftResult:
    drafting: Drafting
    prompt: int
    tokens: int
    steps: int
    wrong: str | None
    """The first difference; None when there is none."""


def ways(widths: Sequence[int] = WIDTHS) -> list[Drafting]:
    return [Drafting(*way) for way in itertools.product(widths, (False, True), (False, True))]


def open_engine(
    target: Path, drafter: Path, *, device: str = "cpu", variant: str = "auto", launch: str = "auto", threads: int = 0
) -> _core.Engine:
    options = devices.options(device, variant=variant, launch=launch, threads=threads)
    files = _core.GGUFFile(str(target)), _core.GGUFFile(str(drafter))
    return _core.Engine(files[0], draft=files[1], max_ctx=512, draft_block_size=0, **options)


def nano_prompts(count: int) -> list[list[int]]:
    """Ids of so many of the labelled prompts, of all kinds in turn."""
    tokenizer = Tokenizer(_core.GGUFFile(str(BUNDLED["nano"])).metadata)
    order = sorted(range(len(PROMPTS)), key=lambda i: (sum(PROMPTS[j].kind == PROMPTS[i].kind for j in range(i)), i))
    return [tokenizer.encode(PROMPTS[i].text) for i in order[:count]]


def pair(folder: Path, device: str) -> tuple[Path, Path, list[list[int]]]:
    """(target, drafter, prompts): nano, or a tiny pair for the emulator, which is slow."""
    if device != "emulated":
        return BUNDLED["nano"], BUNDLED_DRAFTERS["nano"], nano_prompts(6)
    tiny.write(folder / "drafted.gguf", TARGET)
    tiny_draft.write(folder / "drafter.gguf", DRAFTER)
    return folder / "drafted.gguf", folder / "drafter.gguf", [[(7 * i + 3) % 256 for i in range(20)] * 2]


def check(
    core: _core.Engine, prompts: Sequence[Sequence[int]], drafted: Sequence[Drafting], count: int
) -> Iterator[DraftResult]:
    """Every way to draft for every prompt: `count` tokens and the bits of their logits."""
    for number, ids in enumerate(prompts):
        expected, rows, _ = _text(core, ids, count, SequenceParams(speculative="off"))
        for way in drafted:
            params = SequenceParams(draft_width=way.width, lookup=way.lookup, adaptive=way.adaptive)
            tokens, got, steps = _text(core, ids, count, params)
            at = next((i for i, pair in enumerate(zip(got, rows, strict=True)) if pair[0] != pair[1]), None)
            wrong = None if tokens == expected else "other tokens"
            yield DraftResult(way, number, count, steps, wrong or (None if at is None else f"other bits at token {at}"))


def _text(
    core: _core.Engine, ids: Sequence[int], count: int, params: SequenceParams
) -> tuple[list[int], list[str], int]:
    """(tokens, hash of each one's logits, steps)."""
    core.begin(0, params, ids)
    rows = core.max_rows
    for start in range(0, len(ids), rows):
        last = start + rows >= len(ids)
        result = core.step([StepWork(0, ids[start : start + rows], emit=last, logits=last)])[0]
    tokens: list[int] = []
    found: list[str] = []
    steps = 0
    while True:
        assert result.logits is not None
        tokens += result.token_ids
        found += [hashlib.sha256(row.tobytes()).hexdigest() for row in result.logits]
        if len(tokens) == count:
            core.reset(0)
            return tokens, found, steps
        result = core.step([StepWork(0, limit=count - len(tokens), logits=True)])[0]
        steps += 1
