"""From the tokens of one choice to the deltas that clients see: text, reasoning, tool calls, log-probabilities, the end.

Tokens are taken one by one, however many a step gives, so that a burst and single tokens give the same answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lucebox.server.tools import Event, ToolParser
from lucebox.streams import Edges, ReasoningSplitter, StopMatcher, TokenText
from lucebox.tokenizer import Tokenizer

FinishReason = Literal["stop", "length", "tool_calls"]
TokenLogprobs = tuple[float, Sequence[tuple[int, float]]]


@dataclass(frozen=True)
class OutputOptions:
    """What becomes of a choice's tokens."""

    limit: int
    """Tokens at most, 1 or more."""
    limit_name: str = "max_tokens"
    end_ids: frozenset[int] = frozenset()
    """Tokens that end the reply; they have no text."""
    min_tokens: int = 0
    """Until then, neither end tokens nor stop strings count."""
    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    """The stop string stays in the text."""
    chat: bool = False
    """Line breaks at the content's edges are dropped."""
    thinking: bool = False
    """The reply starts in the reasoning."""
    split_reasoning: bool = False
    drop_reasoning: bool = False
    tools: tuple[Mapping[str, Any], ...] | None = None
    """None: tool calls are not looked for."""
    named_tool: bool = False
    parallel_calls: bool = True


@dataclass(slots=True)
class Delta:
    kind: Literal["content", "reasoning", "call", "arguments", "rest"]
    """rest: tokens without any text that is delivered."""
    text: str = ""
    call: int = 0
    """Index of the tool call."""
    call_id: str = ""
    """With kind "call", whose text is the function's name."""
    tokens: list[Token] = field(default_factory=list)


@dataclass(slots=True)
class Token:
    """A token whose text is delivered with a delta. start, end: characters of the decoded reply."""

    id: int
    logprobs: TokenLogprobs | None
    start: int
    end: int


class Output:
    """One choice. Push tokens until `finish_reason` is set; take the deltas whenever it suits."""

    def __init__(self, tokenizer: Tokenizer, options: OutputOptions) -> None:
        self._options = options
        self._tokenizer = tokenizer
        splitter = None
        if options.split_reasoning:
            by_text = tokenizer.marker_id(ReasoningSplitter.CLOSE) is None
            splitter = ReasoningSplitter(inside=options.thinking, by_text=by_text, calls=options.tools is not None)
        self._text = TokenText(tokenizer, splitter)
        self._parser = None if options.tools is None else ToolParser(options.tools)
        self._stops = StopMatcher(options.stop)
        self._edges = Edges(front=False, behind=options.chat)
        self._deltas: list[Delta] = []
        self._waiting: list[Token] = []
        self._loose: list[Token] = []
        self._mark = 0
        self._call = -1
        self.generated = 0
        """Tokens so far, the end token included."""
        self.reasoning_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.stopped_by: str | None = None

    @property
    def reasoning(self) -> bool:
        """Whether the next token belongs to the reasoning."""
        return self._text.reasoning

    @property
    def calling(self) -> bool:
        """Whether a tool call is open."""
        return self._parser is not None and self._parser.inside

    @property
    def left(self) -> int:
        return self._options.limit - self.generated

    def push(self, id: int, logprobs: TokenLogprobs | None = None) -> None:
        """The next token. After the end there is none: what a block holds behind it is never shown."""
        if self.finish_reason is not None:
            return
        self.generated += 1
        self.reasoning_tokens += self.reasoning
        if id in self._options.end_ids and self.generated > self._options.min_tokens:
            self._mark = len(self._deltas)
            self._end("stop", self._tokenizer.token_text(id))
            return
        self._mark = len(self._deltas)
        start = self._text.decoded
        reasoning, text = self._text.push(id)
        end = self._text.decoded + self._text.pending
        self._waiting.append(Token(id, logprobs, start, end))
        self._say(reasoning, text)
        if self._stops.matched is not None:
            self._end("stop", self._stops.matched)
        elif self._one_call() and self._parser is not None and self._parser.calls:
            self._end("stop", "parallel_tool_calls")
        elif self.left <= 0:
            self._end("length", self._options.limit_name)
        else:
            self._attach(self._text.decoded - self._held() - self._stops.held - self._edges.held)

    def cut(self, name: str) -> None:
        """Ends the choice where it is, as its limit would."""
        if self.finish_reason is None:
            self._mark = len(self._deltas)
            self._end("length", name)

    def take(self) -> list[Delta]:
        """Deltas since the last call, neighbours of one kind joined."""
        deltas, self._deltas, self._mark = self._deltas, [], 0
        joined: list[Delta] = []
        for delta in deltas:
            last = joined[-1] if joined else None
            if last is not None and delta.kind == last.kind != "call" and delta.call == last.call:
                last.text += delta.text
                last.tokens += delta.tokens
            else:
                joined.append(delta)
        return joined

    def _held(self) -> int:
        """Characters that wait in front of the search for stop strings."""
        return self._text.held + (0 if self._parser is None else self._parser.held)

    def _one_call(self) -> bool:
        """Whether the first call that is closed ends the reply."""
        return not self._options.parallel_calls

    def _say(self, reasoning: str, text: str) -> None:
        if reasoning and not self._options.drop_reasoning:
            self._deltas.append(Delta("reasoning", reasoning))
        if self._parser is None:
            self._content(text)
        elif text:
            self._events(self._parser.push(text))

    def _events(self, events: Sequence[Event]) -> None:
        for event in events:
            if self._stops.matched is not None or (self._call >= 0 and event.kind == "head" and self._one_call()):
                return
            if event.kind == "content":
                if self._call < 0 or not self._one_call():
                    self._content(event.text)
            elif event.kind == "head":
                self._show(self._stops.finish())
                self._edges.drop()
                self._call += 1
                call_id = "call_" + secrets.token_hex(12)
                self._deltas.append(Delta("call", event.text, self._call, call_id))
            elif event.kind == "arguments":
                self._deltas.append(Delta("arguments", event.text, self._call))

    def _content(self, text: str) -> None:
        if self.generated > self._options.min_tokens:
            text = self._stops.push(text)
            if self._stops.matched is not None and self._options.keep_stop:
                text += self._stops.matched
        self._show(text)

    def _show(self, text: str) -> None:
        text = self._edges.push(text)
        if text:
            self._deltas.append(Delta("content", text))

    def _end(self, reason: FinishReason, stopped_by: str) -> None:
        if self._stops.matched is None:
            self._say(*self._text.finish())
            if self._parser is not None:
                self._events(self._parser.finish(close=reason == "stop"))
            self._show(self._stops.finish())
        whole = self._text.decoded + 1
        if self._stops.matched is not None:
            # Also where only what was held back completed it.
            reason, stopped_by = "stop", self._stops.matched
            whole = self._text.decoded - self._held() - self._stops.dropped
            whole += len(self._stops.matched) if self._options.keep_stop else 0
        if reason == "stop" and self._parser is not None and self._parser.calls and not self._options.named_tool:
            reason = "tool_calls"
        self.finish_reason, self.stopped_by = reason, stopped_by
        self._waiting = [token for token in self._waiting if token.start < whole]
        self._attach(self._text.decoded + 1)

    def _attach(self, released: int) -> None:
        """Gives the tokens whose text has left to the delta that carries it."""
        count = next((i for i, token in enumerate(self._waiting) if token.end > released), len(self._waiting))
        self._loose += self._waiting[:count]
        del self._waiting[:count]
        if self._loose and self.finish_reason is not None and len(self._deltas) == self._mark:
            self._deltas.append(Delta("rest"))
        if len(self._deltas) > self._mark:
            self._deltas[self._mark].tokens += self._loose
            self._loose = []
