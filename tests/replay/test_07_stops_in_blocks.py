"""Replay case 7: stops, budgets and counters inside an accepted block.

sgl-project/sglang#31599 and PR 33758 (the cap is tested first and hides an earlier stop: tokens after the stop leak),
#39826 (counters run past EOS); microsoft/onnxruntime-genai#2528; ikawrakow/ik_llama.cpp PR 2358;
LostRuins/koboldcpp#1276; openvinotoolkit/openvino.genai#4081 (grammar asked again after its end).
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from lucebox import _core
from lucebox.engine import BUNDLED
from lucebox.server.deltas import Output, OutputOptions
from lucebox.server.grammar import Grammars
from lucebox.server.jobs import Job
from lucebox.server.schemas import CompletionRequest, parse
from lucebox.tokenizer import Tokenizer
from scheduler_bench import Bench, ids, read, use_scripted_types
from scripted_core import ScriptedCore

BLOCK = 16


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(_core.GGUFFile(str(BUNDLED["nano"])).metadata)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    use_scripted_types(monkeypatch)


@dataclass(frozen=True)
class Seen:
    text: str
    finish: str | None
    generated: int
    token_ids: tuple[int, ...]


def say(tokenizer: Tokenizer, script: list[int], options: OutputOptions, burst: int) -> Seen:
    """What is delivered of a text that comes in bursts."""
    output = Output(tokenizer, options)
    deltas = []
    for at in range(0, len(script), burst):
        for id in script[at : at + burst]:
            output.push(id)
        deltas += output.take()
        if output.finish_reason:
            break
    text = "".join(delta.text for delta in deltas)
    token_ids = tuple(token.id for delta in deltas for token in delta.tokens)
    return Seen(text, output.finish_reason, output.generated, token_ids)


def script(tokenizer: Tokenizer, end: int | None, stop: tuple[int, str] | None) -> list[int]:
    """Two blocks of words with an end token and a stop text (of one token or more) at their places."""
    word = tokenizer.encode(" word")
    assert len(word) == 1 and tokenizer.eos_id is not None
    said = word * (2 * BLOCK)
    if stop is not None:
        place, text = stop
        said[place:place] = tokenizer.encode(text, special=False)
    if end is not None:
        said.insert(end, tokenizer.eos_id)
    return said[: 2 * BLOCK]


@pytest.mark.parametrize("stop", ["#", "!?;", " is"], ids=["one", "several", "word"])
def test_all_pairs_of_places(tokenizer: Tokenizer, stop: str) -> None:
    """End token, stop string and limit at each of the 16 places: as one token at a time, whatever comes first."""
    places = range(BLOCK)
    for end, at, limit in itertools.product([None, *places], places, [1, 2, 5, BLOCK - 1, BLOCK, 2 * BLOCK]):
        said = script(tokenizer, end, (at, stop))
        options = OutputOptions(limit=limit, end_ids=tokenizer.end_ids, stop=(stop,))
        plain = say(tokenizer, said, options, 1)
        for burst in (5, BLOCK, 2 * BLOCK):
            assert say(tokenizer, said, options, burst) == plain, (end, at, limit, burst)
        assert stop not in plain.text
        assert plain.generated <= limit
        assert tokenizer.decode(plain.token_ids) == plain.text or stop != "#"


@pytest.mark.parametrize("burst", [1, 3, BLOCK])
@pytest.mark.parametrize("limit", [1, 2, BLOCK])
def test_through_the_scheduler(tokenizer: Tokenizer, burst: int, limit: int) -> None:
    """Text, finish and counters of two choices at once; the accepted counter stays within what was delivered."""

    async def run() -> list[tuple[list[int], Any, int, int]]:
        said = script(tokenizer, None, (4, "!?;"))
        core = ScriptedCore(lambda prompt: said, slots=2, burst=lambda step, slot: burst)
        bench = Bench(core, tokenizer)
        with bench.running():
            job: Job = bench.job([1], n=2)
            for choice in job.choices:
                choice.output = Output(tokenizer, OutputOptions(limit=limit, stop=("!?;",)))
            bench.scheduler.submit(job)
            events = await read(job)
        assert core.free_pages == 4
        return [
            (ids(events, i), choice.output.finish_reason, choice.output.generated, choice.accepted)
            for i, choice in enumerate(job.choices)
        ]

    first, second = asyncio.run(run())
    assert first == second
    said, finish, generated, accepted = first
    assert (finish, generated) == (("length", limit) if limit < BLOCK else ("stop", 4 + len(tokenizer.encode("!?;"))))
    assert len(said) == min(limit, 4)
    assert accepted <= generated


@pytest.mark.parametrize("place", range(BLOCK))
def test_the_end_of_a_grammar(tokenizer: Tokenizer, place: int) -> None:
    """The drafts run on behind the JSON text: they are masked, an end token follows, and the grammar is not asked again."""
    body = parse(CompletionRequest, {"prompt": "x", "structured_outputs": {"regex": f"(ab){{{place + 1}}}"}})
    compiled = Grammars(tokenizer, len(tokenizer)).for_request(
        body, thinking=False, tools=(), forced_call=None, one_call=False
    )
    assert compiled is not None
    pair = tokenizer.encode("ab")
    said = pair * (2 * BLOCK)

    async def run(constraint: Any) -> tuple[str, Any]:
        bench = Bench(ScriptedCore(lambda prompt: said, slots=1), tokenizer)
        with bench.running():
            job = bench.job([1], constraint=constraint)
            job.choices[0].output = Output(tokenizer, OutputOptions(limit=200, end_ids=tokenizer.end_ids))
            bench.scheduler.submit(job)
            events = await read(job)
        text = "".join(delta.text for event in events for delta in event.deltas)
        return text, job.choices[0].output.finish_reason

    assert asyncio.run(run(compiled.start())) == ("ab" * (place + 1), "stop")
