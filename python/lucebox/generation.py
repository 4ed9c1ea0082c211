"""One running request: the loop over tokens, what they say, and where they end."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

from lucebox import _core
from lucebox._core import StepWork
from lucebox.errors import RequestError
from lucebox.sampling import RequestOptions
from lucebox.streams import Edges, ReasoningSplitter, StopMatcher, TokenText
from lucebox.tokenizer import Tokenizer


@dataclass(frozen=True)
class Speculation:
    """What was drafted so far, and what it gave. The first token comes from the prompt and is none of a step."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    """Of the steps: an accepted draft each, and one more a step but where the reply ends inside a block."""
    drafted_at: tuple[int, ...] = ()
    """Steps that drafted a first, second, … token."""
    accepted_at: tuple[int, ...] = ()
    """Of these, steps that accepted it."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Steps by what drafted: "drafter", "lookup", "drafter+lookup", "none"."""
    draft_s: float = 0.0
    verify_s: float = 0.0
    """With accepting and committing."""

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps if self.steps else 0.0

    def plus(self, result: _core.StepResult, tokens: int, accepted: int) -> Speculation:
        """With a step of which the reply takes so many tokens."""
        drafted_at, accepted_at = (
            tuple(sum(pair) for pair in zip_longest(counts, [1] * count, fillvalue=0))
            for counts, count in ((self.drafted_at, result.drafted), (self.accepted_at, accepted))
        )
        return Speculation(
            self.steps + 1,
            self.drafted + result.drafted,
            self.accepted + accepted,
            self.tokens + tokens,
            drafted_at,
            accepted_at,
            {**self.sources, result.source: self.sources.get(result.source, 0) + 1},
            self.draft_s + result.draft_ms / 1e3,
            self.verify_s + result.verify_ms / 1e3,
        )


@dataclass(frozen=True)
class Timings:
    """What has been done so far; the consumer's own time is not counted."""

    prompt_tokens: int
    prompt_s: float
    """Until the first token was known."""
    generated_tokens: int
    generated_s: float
    """For the tokens after the first."""
    speculation: Speculation = field(default_factory=Speculation)

    @property
    def prompt_per_s(self) -> float:
        return self.prompt_tokens / self.prompt_s if self.prompt_s else 0.0

    @property
    def generated_per_s(self) -> float:
        return (self.generated_tokens - 1) / self.generated_s if self.generated_s else 0.0


@dataclass(frozen=True)
class Piece:
    """Text that is settled. No piece ends inside a character."""

    text: str
    token_ids: tuple[int, ...]
    """Tokens since the piece before; their text may come later (a character or stop string that is not complete)."""
    timings: Timings
    reasoning: str = ""
    """Text of the model's thinking; only replies to messages have any."""
    finish_reason: Literal["stop", "length"] | None = None
    """Set on the last piece, and on no other."""
    stopped_by: str | None = None
    """With it: the end token's text, the stop string, "max_tokens" or "max_ctx"."""


def _checked(result: _core.StepResult) -> _core.StepResult:
    if result.error:
        raise RequestError(result.error)
    return result


class Generation(Iterator[Piece]):
    """The pieces of one reply. The engine takes no other request until this one ends or is closed."""

    def __init__(
        self,
        core: _core.Engine,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        options: RequestOptions,
        *,
        splitter: ReasoningSplitter | None,
        release: Callable[[], None],
    ) -> None:
        """splitter: None gives the whole reply as text."""
        self.prompt_ids = tuple(prompt_ids)
        self.options = options
        self.seed = secrets.randbits(64) if options.seed is None else options.seed
        """Of the random numbers, drawn for this request when the options name none."""
        self._core = core
        self._tokenizer = tokenizer
        self._release = release
        self._text = TokenText(tokenizer, splitter)
        self._stops = StopMatcher(options.stop)
        self._edges = Edges(front=False, behind=splitter is not None)
        self._params = options.params(end_ids=tokenizer.end_ids, seed=self.seed)
        self._prompt_s = self._generated_s = 0.0
        self._generated = 0
        self._speculation = Speculation()
        self._turn = threading.Lock()
        self._pieces: Generator[Piece, None, None] = self._run()

    def __next__(self) -> Piece:
        if not self._turn.acquire(blocking=False):
            raise RequestError("the reply is being read by another thread")
        try:
            return next(self._pieces)
        except BaseException:
            self._end()
            raise
        finally:
            self._turn.release()

    def close(self) -> None:
        """Ends the request; the engine is free for the next one. Closing twice is no error."""
        if not self._turn.acquire(blocking=False):
            raise RequestError("the reply is being read by another thread")
        try:
            self._end()
        finally:
            self._turn.release()

    def _end(self) -> None:
        self._pieces.close()
        self._release()

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # An iterator that was dropped must not keep the engine busy.
        if hasattr(self, "_pieces"):
            self._end()

    def _run(self) -> Generator[Piece, None, None]:
        room = self._core.max_ctx - len(self.prompt_ids)
        cap = self.options.max_tokens
        limit, limit_name = (room, "max_ctx") if cap is None or cap > room else (cap, "max_tokens")
        if limit == 0:
            yield Piece("", (), self._timings(), finish_reason="length", stopped_by=limit_name)
            return
        ids: list[int] = []
        result = self._prefill()
        while True:
            tokens = result.token_ids
            reasoning, text, stop, taken = self._take(tokens, limit)
            ids += tokens[:taken]
            if self._generated > 1:
                self._speculation = self._speculation.plus(result, taken, min(taken, result.accepted))
            if stop is not None or self._generated == limit:
                break
            if text or reasoning:
                yield Piece(text, tuple(ids), self._timings(), reasoning)
                ids = []
            result = self._step(limit - self._generated)
        rest_reasoning, rest = self._rest()
        # What was held back may complete a stop string.
        stop = stop or self._stops.matched
        yield Piece(
            text + rest,
            tuple(ids),
            self._timings(),
            reasoning + rest_reasoning,
            "length" if stop is None else "stop",
            stop or limit_name,
        )

    def _take(self, tokens: Sequence[int], limit: int) -> tuple[str, str, str | None, int]:
        """(reasoning, text, what ended the reply, tokens of it) of a step's tokens; what comes behind an end is dropped."""
        reasoning = text = ""
        for taken, token in enumerate(tokens, 1):
            self._generated += 1
            if token in self._tokenizer.end_ids and not self.options.ignore_eos:
                return reasoning, text, self._tokenizer.token_text(token), taken
            more_reasoning, more = self._say(token)
            reasoning, text = reasoning + more_reasoning, text + more
            if self._stops.matched is not None or self._generated == limit:
                return reasoning, text, self._stops.matched, taken
        return reasoning, text, None, len(tokens)

    def _prefill(self) -> _core.StepResult:
        started = time.perf_counter()
        rows, ids = self._core.max_rows, self.prompt_ids
        self._core.begin(0, self._params, ids)
        # One call a chunk, so that Ctrl-C and close() are heard in between.
        last = (len(ids) - 1) // rows * rows
        for start in range(0, last, rows):
            self._core.step([StepWork(0, ids[start : start + rows])])
        (result,) = self._core.step([StepWork(0, ids[last:], emit=True)])
        self._prompt_s = time.perf_counter() - started
        return _checked(result)

    def _step(self, limit: int) -> _core.StepResult:
        started = time.perf_counter()
        (result,) = self._core.step([StepWork(0, limit=limit)])
        self._generated_s += time.perf_counter() - started
        return _checked(result)

    def _say(self, token: int) -> tuple[str, str]:
        """(reasoning, text) that the token settles."""
        reasoning, text = self._text.push(token)
        return reasoning, self._edges.push(self._stops.push(text))

    def _rest(self) -> tuple[str, str]:
        """(reasoning, text) that was held back, at the end of the reply."""
        reasoning, text = self._text.finish()
        return reasoning, self._edges.push(self._stops.push(text) + self._stops.finish())

    def _timings(self) -> Timings:
        return Timings(len(self.prompt_ids), self._prompt_s, self._generated, self._generated_s, self._speculation)
