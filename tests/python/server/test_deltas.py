"""From tokens to deltas: bursts, stops, limits, log-probabilities. Replay case 7, seen from the output."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from lucebox.server.deltas import Output, OutputOptions
from lucebox.tokenizer import Tokenizer

TOOLS = ({"type": "function", "function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}},)
CALL = "<tool_call>\n<function=f>\n<parameter=s>\nx y\n</parameter>\n</function>\n</tool_call>"


def options(tokenizer: Tokenizer, **changes: Any) -> OutputOptions:
    return OutputOptions(**{"limit": 1000, "end_ids": tokenizer.end_ids, **changes})


def run(tokenizer: Tokenizer, ids: list[int], made: OutputOptions, bursts: list[int] | None = None) -> Output:
    """bursts: tokens between two takes."""
    output = Output(tokenizer, made)
    output.taken = []  # type: ignore[attr-defined]
    at = 0
    for size in itertools.chain(bursts or [], itertools.repeat(1)):
        for id in ids[at : at + size]:
            output.push(id, (-0.5, []))
        at += size
        output.taken += output.take()  # type: ignore[attr-defined]
        if at >= len(ids) or output.finish_reason:
            return output
    raise AssertionError


def texts(output: Output) -> dict[str, Any]:
    """Everything that a client sees."""
    seen: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "tokens": []}
    for delta in output.taken:  # type: ignore[attr-defined]
        seen["tokens"] += [token.id for token in delta.tokens]
        if delta.kind in ("content", "reasoning"):
            seen[delta.kind] += delta.text
            assert delta.text
        elif delta.kind == "call":
            seen["calls"].append([delta.text, ""])
        elif delta.kind == "arguments":
            seen["calls"][delta.call][1] += delta.text
    seen["finish"] = output.finish_reason
    seen["generated"] = output.generated
    seen["reasoning_tokens"] = output.reasoning_tokens
    return seen


def eos(tokenizer: Tokenizer) -> int:
    assert tokenizer.eos_id is not None
    return tokenizer.eos_id


TEXTS = [
    "Hello there, this is 🎉 a plain answer.",
    "tail of a stop st",
    f"before\n\n{CALL}\n{CALL}\n",
    "prose about <tool_call> tags and <tool",
    "e\u0301 \u0e2a\u0e27 \ufffd end\n\n",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("thinking", [False, True])
def test_every_burst_gives_the_same_answer(tokenizer: Tokenizer, text: str, thinking: bool) -> None:
    ids = tokenizer.encode("why\n</think>\n\n" * thinking + text) + [eos(tokenizer)]
    made = options(
        tokenizer, chat=True, split_reasoning=True, thinking=thinking, tools=TOOLS, stop=("stop string", "\n\n\n")
    )
    one_by_one = texts(run(tokenizer, ids, made))
    assert one_by_one["generated"] == len(ids)
    assert one_by_one["tokens"] == ids[:-1]
    assert one_by_one["reasoning"] == "why" * thinking
    source = random.Random(3)
    for _ in range(60):
        bursts = [source.randint(1, 16) for _ in ids]
        assert texts(run(tokenizer, ids, made, bursts)) == one_by_one


def test_an_emoji_of_several_tokens_is_one_delta(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🎉b")
    assert len(ids) > 3
    output = run(tokenizer, [*ids, eos(tokenizer)], options(tokenizer))
    deltas = [delta.text for delta in output.taken if delta.text]  # type: ignore[attr-defined]
    assert deltas == ["a", "🎉", "b"]
    counts = [len(delta.tokens) for delta in output.taken]  # type: ignore[attr-defined]
    assert sum(counts) == len(ids) and counts[1] == len(ids) - 2


@pytest.mark.parametrize("place", range(16))
def test_an_end_token_inside_a_block_beats_the_limit(tokenizer: Tokenizer, place: int) -> None:
    """S3: what stands behind the end is not delivered, whatever the limit is; the cap in front of it wins."""
    words = tokenizer.encode(" word") * 16
    ids = words[:place] + [eos(tokenizer)] + words[: 15 - place]
    for limit in range(1, 18):
        seen = texts(run(tokenizer, ids, options(tokenizer, limit=limit), [16]))
        if limit <= place:
            assert (seen["finish"], seen["generated"], seen["tokens"]) == ("length", limit, words[:limit])
        else:
            assert (seen["finish"], seen["generated"], seen["tokens"]) == ("stop", place + 1, words[:place])


@pytest.mark.parametrize("stop", ["one", " one two", "e tw", "o", "two three f"])
def test_stop_strings_inside_and_across_blocks(tokenizer: Tokenizer, stop: str) -> None:
    """S2, S4: the text is cut at the match; the ids and log-probabilities that are given lie in front of it."""
    text = "zero one two three four five"
    ids = tokenizer.encode(text)
    wanted = text[: text.index(stop)]
    for burst in range(1, len(ids) + 1):
        seen = texts(run(tokenizer, ids, options(tokenizer, stop=(stop,)), [burst] * len(ids)))
        assert (seen["content"], seen["finish"]) == (wanted, "stop")
        assert tokenizer.decode(seen["tokens"]).startswith(wanted)
        covered = len(tokenizer.decode(seen["tokens"][:-1]))
        assert covered <= len(wanted)
        end = text.index(stop) + len(stop)
        assert seen["generated"] == next(n for n in range(len(ids) + 1) if len(tokenizer.decode(ids[:n])) >= end)
        kept = texts(run(tokenizer, ids, options(tokenizer, stop=(stop,), keep_stop=True), [burst] * len(ids)))
        assert kept["content"] == wanted + stop


def test_a_stop_string_that_the_limit_token_completes_wins(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a b c d")
    seen = texts(run(tokenizer, ids, options(tokenizer, limit=2, stop=(" b",))))
    assert (seen["content"], seen["finish"]) == ("a", "stop")
    seen = texts(run(tokenizer, ids, options(tokenizer, limit=2, stop=(" c",))))
    assert (seen["content"], seen["finish"]) == ("a b", "length")
    # Line breaks, too, though a chat's content ends without them.
    ids = tokenizer.encode("a\n\nb")
    seen = texts(run(tokenizer, ids[:2], options(tokenizer, limit=2, stop=("\n\n",), chat=True)))
    assert (seen["content"], seen["finish"]) == ("a", "stop")


def test_stops_are_not_looked_for_in_reasoning_and_arguments(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode(f"x y</think>{CALL}"), eos(tokenizer)]
    made = options(tokenizer, chat=True, split_reasoning=True, thinking=True, tools=TOOLS, stop=("x y",))
    seen = texts(run(tokenizer, ids, made))
    assert (seen["reasoning"], seen["calls"], seen["finish"]) == ("x y", [["f", '{"s": "x y"}']], "tool_calls")


def test_min_tokens_hold_stop_strings_back(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a b a b")
    seen = texts(run(tokenizer, ids, options(tokenizer, stop=("a",), min_tokens=1)))
    assert (seen["content"], seen["finish"]) == ("a b ", "stop")


def test_everything_that_is_held_is_flushed(tokenizer: Tokenizer) -> None:
    """S20: the end of a short answer that may begin a stop string, a tag or a character."""
    for text in ("a sto", "a <tool_ca", "a </thi", "a <tool_call>\n<func"):
        ids = [*tokenizer.encode(text, special=False), eos(tokenizer)]
        made = options(tokenizer, chat=True, split_reasoning=True, tools=TOOLS, stop=("stop",))
        assert texts(run(tokenizer, ids, made))["content"] == text
    half = tokenizer.encode("🎉")[:1]
    assert texts(run(tokenizer, half, options(tokenizer, limit=1)))["content"] == "\ufffd"


@pytest.mark.parametrize(
    ("text", "changes", "finish", "calls"),
    [
        (CALL, {}, "tool_calls", 1),
        (CALL + "\n" + CALL, {}, "tool_calls", 2),
        (CALL + "\n" + CALL, {"parallel_calls": False}, "tool_calls", 1),
        (CALL, {"named_tool": True}, "stop", 1),
        (CALL.removesuffix("</function>\n</tool_call>"), {}, "tool_calls", 1),
        (CALL, {"tools": None}, "stop", 0),
    ],
)
def test_finish_reasons_with_tools(
    tokenizer: Tokenizer, text: str, changes: dict[str, Any], finish: str, calls: int
) -> None:
    ids = [*tokenizer.encode(text), eos(tokenizer)]
    for burst in (1, 5, 100):
        made = options(tokenizer, **{"chat": True, "split_reasoning": True, "tools": TOOLS, **changes})
        seen = texts(run(tokenizer, ids, made, [burst] * 100))
        assert (seen["finish"], len(seen["calls"])) == (finish, calls)
        assert all(arguments == '{"s": "x y"}' for _, arguments in seen["calls"])
        assert seen["content"] == ("" if made.tools else text)


def test_the_length_cuts_a_call(tokenizer: Tokenizer) -> None:
    """T8: length, not tool_calls."""
    ids = tokenizer.encode(CALL)
    made = options(tokenizer, limit=len(ids) - 6, tools=TOOLS)
    seen = texts(run(tokenizer, ids, made))
    assert seen["finish"] == "length" and seen["calls"][0][0] == "f"


def test_a_call_inside_the_reasoning_ends_it(tokenizer: Tokenizer) -> None:
    """T10; and S19: reasoning, content and a call in one step come in this order."""
    made = options(tokenizer, chat=True, split_reasoning=True, thinking=True, tools=TOOLS)
    seen = texts(run(tokenizer, [*tokenizer.encode(f"hm {CALL}"), eos(tokenizer)], made, [100]))
    assert (seen["reasoning"], seen["content"], len(seen["calls"])) == ("hm ", "", 1)
    output = run(tokenizer, [*tokenizer.encode(f"hm</think> text {CALL}"), eos(tokenizer)], made, [100])
    kinds = [delta.kind for delta in output.taken if delta.kind != "rest"]  # type: ignore[attr-defined]
    assert kinds == ["reasoning", "content", "call", "arguments"]


def test_reasoning_that_is_not_wanted_is_still_counted(tokenizer: Tokenizer) -> None:
    made = options(tokenizer, chat=True, split_reasoning=True, thinking=True, drop_reasoning=True)
    seen = texts(run(tokenizer, [*tokenizer.encode("one two</think>so"), eos(tokenizer)], made))
    assert (seen["reasoning"], seen["content"]) == ("", "so")
    assert seen["reasoning_tokens"] == len(tokenizer.encode("one two</think>"))
