"""Rejected or empty drafts change the model's memory: z-lab/dflash#172, vllm-project/vllm#39273, #56419, sgl-project/sglang#35150,
Avarok-Cybersecurity/atlas#604.

Right: after every step the logits are those of plain decoding of the accepted text, also with a commit that is still pending; nothing
accepted is a legal step that gives one token.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import SequenceParams, StepWork
from lucebox.selftest import tiny

BLOCK = 16
TEXT = 300


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> _core.GGUFFile:
    path: Path = tmp_path_factory.mktemp("replay3") / "tiny.gguf"
    tiny.write(path, tiny.TinyModel(value_heads=6, seed=33))
    return _core.GGUFFile(str(path))


def open_engine(file: _core.GGUFFile, slots: int = 1) -> _core.Engine:
    return _core.Engine(file, max_ctx=1024, threads=1, slots=slots)


PROMPT = np.random.RandomState(3).randint(0, 300, 35).tolist()


@pytest.fixture(scope="module")
def right(file: _core.GGUFFile) -> tuple[list[int], np.ndarray]:
    """The reference text, and the logits of each of its tokens, one row a call."""
    engine = open_engine(file)
    rows = [engine.forward([(0, PROMPT)], "last")[0]]
    while len(rows) < TEXT:
        rows.append(engine.forward([(0, [int(rows[-1].argmax())])], "last")[0])
    return [int(r.argmax()) for r in rows], np.array(rows)


def wrong(ids: list[int]) -> list[int]:
    return [(i + 1) % 300 for i in ids]


def script(name: str, text: list[int], at: int, step: int, random: np.random.RandomState) -> list[int]:
    """What the scripted drafter proposes behind the first `at` tokens of the text."""
    ahead = text[at : at + BLOCK - 1]
    if name == "all right":
        return ahead
    if name == "all wrong":
        return wrong(ahead)
    if name == "nothing":
        return []
    if name == "one":
        return ahead[:1]
    if name == "wrong then right":
        return wrong(ahead) if step % 2 else ahead
    if name.startswith("right until"):
        count = int(name.split()[-1])
        return ahead[:count] + wrong(ahead[count:])
    count = int(random.randint(0, BLOCK))
    return ahead[:count] + wrong(ahead[count : int(random.randint(count, BLOCK))])


NAMES = ["all right", "all wrong", "nothing", "one", "wrong then right", *(f"right until {i}" for i in range(16))]


def follow(
    engine: _core.Engine, slots: dict[int, str], right: tuple[list[int], np.ndarray], until: int, seed: int = 0
) -> None:
    """Each slot decodes with its own script; every logit row is the reference's."""
    text, logits = right
    random = np.random.RandomState(seed)
    made = {}
    for slot in slots:
        engine.begin(slot, SequenceParams(lookup=False), PROMPT)
        made[slot] = len(engine.step([StepWork(slot, PROMPT, emit=True)])[0].token_ids)
    step = 0
    while max(made.values()) < until:
        work = [
            StepWork(s, limit=BLOCK, draft=script(n, text, made[s], step, random), logits=True)
            for s, n in slots.items()
        ]
        for result in engine.step(work):
            at = made[result.slot]
            assert 1 <= len(result.token_ids) <= BLOCK
            assert np.array_equal(result.logits, logits[at : at + len(result.token_ids)])
            made[result.slot] += len(result.token_ids)
            assert engine.length(result.slot) == len(PROMPT) + made[result.slot] - 1
        step += 1
    for slot in slots:  # what is pending is forced by a call that commits
        at = made[slot]
        got = engine.forward([(slot, text[at - 1 : at + 3])], "all")
        assert np.array_equal(got, logits[at : at + 4])


@pytest.mark.parametrize("name", NAMES)
def test_scripts(file: _core.GGUFFile, right: tuple[list[int], np.ndarray], name: str) -> None:
    follow(open_engine(file), {0: name}, right, 40 if name in ("all wrong", "nothing", "right until 0") else 120)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_patterns(file: _core.GGUFFile, right: tuple[list[int], np.ndarray], first: int) -> None:
    engine = open_engine(file)
    for seed in range(first, first + 20):
        follow(engine, {0: "random"}, right, 60, seed)


def test_two_sequences_with_opposite_patterns(file: _core.GGUFFile, right: tuple[list[int], np.ndarray]) -> None:
    follow(open_engine(file, slots=2), {0: "all right", 1: "all wrong"}, right, 200)
    follow(open_engine(file, slots=2), {1: "wrong then right", 0: "right until 7"}, right, 200)


def test_a_cancel_between_verify_and_commit(file: _core.GGUFFile, right: tuple[list[int], np.ndarray]) -> None:
    """A step that was only looked at is dropped with its slot; the next request of the slot knows nothing of it."""
    engine = open_engine(file)
    engine.begin(0, SequenceParams(lookup=False), PROMPT[::-1])
    engine.step([StepWork(0, PROMPT[::-1], emit=True)])
    engine.step([StepWork(0, limit=BLOCK, draft=right[0][:15], look=True)])
    engine.reset(0)
    assert engine.free_pages == open_engine(file).free_pages
    follow(engine, {0: "right until 3"}, right, 60)
