"""Chat messages as clients send them, brought into the one form that chat templates take."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lucebox.errors import RequestError

Message = dict[str, Any]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = ("text", "input_text", "output_text")
_OTHER_PARTS = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "input_audio": "audio",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
}


def normalize(messages: Sequence[Mapping[str, Any]], *, split_reasoning: bool) -> list[Message]:
    """Contents become strings, arguments mappings, and there is one system message, in front, and a user message.

    split_reasoning: `<think>…</think>` at the start of an assistant's content becomes its reasoning_content.
    Raises RequestError, with the message's index, for what no template can take.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise RequestError(f"messages: a list of mappings was expected, not {type(messages).__name__}")
    if not messages:
        raise RequestError("messages: the list is empty")
    turns = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    if split_reasoning:
        turns = [_split_reasoning(turn) for turn in turns]
    turns = _one_system(turns)
    if all(turn["role"] != "user" for turn in turns):
        # Templates refuse a conversation without a user; an empty turn keeps what was said.
        turns.insert(1 if turns[0]["role"] == "system" else 0, {"role": "user", "content": ""})
    return turns


def _message(message: Mapping[str, Any], where: str) -> Message:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where}: a mapping was expected, not {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(f"{where}.role: {role!r}; known are {', '.join(_ROLES)}")
    turn: Message = {**message, "role": _ROLES[role], "content": _content(message.get("content"), f"{where}.content")}
    reasoning = turn.pop("reasoning", None)
    if turn.get("reasoning_content") is None:
        turn.pop("reasoning_content", None)
        if reasoning is not None:
            turn["reasoning_content"] = reasoning
    if not isinstance(turn.get("reasoning_content", ""), str):
        raise RequestError(f"{where}.reasoning_content: a string was expected")
    calls = turn.pop("tool_calls", None)
    if calls:
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise RequestError(f"{where}.tool_calls: a list was expected, not {type(calls).__name__}")
        turn["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return turn


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise RequestError(f"{where}: a string or a list of parts was expected, not {type(content).__name__}")
    return "".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RequestError(f"{where}: a part was expected, not {type(part).__name__}")
    kind = part.get("type", "text")
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    if kind in _OTHER_PARTS:
        raise RequestError(f"{where}: {_OTHER_PARTS[kind]} input is not supported by this engine")
    if kind not in _TEXT_PARTS:
        raise RequestError(f"{where}: a part of type {kind!r}; this engine takes text only ({', '.join(_TEXT_PARTS)})")
    if not isinstance(part.get("text"), str):
        raise RequestError(f"{where}.text: a string was expected")
    return str(part["text"])


def _call(call: Any, where: str) -> Message:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where}.function.name: a string was expected")
    result = {key: value for key, value in call.items() if key not in ("function", "name", "arguments")}
    result["function"] = {**function, "arguments": _arguments(function.get("arguments"))}
    return result


def _arguments(arguments: Any) -> dict[str, Any]:
    """Clients send a JSON string; a text that is no object becomes one argument named `arguments`."""
    if isinstance(arguments, str):
        text = arguments
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, Mapping):
            return {"arguments": text} if text.strip() else {}
    return dict(arguments) if isinstance(arguments, Mapping) else {}


def _split_reasoning(turn: Message) -> Message:
    if turn["role"] != "assistant" or "reasoning_content" in turn:
        return turn
    match = re.match(r"\s*(?:<think>)?(.*?)</think>\s*", turn["content"], re.DOTALL)
    if match is None:
        return turn
    return {**turn, "reasoning_content": match.group(1).strip("\r\n"), "content": turn["content"][match.end() :]}


def _one_system(turns: list[Message]) -> list[Message]:
    """Leading system messages are joined; a later one goes in front of the user turn behind it, or becomes one."""
    count = next((i for i, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    result: list[Message] = []
    if count:
        result.append({**turns[0], "content": _joined(turns[:count])})
    late: list[Message] = []
    for turn in turns[count:]:
        if turn["role"] == "system":
            late.append(turn)
            continue
        if late and turn["role"] == "user":
            turn = {**turn, "content": _joined([*late, turn])}
        elif late:
            result.append({"role": "user", "content": _joined(late)})
        late = []
        result.append(turn)
    if late:
        result.append({"role": "user", "content": _joined(late)})
    return result


def _joined(turns: Sequence[Message]) -> str:
    return "\n\n".join(turn["content"] for turn in turns if turn["content"])
