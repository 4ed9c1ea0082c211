"""The engine's thread: one step after another over all running choices.

Every step decodes each running choice and gives the rows that are left to chunks of new prompts, in turn, so that a
long prompt holds a running reply up by one chunk at most. Requests come in through `submit`; what they get back is
put into their sinks in the event loop, one wake-up a step. Without work the thread sleeps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lucebox._core import Proposal, SequenceParams, StepResult, StepWork
from lucebox.errors import Error, RequestError
from lucebox.server import api_errors
from lucebox.server.api_errors import ApiError
from lucebox.server.batch import Batch
from lucebox.server.jobs import Choice, Event, Job, Sink
from lucebox.server.metrics import Metrics
from lucebox.server.queue import FairQueue

log = logging.getLogger("lucebox.server")

MAX_FAULTS = 3
"""Faults in a row, without a finished reply in between, after which the engine counts as broken."""


class Core(Protocol):
    """What the scheduler needs of `_core.Engine`."""

    @property
    def slots(self) -> int: ...
    @property
    def max_ctx(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def free_pages(self) -> int: ...
    def begin(self, slot: int, params: SequenceParams, prompt_ids: Sequence[int]) -> None: ...
    def step(self, work: Sequence[StepWork]) -> Sequence[StepResult]: ...
    def propose(self, slots_and_limits: Sequence[tuple[int, int]]) -> Sequence[Proposal]: ...
    def rows_needed(self, slot: int, limit: int) -> int: ...
    def reset(self, slot: int) -> None: ...
    def length(self, slot: int) -> int: ...


class Scheduler:
    """open_core: loads the engine; called in the thread at the start and after a fault.

    on_dead: called in the thread when the engine cannot be brought back.
    """

    def __init__(
        self,
        open_core: Callable[[], Core],
        *,
        vocab: int,
        queue_limit: int,
        metrics: Metrics,
        on_dead: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_core = open_core
        self._vocab = vocab
        self._queue_limit = queue_limit
        self._metrics = metrics
        self._on_dead = on_dead
        self._changed = threading.Condition()
        self._inbox: list[Job] = []
        self._stopping = False
        self._pending = 0
        self._queue = FairQueue()
        self._running: dict[int, Choice] = {}
        self._jobs: set[Job] = set()
        self._turn = 0
        self._faults = 0
        self._outbox: list[tuple[Sink, Event]] = []
        self._core: Core | None = None
        self._pages = 0
        self.slots = 0
        self.draining = False
        self.dead = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # From the event loop.

    def start(self) -> None:
        self._thread.start()

    @property
    def ready(self) -> bool:
        return self._core is not None and not self.draining and not self.dead

    @property
    def idle(self) -> bool:
        with self._changed:
            return not self._jobs and not self._inbox

    @property
    def waiting(self) -> int:
        """Choices without a slot."""
        return self._pending

    def running(self) -> dict[int, Choice]:
        """slot -> choice, as it was a moment ago."""
        return dict(self._running)

    def submit(self, job: Job) -> None:
        """Raises ApiError when the job cannot even wait."""
        with self._changed:
            if self.dead or self.draining or self._stopping:
                raise api_errors.unavailable(
                    "the server is shutting down" if not self.dead else "the engine has failed"
                )
            waiting = self._pending - max(self.slots - len(self._running), 0)
            if waiting >= self._queue_limit and self._pending:
                raise api_errors.queue_full(waiting)
            self._pending += len(job.choices)
            self._inbox.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """The job ends before the next step; nothing more is sent to it."""
        with self._changed:
            job.cancelled = True
            self._changed.notify()

    def stop(self) -> None:
        """Tells every job that the server ends, and ends the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    # In the thread.

    def _run(self) -> None:
        try:
            self._open()
            while self._turn_around():
                pass
        except Exception:
            self._die()
        self._fail_all(api_errors.unavailable("the engine has failed" if self.dead else "the server is shutting down"))
        self._flush()

    def _turn_around(self) -> bool:
        """Waits for work and does one step of it. False at the end."""
        with self._changed:
            while not (self._inbox or self._jobs or self._stopping):
                self._changed.wait()
            if self._stopping:
                return False
            inbox, self._inbox = self._inbox, []
            self._jobs.update(inbox)
        for job in inbox:
            for choice in job.choices:
                self._queue.push(choice)
        self._end_cancelled()
        self._admit()
        if self._running:
            self._step()
        self._flush()
        self._check_pages()
        return True

    def _check_pages(self) -> None:
        """An idle engine holds no KV page."""
        if self._core is None:
            return
        free = self._core.free_pages
        self._metrics.pages(free, self._pages)
        if not self._running and free != self._pages:
            raise RuntimeError(f"{self._pages - free} KV pages were not given back")

    def _open(self) -> None:
        core = self._open_core()
        self.slots = core.slots
        self._pages = core.free_pages
        self._core = core

    def _die(self) -> None:
        log.exception("the engine cannot be used any more")
        self.dead = True
        self._on_dead()

    def _end_cancelled(self) -> None:
        now = time.monotonic()
        for job in [job for job in self._jobs if job.cancelled or (job.deadline is not None and now > job.deadline)]:
            if not job.cancelled and any(choice.state == "reply" for choice in job.choices):
                self._cut(job)
            elif not job.cancelled:
                self._fail(job, api_errors.unavailable("the time for this request is over", "timeout"))
            else:
                self._drop(job)
                self._metrics.request("cancelled", 499)

    def _cut(self, job: Job) -> None:
        """The time is over: what there is of the reply is its end."""
        for choice in job.choices:
            if choice.state != "done":
                choice.output.cut("timeout")
                self._deliver(choice)

    def _drop(self, job: Job) -> None:
        for choice in job.choices:
            if choice.state == "waiting":
                self._queue.remove(choice)
                self._pending -= 1
            elif choice.state != "done":
                self._release(choice)
            choice.state = "done"
        self._jobs.discard(job)

    def _release(self, choice: Choice) -> None:
        del self._running[choice.slot]
        if self._core is not None:
            self._core.reset(choice.slot)

    def _fail(self, job: Job, error: ApiError) -> None:
        self._drop(job)
        self._metrics.request("error", error.status)
        self._outbox.append((job.sink, Event("error", error=error)))

    def _fail_all(self, error: ApiError) -> None:
        with self._changed:
            inbox, self._inbox = self._inbox, []
            self._jobs.update(inbox)
        for job in inbox:
            for choice in job.choices:
                self._queue.push(choice)
        self._core = None
        for job in list(self._jobs):
            self._fail(job, error)

    def _admit(self) -> None:
        core = self._core
        assert core is not None
        while len(self._running) < core.slots:
            choice = self._queue.pop(lambda c: c.wanted_slot is None or c.wanted_slot not in self._running)
            if choice is None:
                return
            slot = choice.wanted_slot
            if slot is None:
                wanted = {c.wanted_slot for c in self._queue}
                free = [slot for slot in range(core.slots) if slot not in self._running]
                slot = min(free, key=lambda slot: (slot in wanted, slot))
            self._begin(core, choice, slot)

    def _begin(self, core: Core, choice: Choice, slot: int) -> None:
        self._pending -= 1
        choice.state, choice.slot, choice.started_at = "prompt", slot, time.monotonic()
        self._running[slot] = choice
        self._metrics.started(choice)
        try:
            core.begin(slot, SequenceParams(**choice.params), choice.prompt)
        except Error as error:
            self._fail(choice.job, api_errors.of(error))
            return
        self._outbox.append((choice.job.sink, Event("start", choice.index)))

    def _step(self) -> None:
        core = self._core
        assert core is not None
        self._turn += 1
        try:
            batch = Batch(core, list(self._running.values()), self._vocab, turn=self._turn)
            results = core.step(batch.works)
        except RequestError as error:
            self._step_alone(core, error)
            return
        except Exception as error:
            self._fault(error)
            return
        batch.commit()
        self._metrics.step(len(self._running))
        for choice, result in zip(batch.choices, results, strict=True):
            self._take(choice, result)

    def _step_alone(self, core: Core, error: Exception) -> None:
        """A step was refused before any work: each choice by itself shows which one it was."""
        log.error("a step was refused: %s", error)
        for choice in list(self._running.values()):
            if choice.slot not in self._running:
                continue
            try:
                batch = Batch(core, [choice], self._vocab, turn=self._turn)
                (result,) = core.step(batch.works)
            except RequestError as refused:
                log.error("%s: %s", choice.job.id, refused)
                self._fail(choice.job, ApiError(500, "the engine could not run this request"))
            except Exception as fault:
                self._fault(fault)
                return
            else:
                batch.commit()
                self._take(choice, result)

    def _take(self, choice: Choice, result: StepResult) -> None:
        """What a step gave one choice."""
        if choice.state == "done":
            return
        if result.error:
            self._fail(choice.job, api_errors.bad_request(f"the reply cannot go on: {result.error}"))
            return
        if choice.constraint is not None:
            choice.constraint.advance(result.token_ids)
            if choice.constraint.error:  # its masks allow nothing but the end then, which would be a lie
                param = choice.constraint.param
                log.warning("%s: grammar: %s", choice.job.id, choice.constraint.error.partition("\n")[0])
                self._fail(choice.job, api_errors.bad_request(f"{param}: the grammar became too complex", param))
                return
        now = time.monotonic()
        if choice.state == "prompt" and not result.token_ids:
            if choice.report_progress:
                self._outbox.append((choice.job.sink, Event("progress", choice.index, progress=_progress(choice, now))))
            return
        if choice.prefill_only:
            choice.output.cut("max_tokens")
        ids, logprobs, before = result.token_ids, result.logprobs, choice.output.generated
        for i, id in enumerate(ids):
            choice.output.push(id, logprobs[i] if logprobs else None)
        self._count(choice, result, choice.output.generated - before, now)
        if choice.predict_ms and (now - choice.first_at) * 1e3 > choice.predict_ms:
            choice.output.cut("t_max_predict_ms")
        self._deliver(choice)

    def _count(self, choice: Choice, result: StepResult, taken: int, now: float) -> None:
        """taken: tokens of the step that the reply has; those behind its end count as nothing."""
        if choice.state == "prompt":
            choice.state, choice.first_at = "reply", now
            self._metrics.first_token(choice)
        else:
            accepted = min(result.accepted, taken)
            choice.steps += 1
            choice.drafted += result.drafted
            choice.accepted += accepted
            self._metrics.tokens(result.drafted, accepted, taken, now - choice.last_at)
        choice.last_at = now

    def _deliver(self, choice: Choice) -> None:
        finished = choice.output.finish_reason is not None
        deltas = choice.output.take()
        if finished:
            if choice.state == "waiting":
                self._queue.remove(choice)
                self._pending -= 1
            elif choice.state != "done":
                self._release(choice)
                self._faults = 0
            choice.state = "done"
            self._metrics.finished(choice)
            if choice.job.done:
                self._jobs.discard(choice.job)
        if deltas or finished:
            timings = choice.timings() if finished or choice.timings_per_token else None
            self._outbox.append((choice.job.sink, Event("deltas", choice.index, deltas, timings, finished)))

    def _fault(self, error: Exception) -> None:
        """The engine failed in a step: its requests are told, and it is loaded anew."""
        log.error("the engine failed in a step", exc_info=error)
        self._metrics.faults.inc()
        self._faults += 1
        core, self._core = self._core, None
        for job in {choice.job for choice in self._running.values()}:
            self._fail(job, api_errors.unavailable("the engine failed; it is being restarted"))
        self._flush()
        if self._faults > MAX_FAULTS:
            raise error
        del core
        self._open()
        log.warning("the engine is back")

    def _flush(self) -> None:
        """Hands the events of this step to the event loop, with one wake-up a loop."""
        outbox, self._outbox = self._outbox, []
        loops: dict[Any, list[tuple[Sink, Event]]] = {}
        for sink, event in outbox:
            loops.setdefault(sink.loop, []).append((sink, event))
        for loop, events in loops.items():
            try:
                loop.call_soon_threadsafe(_put, events)
            except RuntimeError:  # the loop is closed: the server has ended
                log.debug("%d events have no reader any more", len(events))


def _put(events: Sequence[tuple[Sink, Event]]) -> None:
    for sink, event in events:
        sink.put(event)


def _progress(choice: Choice, now: float) -> dict[str, Any]:
    time_ms = round((now - choice.started_at) * 1e3)
    return {"total": len(choice.prompt), "cache": 0, "processed": choice.fed, "time_ms": time_ms}
