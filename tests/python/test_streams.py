"""Stop strings and reasoning, for every way in which a text can arrive."""

from __future__ import annotations

import itertools
import random

import pytest
from lucebox.streams import Edges, ReasoningSplitter, StopMatcher


def partitions(text: str) -> list[list[str]]:
    """All of them for short texts, 300 random ones for others."""
    if len(text) <= 9:
        cuts = [c for n in range(len(text)) for c in itertools.combinations(range(1, len(text)), n)]
    else:
        source = random.Random(1)
        cuts = [tuple(sorted(source.sample(range(1, len(text)), source.randrange(len(text))))) for _ in range(300)]
    return [[text[a:b] for a, b in itertools.pairwise((0, *cut, len(text)))] for cut in cuts]


@pytest.mark.parametrize(
    ("text", "stops", "wanted", "matched"),
    [
        ("hello", [], "hello", None),
        ("ab stop c", ["stop"], "ab ", "stop"),
        ("aXbYc", ["Y", "X"], "a", "X"),
        ("aaab", ["aab"], "a", "aab"),
        ("abcd", ["bcd", "cd"], "a", "bcd"),
        ("abcdef", ["abcdeX", "cd"], "ab", "cd"),
        ("xx\n\n", ["\n\n\n"], "xx\n\n", None),
        ("x🎉y", ["🎉"], "x", "🎉"),
        ("ababac", ["abac"], "ab", "abac"),
    ],
)
def test_stop_strings(text: str, stops: list[str], wanted: str, matched: str | None) -> None:
    for parts in partitions(text):
        stream = StopMatcher(stops)
        pieces = [stream.push(part) for part in parts]
        assert "".join(pieces) + stream.finish() == wanted, parts
        assert stream.matched == matched
        assert all(stop not in "".join(pieces) for stop in stops)


def run(stream: ReasoningSplitter, parts: list[tuple[str, bool]]) -> tuple[str, str]:
    found = [stream.marker(text) if marker else stream.push(text) for text, marker in parts]
    found.append(stream.finish())
    edges = Edges(front=False)
    return "".join(r for r, _ in found), "".join(edges.push(c) for _, c in found)


@pytest.mark.parametrize(
    ("text", "inside", "reasoning", "content"),
    [
        ("why\n</think>\n\nso\n", True, "why", "so"),
        ("\nwhy</think>so", True, "why", "so"),
        ("</think>so", True, "", "so"),
        ("never closed <thin", True, "never closed <thin", ""),
        ("a</thinkb</think>c", True, "a</thinkb", "c"),
        ("so</think>x", False, "", "so</think>x"),
        ("<think>\nw\n</think>\n\ns", False, "w", "s"),
        ("\n <think>w</think>s", False, "w", "s"),
        ("a\n\n  b</think>\n    code", True, "a\n\n  b", "    code"),
        ("a</think>b</think>c", True, "a", "b</think>c"),
        ("a\n<tool_call>\n<function=f>", True, "a", "<tool_call>\n<function=f>"),
        ("a <tool_call> is one</think>b", True, "a <tool_call> is one", "b"),
        ("a <tool_call>\n</think><function=b", True, "a <tool_call>", "<function=b"),
    ],
)
def test_reasoning_by_text(text: str, inside: bool, reasoning: str, content: str) -> None:
    for parts in partitions(text):
        stream = ReasoningSplitter(inside=inside, by_text=True)
        assert run(stream, [(part, False) for part in parts]) == (reasoning, content), parts


@pytest.mark.parametrize(
    ("parts", "inside", "reasoning", "content"),
    [
        (["why\n", "!</think>", "\n\nso"], True, "why", "so"),
        (["quote </think> here\n", "!</think>", "so"], True, "quote </think> here", "so"),
        (["quote </think> only"], True, "quote </think> only", ""),
        (["so", "!<think>", "x"], False, "", "so<think>x"),
        (["\n", "!<think>", "w", "!</think>", "s"], False, "w", "s"),
        (["w", "!</think>", "s", "!<think>", "t", "!</think>"], True, "w", "s<think>t</think>"),
        (["w\n", "!<tool_call>", "\n<func", "tion=f>", "x"], True, "w", "<tool_call>\n<function=f>x"),
        (["w ", "!<tool_call>", " is a tag", "!</think>", "s"], True, "w <tool_call> is a tag", "s"),
        (["w ", "!<tool_call>"], True, "w <tool_call>", ""),
        (["w ", "<tool", "_call>\n<func", "tion=f>"], True, "w ", "<tool_call>\n<function=f>"),
        (["w <tool_call> <func", "!</think>", "s"], True, "w <tool_call> <func", "s"),
        (["w ", "!<tool_call>", "!</think>", "s"], True, "w <tool_call>", "s"),
    ],
)
def test_reasoning_by_tokens(parts: list[str], inside: bool, reasoning: str, content: str) -> None:
    """Parts with a ! in front are marker tokens."""
    stream = ReasoningSplitter(inside=inside)
    assert run(stream, [(part.removeprefix("!"), part.startswith("!")) for part in parts]) == (reasoning, content)
