"""Replay case 8: characters and tool calls cut by bursts.

Luce-Org/lucebox#641, #580 (an emoji arrives as two replacement characters), antonellof/ferrox#125,
ai-dynamo/dynamo#12688; vllm-project/vllm PR 35615 (with 5 drafts the closing tag is seen before the parameters),
PR 40861 (a closing tag as literal text inside a value), #35800, #56077.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from lucebox import _core
from lucebox.engine import BUNDLED
from lucebox.server.deltas import Output, OutputOptions
from lucebox.tokenizer import Tokenizer

TOOL = {
    "type": "function",
    "function": {
        "name": "write",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "text": {"type": "string"},
                "mode": {"type": ["integer", "null"]},
            },
        },
    },
}
ARGUMENTS: list[dict[str, Any]] = [
    {"path": "a.py", "text": "x = \"</parameter>\"\n  y\t= '</function>'\n", "mode": 420},
    {"text": '<parameter=path>\n\\ " \u2028 x\u0301 🎉\n\n', "mode": None},
    {"path": "</tool_call>", "text": "a\n</parameter>\nb <tool_call>\n<function=f>"},
    {},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(_core.GGUFFile(str(BUNDLED["nano"])).metadata)


def call(arguments: dict[str, Any]) -> str:
    """As chat templates write it."""
    body = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function=write>\n{body}</function>\n</tool_call>"


def deliver(tokenizer: Tokenizer, ids: list[int], bursts: Iterator[int]) -> dict[str, Any]:
    options = OutputOptions(limit=10**6, end_ids=tokenizer.end_ids, chat=True, split_reasoning=True, tools=(TOOL,))
    output = Output(tokenizer, options)
    seen: dict[str, Any] = {"content": "", "calls": []}
    at = 0
    while at < len(ids):
        size = next(bursts)
        for id in ids[at : at + size]:
            output.push(id)
        at += size
        for delta in output.take():
            assert "\ufffd" not in delta.text or "\ufffd" in tokenizer.decode(ids)
            if delta.kind == "content":
                seen["content"] += delta.text
            elif delta.kind == "call":
                seen["calls"].append([delta.text, ""])
            elif delta.kind == "arguments":
                seen["calls"][delta.call][1] += delta.text
    seen["finish"] = output.finish_reason
    return seen


def compositions(total: int, most: int) -> Iterator[list[int]]:
    """All ways to cut a text of so many tokens into bursts."""
    for cuts in itertools.product([False, True], repeat=total - 1):
        sizes, size = [], 1
        for cut in cuts:
            if cut:
                sizes.append(size)
                size = 1
            else:
                size += 1
        if max([*sizes, size]) <= most:
            yield [*sizes, size]


def test_every_partition_of_a_short_text(tokenizer: Tokenizer) -> None:
    """Four-byte characters, a combining mark, a real U+FFFD and bytes that are no character, in 14 tokens."""
    ids = tokenizer.encode("x\u0301🎉\ufffd".encode() + b"\xff") + [tokenizer.eos_id or 0]
    ids = ids[-14:] if len(ids) > 14 else ids
    wanted = deliver(tokenizer, ids, itertools.repeat(1))
    assert wanted["content"].endswith("\ufffd\ufffd") and wanted["finish"] == "stop"
    for sizes in compositions(len(ids), 16):
        assert deliver(tokenizer, ids, iter(sizes)) == wanted, sizes


def test_two_thousand_partitions_of_long_texts(tokenizer: Tokenizer) -> None:
    """Text in front of, between and behind calls; each argument equals the reference."""
    text = "Let me see 🎉.\n\n" + "\n".join(map(call, ARGUMENTS)) + "\n\nDone \u0e2a\u0e27."
    ids = [*tokenizer.encode(text), tokenizer.eos_id or 0]
    wanted = deliver(tokenizer, ids, itertools.repeat(len(ids)))
    assert wanted["content"] == "Let me see 🎉.Done \u0e2a\u0e27."
    assert [json.loads(arguments) for _, arguments in wanted["calls"]] == ARGUMENTS
    assert wanted["finish"] == "tool_calls"
    source = random.Random(8)
    for _ in range(200):
        sizes = (source.randint(1, 16) for _ in itertools.count())
        assert deliver(tokenizer, ids, sizes) == wanted


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_partitions_of_one_call(tokenizer: Tokenizer, arguments: dict[str, Any]) -> None:
    """As marker tokens and as ordinary text."""
    source = random.Random(9)
    for special in (True, False):
        ids = [*tokenizer.encode("ok " + call(arguments), special=special), tokenizer.eos_id or 0]
        for _ in range(225):
            seen = deliver(tokenizer, ids, (source.randint(1, 16) for _ in itertools.count()))
            assert seen["content"] == "ok " and json.loads(seen["calls"][0][1]) == arguments
