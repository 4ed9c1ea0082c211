"""Tool calls in replies: what is parsed, as which type, and that no cut of the text changes it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from lucebox.server.tools import ToolParser
from lucebox.server.values import ToolTypes

PROPERTIES: dict[str, Any] = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "a": {"type": "array"},
    "z": {"type": ["integer", "null"]},
    "sz": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "r": {"$ref": "#/$defs/count"},
    "e": {"enum": [1, 2]},
    "any": {},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": PROPERTIES, "$defs": {"count": {"type": "integer"}}},
        },
    },
    {"type": "function", "function": {"name": "g"}},
    {"type": "web_search"},
]


def call(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def parse(parts: Iterable[str], *, close: bool = True) -> tuple[str, list[tuple[str, str]]]:
    """(content, [(name, arguments)]) of a text that arrives in parts."""
    parser = ToolParser(TOOLS)
    content = ""
    calls: list[tuple[str, str]] = []
    for event in itertools.chain(*(parser.push(part) for part in parts), parser.finish(close=close)):
        if event.kind == "content":
            content += event.text
        elif event.kind == "head":
            calls.append((event.text, ""))
        elif event.kind == "arguments":
            calls[-1] = (calls[-1][0], calls[-1][1] + event.text)
    return content, calls


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("s", "x", "x"),
        ("s", "123", "123"),
        ("s", "null", "null"),
        ("s", "", ""),
        ("s", "\n  indented\n", "\n  indented\n"),
        ("s", 'quote " and \\ and \t', 'quote " and \\ and \t'),
        ("s", "a </parameter> b </function> c", "a </parameter> b </function> c"),
        ("s", "a\n</parameter>\nb", "a\n</parameter>\nb"),
        ("s", "<parameter=k>\n<tool_call>", "<parameter=k>\n<tool_call>"),
        ("s", "</tool_call>", "</tool_call>"),
        ("s", "e\u0301 🎉 \ufffd", "e\u0301 🎉 \ufffd"),
        ("i", "12", 12),
        ("i", " 12 ", 12),
        ("i", "twelve", "twelve"),
        ("i", "9" * 5000, "9" * 5000),
        ("n", "1.5e3", 1500.0),
        ("n", "NaN", "NaN"),
        ("b", "True", True),
        ("b", "false", False),
        ("b", "yes", "yes"),
        ("o", '{"k": [1,\n2]}', {"k": [1, 2]}),
        ("o", "{broken", "{broken"),
        ("a", "[" * 3000, "[" * 3000),
        ("z", "null", None),
        ("z", "3", 3),
        ("sz", "123", "123"),
        ("r", "7", 7),
        ("e", "2", 2),
        ("any", "[1]", [1]),
        ("any", "12", "12"),
        ("unknown", "12", "12"),
    ],
)
def test_values(key: str, text: str, value: Any) -> None:
    reply = call("f", (key, text), ("s" if key != "s" else "sz", "last"))
    content, calls = parse([reply])
    assert content == ""
    assert json.loads(calls[0][1]) == {key: value, "s" if key != "s" else "sz": "last"}
    assert parse(list(reply)) == (content, calls)


@pytest.mark.parametrize(
    ("reply", "content", "calls"),
    [
        ("plain", "plain", []),
        ("say <tool_call> in prose", "say <tool_call> in prose", []),
        ("<tool_call>\n</tool_call>", "<tool_call>\n</tool_call>", []),
        ("<tool_call>\n<function=>\n</function>", "<tool_call>\n<function=>\n</function>", []),
        ("<tool_call>\n<function=f", "<tool_call>\n<function=f", []),
        (call("g"), "", [("g", "{}")]),
        ("go: " + call("g") + "\n" + call("f", ("i", "1")), "go: ", [("g", "{}"), ("f", '{"i": 1}')]),
        (call("g") + "\n\ndone", "done", [("g", "{}")]),
        (call("nobody", ("k", "v")), "", [("nobody", '{"k": "v"}')]),
        ("<tool_call><function=f><parameter=s>x</parameter></function></tool_call>", "", [("f", '{"s": "x"}')]),
        ("<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>", "", [("f", '{"s": "x"}')]),
        ("<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call>", "", [("f", '{"s": "x"}')]),
        ("<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>", "", [("f", '{"s": "x"}')]),
        ("<tool_call>\n<function=f>\n<parameter=s>\n</parameter>\n</function>", "", [("f", '{"s": ""}')]),
        ("<tool_call>\n<function=f>\n<parameter=i>\n4", "", [("f", '{"i": 4}')]),
        ("<tool_call>\n<function= f >\n<parameter= s >\nx\n</parameter>\n</function>", "", [("f", '{"s": "x"}')]),
        (call("f", ("s", "a"), ("s", "b")), "", [("f", '{"s": "a"}')]),
        (
            "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>x",
            "x",
            [("f", "{}"), ("g", "{}")],
        ),
    ],
)
def test_replies(reply: str, content: str, calls: list[tuple[str, str]]) -> None:
    source = random.Random(7)
    assert parse([reply]) == (content, calls)
    assert parse(list(reply)) == (content, calls)
    for _ in range(100):
        cuts = sorted(source.sample(range(1, len(reply)), min(len(reply) - 1, source.randrange(1, 9))))
        parts = [reply[a:b] for a, b in itertools.pairwise((0, *cuts, len(reply)))]
        assert parse(parts) == (content, calls), parts


def test_a_call_that_the_length_cuts_stays_open() -> None:
    whole = call("f", ("s", "some text"), ("i", "42"))
    for end in range(len(whole) + 1):
        content, calls = parse([whole[:end]], close=False)
        if calls and not calls[0][1].endswith("}"):
            assert '{"s": "some text", "i": 42}'.startswith(calls[0][1])


def test_arguments_stream_while_they_grow() -> None:
    """A long string leaves piece by piece, with little held back."""
    parser = ToolParser(TOOLS)
    parser.push("<tool_call>\n<function=f>\n<parameter=s>\n")
    sent = 0
    for i in range(2000):
        sent += sum(len(event.text) for event in parser.push("0123456789"))
        assert sent == 10 * (i + 1)


@pytest.mark.parametrize("piece", ["<tool_call>\n", "</parameter>", "\n</parameter>\n</", "\n" * 7, "<", "<function=a"])
@pytest.mark.parametrize("start", ["", "<tool_call>\n<function=f>\n", "<tool_call>\n<function=f>\n<parameter=s>\n"])
def test_what_is_held_back_is_bounded(start: str, piece: str) -> None:
    """So that a long text of unclosed openers is linear work: each push looks at what is held and what is new."""
    parser = ToolParser(TOOLS)
    parser.push(start)
    for _ in range(200_000 // len(piece)):
        parser.push(piece)
        assert parser.held < 400


def test_types_of_hostile_schemas() -> None:
    loop = {"$ref": "#/$defs/a"}
    tools = [{"function": {"name": "f", "parameters": {"properties": {"p": loop, "q": 3}, "$defs": {"a": loop}}}}]
    types = ToolTypes(tools)
    assert types.of("f", "p") == frozenset()
    assert types.of("f", "q") == frozenset()
    assert types.of("g", "p") == {"string"}
