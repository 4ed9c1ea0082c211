"""What the HTTP side hands to the engine's thread, and what comes back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lucebox.server.api_errors import ApiError
from lucebox.server.constraint import Constraint
from lucebox.server.deltas import Delta, Output

State = Literal["waiting", "prompt", "reply", "done"]


@dataclass(slots=True)
class Event:
    """kind: "start" (a slot was given), "progress" (a chunk of the prompt ran), "deltas", "error" (of the whole request)."""

    kind: Literal["start", "progress", "deltas", "error"]
    index: int = 0
    deltas: Sequence[Delta] = ()
    timings: dict[str, Any] | None = None
    finished: bool = False
    progress: dict[str, Any] | None = None
    error: ApiError | None = None


class Sink:
    """Events of one request, in the event loop. `put` is called there, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.gone = False
        """The client has left; nobody reads any more."""

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def leave(self) -> None:
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, seconds: float | None = None) -> Event | None:
        """The next event; None when the client has left or the time is over."""
        if not self._events and not self.gone:
            self._waiter = self.loop.create_future()
            timer = None if seconds is None else self.loop.call_later(seconds, self._wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        return self._events.popleft() if self._events and not self.gone else None


@dataclass(eq=False)
class Job:
    """One HTTP request: its choices share an end."""

    id: str
    client: str
    sink: Sink
    deadline: float | None = None
    """time.monotonic() at which it must be over."""
    choices: list[Choice] = field(default_factory=list)
    cancelled: bool = False
    failed: bool = False

    @property
    def done(self) -> bool:
        return all(choice.state == "done" for choice in self.choices)


@dataclass(eq=False)
class Choice:
    """One sequence of the engine."""

    job: Job
    index: int
    prompt: list[int]
    params: dict[str, Any]
    """Keyword arguments of SequenceParams."""
    output: Output
    prefill_only: bool = False
    wanted_slot: int | None = None
    reasoning_budget: int | None = None
    """Tokens of reasoning; None = no limit."""
    close_ids: Sequence[int] = ()
    """Tokens that end the reasoning."""
    constraint: Constraint | None = None
    predict_ms: int = 0
    """Time for the tokens after the first, 0 = no limit."""
    timings_per_token: bool = False
    report_progress: bool = False
    draft_limit: int | None = None
    """Tokens drafted a step at most; None = as many as the engine likes."""

    state: State = "waiting"
    slot: int = -1
    fed: int = 0
    """Tokens of the prompt that ran."""
    forced: list[int] = field(default_factory=list)
    """Tokens that come next, whatever the model says."""
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    queued_at: float = field(default_factory=time.monotonic)
    started_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0

    def timings(self) -> dict[str, Any]:
        """As llama.cpp reports them."""
        prompt_ms = max(self.first_at - self.started_at, 0.0) * 1e3 if self.first_at else 0.0
        predicted = self.output.generated
        predicted_ms = max(self.last_at - self.first_at, 0.0) * 1e3
        timings = {
            "cache_n": 0,
            "prompt_n": self.fed,
            "prompt_ms": round(prompt_ms, 3),
            "prompt_per_token_ms": _ratio(prompt_ms, self.fed),
            "prompt_per_second": _ratio(self.fed * 1e3, prompt_ms),
            "predicted_n": predicted,
            "predicted_ms": round(predicted_ms, 3),
            "predicted_per_token_ms": _ratio(predicted_ms, predicted),
            "predicted_per_second": _ratio(predicted * 1e3, predicted_ms),
        }
        if self.drafted:
            timings.update(draft_n=self.drafted, draft_n_accepted=self.accepted)
        return timings


def _ratio(value: float, count: float) -> float:
    return round(value / count, 3) if count else 0.0
