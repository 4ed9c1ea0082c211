"""A scheduler over a scripted engine, for tests that say what the model says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import scripted_core
from lucebox.server import batch, scheduler
from lucebox.server.deltas import Output, OutputOptions
from lucebox.server.jobs import Choice, Event, Job, Sink
from lucebox.server.metrics import Metrics
from lucebox.server.scheduler import Scheduler
from lucebox.tokenizer import Tokenizer
from scripted_core import ScriptedCore


def use_scripted_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled types cannot be read; these can."""
    monkeypatch.setattr(batch, "StepWork", scripted_core.Work)
    monkeypatch.setattr(scheduler, "SequenceParams", scripted_core.params)


class Bench:
    """A scheduler with its engine, and jobs for it. Used inside one event loop."""

    def __init__(self, core: ScriptedCore, tokenizer: Tokenizer, *, queue: int = 64, cores: Any = None) -> None:
        self.core, self.tokenizer = core, tokenizer
        self.metrics = Metrics("test")
        self.died = threading.Event()
        spare = iter(cores or [])
        first = [core]
        self.scheduler = Scheduler(
            lambda: first.pop() if first else next(spare),
            vocab=len(tokenizer),
            queue_limit=queue,
            metrics=self.metrics,
            on_dead=self.died.set,
        )

    def job(self, prompt: list[int], *, limit: int = 4, client: str = "", n: int = 1, **changes: Any) -> Job:
        job = Job(f"job-{prompt[0]}", client, Sink(asyncio.get_running_loop()))
        for i in range(n):
            output = Output(self.tokenizer, OutputOptions(limit=limit, end_ids=frozenset(changes.get("ends", ()))))
            options = {key: value for key, value in changes.items() if key != "ends"}
            job.choices.append(Choice(job, i, prompt, {"end_ids": changes.get("ends", ())}, output, **options))
        return job

    @contextmanager
    def running(self) -> Iterator[None]:
        self.scheduler.start()
        try:
            yield
        finally:
            self.scheduler.stop()
            self.scheduler.join(10)


async def read(job: Job) -> list[Event]:
    """All events up to the job's end."""
    events, left = [], len(job.choices)
    while left:
        event = await asyncio.wait_for(job.sink.get(), 20)
        assert event is not None
        events.append(event)
        if event.kind == "error":
            return events
        left -= event.finished
    return events


def ids(events: list[Event], index: int = 0) -> list[int]:
    return [token.id for e in events if e.index == index for delta in e.deltas for token in delta.tokens]


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run(tokenizer: Tokenizer) -> None:
        asyncio.run(asyncio.wait_for(test(tokenizer), 60))  # type: ignore[arg-type]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
