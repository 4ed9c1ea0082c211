"""One running request: the loop over tokens, what they say, and where they end."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lucebox import _core
from lucebox.sampling import RequestOptions
from lucebox.streams import Edges, ReasoningSplitter, StopMatcher, TokenText
from lucebox.tokenizer import Tokenizer


@dataclass(frozen=True)
class Timings:
    """What has been done so far; the consumer's own time is not counted."""

    prompt_tokens: int
    prompt_s: float
    """Until the first token was known."""
    generated_tokens: int
    generated_s: float
    """For the tokens after the first."""

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
        self._params = _core.SamplingParams(options.temperature, options.top_k, options.top_p, options.min_p, self.seed)
        self._prompt_s = self._generated_s = 0.0
        self._generated = 0
        self._pieces: Generator[Piece, None, None] = self._run()

    def __next__(self) -> Piece:
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the request; the engine is free for the next one. Closing twice is no error."""
        self._pieces.close()
        self._release()

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # An iterator that was dropped must not keep the engine busy.
        if hasattr(self, "_pieces"):
            self.close()

    def _run(self) -> Generator[Piece, None, None]:
        room = self._core.max_ctx - len(self.prompt_ids)
        cap = self.options.max_tokens
        limit, limit_name = (room, "max_ctx") if cap is None or cap > room else (cap, "max_tokens")
        if limit == 0:
            yield Piece("", (), self._timings(), finish_reason="length", stopped_by=limit_name)
            return
        ids: list[int] = []
        token = self._prefill()
        while True:
            ids.append(token)
            self._generated += 1
            ended = token in self._tokenizer.end_ids and not self.options.ignore_eos
            reasoning, text = ("", "") if ended else self._say(token)
            stop = self._tokenizer.token_text(token) if ended else self._stops.matched
            if stop is not None or self._generated == limit:
                break
            if text or reasoning:
                yield Piece(text, tuple(ids), self._timings(), reasoning)
                ids = []
            token = self._step(token)
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

    def _prefill(self) -> int:
        started = time.perf_counter()
        rows = self._core.max_rows
        # Cut here too, so that Ctrl-C and close() are heard between calls; the bits are the same.
        last = (len(self.prompt_ids) - 1) // rows * rows
        for start in range(0, last, rows):
            self._core.forward([(0, self.prompt_ids[start : start + rows])], "none")
        token = self._next(self.prompt_ids[last:])
        self._prompt_s = time.perf_counter() - started
        return token

    def _step(self, token: int) -> int:
        started = time.perf_counter()
        token = self._next([token])
        self._generated_s += time.perf_counter() - started
        return token

    def _next(self, ids: Sequence[int]) -> int:
        if self.options.greedy:
            return int(self._core.forward([(0, ids)], "argmax")[0])
        logits = self._core.forward([(0, ids)], "last")[0]
        return _core.sample(logits, self._params, self._core.length(0))

    def _say(self, token: int) -> tuple[str, str]:
        """(reasoning, text) that the token settles."""
        reasoning, text = self._text.push(token)
        return reasoning, self._edges.push(self._stops.push(text))

    def _rest(self) -> tuple[str, str]:
        """(reasoning, text) that was held back, at the end of the reply."""
        reasoning, text = self._text.finish()
        return reasoning, self._edges.push(self._stops.push(text) + self._stops.finish())

    def _timings(self) -> Timings:
        return Timings(len(self.prompt_ids), self._prompt_s, self._generated, self._generated_s)
