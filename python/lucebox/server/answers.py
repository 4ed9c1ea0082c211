"""Chat and text completions as clients read them: whole, or chunk by chunk."""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from lucebox.server.deltas import Delta, Token
from lucebox.server.jobs import Choice, Event
from lucebox.server.wire import dumps
from lucebox.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""In place of -inf, which JSON does not have."""


class Answer(ABC):
    """What both kinds share. choices: of the job, in order."""

    prefix: str
    kind: str
    chunk_kind: str

    def __init__(
        self,
        model: str,
        fingerprint: str,
        tokenizer: Tokenizer,
        choices: Sequence[Choice],
        *,
        include_usage: bool,
        logprobs: bool,
        token_ids: bool,
        prompt_tokens: int,
    ) -> None:
        self.id = self.prefix + secrets.token_hex(14)
        self._tokenizer = tokenizer
        self._choices = choices
        self._include_usage = include_usage
        self._logprobs = logprobs
        self._token_ids = token_ids
        self._prompt_tokens = prompt_tokens
        self._head = {
            "id": self.id,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }
        head = dumps({"id": self.id, "object": self.chunk_kind, **self._head})
        self._chunk_start = b"data: " + head[:-1] + b',"choices":['
        self._chunk_end = b'],"usage":null' if include_usage else b"]"

    # Chunk by chunk.

    def chunks(self, event: Event) -> bytes:
        """The server-sent events of one event."""
        return b"".join(self._chunks(event))

    def end(self) -> bytes:
        """Behind the last chunk of all choices."""
        usage = b""
        if self._include_usage:
            more = dumps({"usage": self.usage(), "timings": self.timings()})
            usage = self._chunk_start + b"]," + more[1:] + b"\n\n"
        return usage + b"data: [DONE]\n\n"

    def _chunks(self, event: Event) -> Iterator[bytes]:
        if event.kind == "start":
            yield from self._start(event.index)
        elif event.kind == "progress":
            yield self._chunk(self._part(event.index, None, [], None), {"prompt_progress": event.progress})
        else:
            rest = [token for delta in event.deltas if delta.kind == "rest" for token in delta.tokens]
            for delta in event.deltas:
                if delta.kind == "rest":
                    continue
                more: dict[str, Any] | None = None
                if event.timings is not None and self._choices[event.index].timings_per_token:
                    more = {"timings": event.timings}
                yield self._chunk(self._part(event.index, delta, delta.tokens, None), more)
            if event.finished:
                more = None if self._include_usage else {"timings": event.timings}
                reason = self._choices[event.index].output.finish_reason
                yield self._chunk(self._part(event.index, None, rest, reason), more)

    def _chunk(self, choice: dict[str, Any], more: dict[str, Any] | None) -> bytes:
        end = b"}\n\n" if more is None else b"," + dumps(more)[1:] + b"\n\n"
        return self._chunk_start + dumps(choice) + self._chunk_end + end

    @abstractmethod
    def _start(self, index: int) -> Iterator[bytes]:
        """What is sent when a choice gets its slot."""

    @abstractmethod
    def _part(self, index: int, delta: Delta | None, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        """A choice's part of a chunk."""

    # As a whole.

    @abstractmethod
    def add(self, event: Event) -> None:
        """Takes what came for a choice, for the whole answer."""

    def whole(self) -> dict[str, Any]:
        choices = [self._whole_choice(choice) for choice in self._choices]
        return {"object": self.kind, **self._head, "choices": choices, "usage": self.usage(), "timings": self.timings()}

    @abstractmethod
    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        """A choice as the whole answer has it."""

    def usage(self) -> dict[str, Any]:
        generated = sum(choice.output.generated for choice in self._choices)
        timings = self.timings()
        decode_ms = timings["predicted_ms"]
        accepted = sum(choice.accepted for choice in self._choices)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self._prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": sum(choice.output.reasoning_tokens for choice in self._choices),
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": sum(choice.drafted for choice in self._choices) - accepted,
            },
            "timings": {
                "prefill_ms": timings["prompt_ms"],
                "decode_ms": decode_ms,
                "decode_tokens_per_sec": round(generated * 1e3 / decode_ms, 1) if decode_ms else 0.0,
                "prompt_n_cached": 0,
            },
        }

    def timings(self) -> dict[str, Any]:
        """Of the choice that took longest; of the only one, mostly."""
        return max(self._choices, key=lambda choice: choice.last_at).timings()

    def _bytes(self, id: int) -> bytes:
        return self._tokenizer.token_bytes(id, special=True)


class ChatAnswer(Answer):
    prefix, kind, chunk_kind = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._messages = [_Message() for _ in self._choices]

    def _start(self, index: int) -> Iterator[bytes]:
        yield self._chunk(self._raw(index, {"role": "assistant", "content": ""}, [], None), None)

    def _part(self, index: int, delta: Delta | None, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        return self._raw(index, {} if delta is None else _chat_delta(delta), tokens, reason)

    def _raw(self, index: int, delta: dict[str, Any], tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        part = {"index": index, "delta": delta, "logprobs": self._entries(tokens), "finish_reason": reason}
        if self._token_ids:
            part["token_ids"] = [token.id for token in tokens]
        return part

    def _entries(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self._logprobs or not tokens:
            return None
        return {"content": [self._entry(token) for token in tokens], "refusal": None}

    def _entry(self, token: Token) -> dict[str, Any]:
        own, best = token.logprobs if token.logprobs is not None else (-math.inf, [])
        return {**self._one(token.id, own), "top_logprobs": [self._one(id, logprob) for id, logprob in best]}

    def _one(self, id: int, logprob: float) -> dict[str, Any]:
        raw = self._bytes(id)
        return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": finite(logprob)}

    def add(self, event: Event) -> None:
        message = self._messages[event.index]
        for delta in event.deltas:
            message.add(delta)

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        message = self._messages[choice.index]
        whole = {
            "index": choice.index,
            "message": message.whole(),
            "logprobs": self._entries(message.tokens),
            "finish_reason": choice.output.finish_reason,
        }
        if self._token_ids:
            whole["token_ids"] = [token.id for token in message.tokens]
        return whole


class _Message:
    """A choice's deltas, put together."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.tokens: list[Token] = []

    def add(self, delta: Delta) -> None:
        self.tokens += delta.tokens
        if delta.kind == "content":
            self.content.append(delta.text)
        elif delta.kind == "reasoning":
            self.reasoning.append(delta.text)
        elif delta.kind == "call":
            self.calls.append({"id": delta.call_id, "name": delta.text, "arguments": []})
        elif delta.kind == "arguments":
            self.calls[delta.call]["arguments"].append(delta.text)

    def whole(self) -> dict[str, Any]:
        content = "".join(self.content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self.calls and not content else content,
            "refusal": None,
        }
        if self.reasoning:
            message["reasoning_content"] = message["reasoning"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": "".join(call["arguments"])},
                }
                for call in self.calls
            ]
        return message


def _chat_delta(delta: Delta) -> dict[str, Any]:
    if delta.kind == "content":
        return {"content": delta.text}
    if delta.kind == "reasoning":
        return {"reasoning_content": delta.text}
    if delta.kind == "call":
        function = {"name": delta.text, "arguments": ""}
        return {"tool_calls": [{"index": delta.call, "id": delta.call_id, "type": "function", "function": function}]}
    if delta.kind == "arguments":
        return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}
    return {}


class TextAnswer(Answer):
    """echo: each choice's prompt, in front of its text."""

    prefix, kind, chunk_kind = "cmpl-", "text_completion", "text_completion"

    def __init__(self, *args: Any, echo: Sequence[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._echo = echo
        self._deltas: list[list[Delta]] = [[] for _ in self._choices]

    def _start(self, index: int) -> Iterator[bytes]:
        if self._echo[index]:
            yield self._chunk(self._raw(index, self._echo[index], [], None), None)

    def _part(self, index: int, delta: Delta | None, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        return self._raw(index, "" if delta is None else delta.text, tokens, reason)

    def _raw(self, index: int, text: str, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        part = {"index": index, "text": text, "logprobs": self._entries(index, tokens), "finish_reason": reason}
        if self._token_ids:
            part["token_ids"] = [token.id for token in tokens]
        return part

    def _entries(self, index: int, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self._logprobs or not tokens:
            return None
        return {
            "tokens": [self._text(token.id) for token in tokens],
            "token_logprobs": [None if token.logprobs is None else finite(token.logprobs[0]) for token in tokens],
            "top_logprobs": [
                {self._text(id): finite(logprob) for id, logprob in (token.logprobs[1] if token.logprobs else ())}
                for token in tokens
            ],
            "text_offset": [len(self._echo[index]) + token.start for token in tokens],
        }

    def _text(self, id: int) -> str:
        return self._bytes(id).decode("utf-8", "replace")

    def add(self, event: Event) -> None:
        self._deltas[event.index] += event.deltas

    def _whole_choice(self, choice: Choice) -> dict[str, Any]:
        deltas = self._deltas[choice.index]
        text = self._echo[choice.index] + "".join(delta.text for delta in deltas)
        tokens = [token for delta in deltas for token in delta.tokens]
        return self._raw(choice.index, text, tokens, choice.output.finish_reason)


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB
