"""Messages as clients send them."""

from __future__ import annotations

from typing import Any

import pytest
from lucebox.errors import RequestError
from lucebox.messages import normalize

USER = {"role": "user", "content": "q"}


def roles(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["role"], turn["content"]) for turn in normalize(messages, split_reasoning=True)]


def message(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([USER], [("user", "q")]),
        ([message("developer", "d"), USER], [("system", "d"), ("user", "q")]),
        ([message("system", "a"), message("developer", "b"), USER], [("system", "a\n\nb"), ("user", "q")]),
        ([USER, message("system", "s"), USER], [("user", "q"), ("user", "s\n\nq")]),
        ([USER, message("system", "s")], [("user", "q"), ("user", "s")]),
        ([USER, message("system", "s"), message("assistant", "a")], [("user", "q"), ("user", "s"), ("assistant", "a")]),
        ([message("system", "s")], [("system", "s"), ("user", "")]),
        ([message("assistant", "a")], [("user", ""), ("assistant", "a")]),
        ([USER, message("function", "r")], [("user", "q"), ("tool", "r")]),
        ([message("user")], [("user", "")]),
        (
            [message("user", [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"])],
            [("user", "abc")],
        ),
    ],
)
def test_roles_and_contents(messages: list[dict[str, Any]], wanted: list[tuple[str, str]]) -> None:
    assert roles(messages) == wanted


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("{broken", {"arguments": "{broken"}),
        ("[1]", {"arguments": "[1]"}),
        (" ", {}),
        (None, {}),
    ],
)
def test_arguments_become_a_mapping(arguments: Any, wanted: dict[str, Any]) -> None:
    for call in ({"id": "1", "function": {"name": "f", "arguments": arguments}}, {"name": "f", "arguments": arguments}):
        turns = normalize([USER, message("assistant", None, tool_calls=[call])], split_reasoning=True)
        assert turns[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": wanted}


@pytest.mark.parametrize(
    ("content", "reasoning", "rest"),
    [
        ("<think>\nwhy\n</think>\n\nso", "why", "so"),
        ("why</think>so", "why", "so"),
        ("<think></think>so", "", "so"),
        ("a </think> b </think> c", "a ", "b </think> c"),
        ("<think>open", None, "<think>open"),
        ("plain", None, "plain"),
    ],
)
def test_reasoning_is_taken_out_of_contents(content: str, reasoning: str | None, rest: str) -> None:
    turn = normalize([USER, message("assistant", content)], split_reasoning=True)[1]
    assert (turn.get("reasoning_content"), turn["content"]) == (reasoning, rest)
    kept = normalize([USER, message("assistant", content)], split_reasoning=False)[1]
    assert (kept.get("reasoning_content"), kept["content"]) == (None, content)


def test_reasoning_that_is_given_wins() -> None:
    turn = message("assistant", "a</think>b", reasoning_content="r")
    assert normalize([USER, turn], split_reasoning=True)[1] == turn
    turn = normalize([USER, message("assistant", "b", reasoning="r", reasoning_content=None)], split_reasoning=True)[1]
    assert turn["reasoning_content"] == "r" and "reasoning" not in turn


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ("hello", "a list of mappings"),
        ([], "the list is empty"),
        (["x"], r"messages\[0\]: a mapping"),
        ([USER, message("robot", "x")], r"messages\[1\].role: 'robot'; known are system, developer, user"),
        ([message("user", 3)], r"messages\[0\].content: a string or a list"),
        ([message("user", [{"type": "image_url", "image_url": {}}])], "image input is not supported"),
        ([message("user", [{"type": "text"}])], r"content\[0\].text: a string"),
        ([USER, message("assistant", "", tool_calls=[{"function": {}}])], r"tool_calls\[0\].function.name"),
        ([USER, message("assistant", "", tool_calls="x")], "tool_calls: a list"),
        ([USER, message("assistant", "", reasoning_content=1)], "reasoning_content: a string"),
    ],
)
def test_what_cannot_be_taken_is_named(messages: Any, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        normalize(messages, split_reasoning=True)
