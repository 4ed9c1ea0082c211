"""Prompts of the bundled template and of the built-in ChatML, and what is refused."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from lucebox.chat import Chat
from lucebox.errors import RequestError
from lucebox.tokenizer import Tokenizer

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "description": "<é&>", "parameters": {"type": "object"}}}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "x", "b": [1]}'}}],
}


@pytest.fixture(scope="module")
def chat(nano_metadata: dict[str, Any], tokenizer: Tokenizer) -> Chat:
    return Chat(nano_metadata, tokenizer)


@pytest.fixture(scope="module")
def chatml(tokenizer: Tokenizer) -> Chat:
    return Chat({}, tokenizer)


@pytest.mark.parametrize(
    ("messages", "options", "text", "thinking"),
    [
        ([USER], {}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n", True),
        ([USER], {"thinking": True}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n", True),
        (
            [USER],
            {"thinking": False},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            False,
        ),
        (
            [USER],
            {"reasoning_effort": "none"},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            False,
        ),
        (
            [{"role": "developer", "content": "S"}, USER],
            {},
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n",
            True,
        ),
    ],
)
def test_prompts_of_both_templates(
    chat: Chat, chatml: Chat, messages: list[dict[str, Any]], options: dict[str, Any], text: str, thinking: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in (chat, chatml):
            prompt = one.encode(messages, **options)
            assert (prompt.text, prompt.thinking) == (text, thinking)


def test_ids_are_those_of_the_rendered_text(chat: Chat, tokenizer: Tokenizer) -> None:
    """For texts without markers the prompt is one string, tokenised with special parsing on."""
    messages = [{"role": "system", "content": " é e\u0301 "}, USER, CALL, {"role": "tool", "content": "42"}, USER]
    prompt = chat.encode(messages, tools=[TOOL])
    assert prompt.ids == tokenizer.encode(prompt.text)
    assert json.dumps(TOOL, ensure_ascii=False) in prompt.text
    assert (
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\n[1]\n</parameter>\n" in prompt.text
    )


@pytest.mark.filterwarnings("ignore:the file has no chat template")
def test_chatml_as_the_family_writes_it(chatml: Chat) -> None:
    messages = [
        {"role": "system", "content": " S "},
        USER,
        {"role": "assistant", "content": "ok", "reasoning_content": "R", "tool_calls": CALL["tool_calls"] * 2},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    arguments = "<parameter=a>\nx\n</parameter>\n<parameter=b>\n[1]\n</parameter>\n"
    call = f"<tool_call>\n<function=f>\n{arguments}</function>\n</tool_call>"
    assert chatml.encode(messages).text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nR\n</think>\n\nok\n\n{call}\n{call}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n"
    )
    assert chatml.encode(messages, tools=[TOOL]).text.startswith("<|im_start|>system\n# Tools\n")


def test_a_last_message_of_the_assistant_is_continued(chat: Chat) -> None:
    prompt = chat.encode([USER, {"role": "assistant", "content": "The answer"}])
    assert prompt.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nThe answer")
    assert not prompt.thinking


def test_a_thousand_turns(chat: Chat, tokenizer: Tokenizer) -> None:
    messages = [{"role": ("user", "assistant")[i % 2], "content": f"turn {i} <|im_end|>"} for i in range(1001)]
    prompt = chat.encode(messages)
    assert prompt.ids.count(tokenizer.marker_id("<|im_end|>")) == 1001


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reasoning_effort": "huge"}, "'huge'; accepted are none, minimal, low, medium, high, xhigh, max"),
        ({"reasoning_effort": "high"}, "has no levels"),
        ({"template_args": {"messages": []}}, "'messages' is set by the engine"),
    ],
)
def test_options_that_the_template_does_not_have(chat: Chat, options: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        chat.encode([USER], **options)


def test_efforts_reach_a_template_that_has_them(tokenizer: Tokenizer) -> None:
    chat = Chat({"tokenizer.chat_template": "{{ reasoning_effort }}{{ enable_thinking }}{{ keep }}"}, tokenizer)
    assert chat.encode([USER], reasoning_effort="minimal", template_args={"keep": "<think>"}).text == "low<think>"
    assert chat.encode([USER], reasoning_effort="max").text == "xhigh"
    assert chat.encode([USER], reasoning_effort="none").text == "False"


def test_a_template_without_a_switch_refuses_one(tokenizer: Tokenizer) -> None:
    chat = Chat({"tokenizer.chat_template": "{{ messages[0].content }}"}, tokenizer)
    with pytest.raises(RequestError, match="has no switch"):
        chat.encode([USER], thinking=True)
    with pytest.raises(RequestError, match="cannot be continued"):
        chat.encode([USER, {"role": "assistant", "content": "a"}])


def test_a_template_for_tools_is_used_with_tools(tokenizer: Tokenizer) -> None:
    chat = Chat({"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "with tools"}, tokenizer)
    assert chat.encode([USER]).text == "plain"
    assert chat.encode([USER], tools=[TOOL]).text == "with tools"


def test_a_broken_template_is_a_warning_at_load(tokenizer: Tokenizer, chat: Chat) -> None:
    with pytest.warns(UserWarning, match="its chat template: line 1: .*; using ChatML instead"):
        broken = Chat({"tokenizer.chat_template": "{% if %}"}, tokenizer)
    with pytest.warns(UserWarning, match="using ChatML instead"):
        assert broken.encode([USER]).ids == chat.encode([USER]).ids


def test_a_missing_template_is_a_warning_when_it_is_needed(tokenizer: Tokenizer, chat: Chat) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        missing = Chat({}, tokenizer)
    with pytest.warns(UserWarning, match="the file has no chat template; using ChatML instead"):
        assert missing.encode([USER]).ids == chat.encode([USER]).ids


def test_a_vocabulary_without_chatml_has_no_fallback(nano_metadata: dict[str, Any]) -> None:
    tokens = [token.replace("im_start", "im_begin") for token in nano_metadata["tokenizer.ggml.tokens"]]
    chat = Chat({}, Tokenizer({**nano_metadata, "tokenizer.ggml.tokens": tokens}))
    with pytest.raises(RequestError, match="has no ChatML tokens: give a text prompt instead"):
        chat.encode([USER])


def test_a_bos_that_the_file_asks_for_is_added_once(nano_metadata: dict[str, Any]) -> None:
    bos = 12274
    metadata = {**nano_metadata, "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": bos}
    tokenizer = Tokenizer(metadata)
    assert Chat(metadata, tokenizer).encode([USER]).ids[:2] == [bos, tokenizer.marker_id("<|im_start|>")]
    metadata["tokenizer.chat_template"] = "{{ bos_token }}x"
    assert Chat(metadata, tokenizer).encode([USER]).ids == [bos, *tokenizer.encode("x")]
