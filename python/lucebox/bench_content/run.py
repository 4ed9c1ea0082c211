"""Replies to prompts of each class, plain and with each way to draft; drafts may change no token."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucebox.engine import Engine
from lucebox.errors import RequestError

PROMPTS: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("prompts.json").read_text())
CLASSES = tuple(PROMPTS)
PLAIN = "plain"


@dataclass(frozen=True)
class Mode:
    name: str
    options: dict[str, Any]
    """Of `Engine.generate`."""


@dataclass(frozen=True)
class Reply:
    token_ids: tuple[int, ...]
    tokens: int  # behind the first, in
    seconds: float
    steps: int  # 0 for plain decoding, which takes one a token
    stepped: int  # tokens that these steps gave
    drafted: int
    accepted: int


def without_drafter() -> list[Mode]:
    return [Mode(PLAIN, {"speculative": "off", "lookup": False}), Mode("lookup", {"adaptive": False})]


def with_drafter(trained: int) -> list[Mode]:
    """trained: rows of the blocks that the drafter was trained on."""
    blocks = [
        Mode(f"block {width}", {"lookup": False, "adaptive": False, "draft_width": width})
        for width in (trained, 2 * trained)
    ]
    return [*blocks, Mode("default", {})]


def names(asked: Sequence[str]) -> list[str]:
    """Classes in the order of the file. Raises RequestError."""
    unknown = [name for name in asked if name not in (*CLASSES, "all")]
    if unknown:
        raise RequestError(f"--content {unknown[0]}: classes are {', '.join(CLASSES)}, or all")
    return [name for name in CLASSES if name in asked or "all" in asked]


def measure(
    engine: Engine,
    modes: Sequence[Mode],
    classes: Sequence[str],
    *,
    n_gen: int,
    repetitions: int,
    known: dict[tuple[str, int], tuple[int, ...]],
    progress: Callable[[float], None] | None = None,
) -> list[dict[str, Any]]:
    """A row for each class and mode; modes run in turn within a repetition, and one repetition warms up.

    known: the tokens of each prompt's reply, filled by the first mode that runs it. Raises RequestError where a mode
    gives other ones.
    """
    found: dict[tuple[str, str], list[list[Reply]]] = {}
    turns = [(turn, name, mode) for turn in range(repetitions + 1) for name in classes for mode in modes]
    for done, (turn, name, mode) in enumerate(turns):
        if progress:
            progress(done / len(turns))
        replies = []
        for i, prompt in enumerate(PROMPTS[name]):
            reply = _reply(engine, prompt, mode, n_gen)
            if known.setdefault((name, i), reply.token_ids) != reply.token_ids:
                raise RequestError(f"{mode.name} gave other tokens than plain decoding for {name}, prompt {i}: do not trust this machine; "
                                   "try `lucebox selftest`")  # fmt: skip
            replies.append(reply)
        if turn:
            found.setdefault((name, mode.name), []).append(replies)
    return [_row(name, mode.name, found[name, mode.name]) for name in classes for mode in modes]


def _reply(engine: Engine, prompt: dict[str, Any], mode: Mode, n_gen: int) -> Reply:
    text = prompt.get("text")
    options = dict(mode.options)
    if text is None:
        options["thinking"] = bool(prompt.get("thinking"))
    ids: list[int] = []
    with engine.generate(prompt["messages"] if text is None else text, max_tokens=n_gen, **options) as generation:
        for piece in generation:
            ids += piece.token_ids
    timings = piece.timings
    s = timings.speculation
    return Reply(
        tuple(ids), max(timings.generated_tokens - 1, 0), timings.generated_s, s.steps, s.tokens, s.drafted, s.accepted
    )


def _row(name: str, mode: str, repetitions: list[list[Reply]]) -> dict[str, Any]:
    rates = sorted(
        sum(r.tokens for r in replies) / max(sum(r.seconds for r in replies), 1e-9) for replies in repetitions
    )
    last = repetitions[-1]
    steps, stepped = sum(r.steps for r in last), sum(r.stepped for r in last)
    return {
        "class": name,
        "mode": mode,
        "prompts": len(last),
        "tokens": sum(r.tokens for r in last),
        "tok_per_s": {"median": statistics.median(rates), "min": rates[0], "max": rates[-1]},
        "tokens_per_step": stepped / steps if steps else 1.0,
        "drafted": sum(r.drafted for r in last),
        "accepted": sum(r.accepted for r in last),
    }
