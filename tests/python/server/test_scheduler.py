"""The engine's thread over a scripted engine: batches, chunks of prompts, fairness, cancelling, faults, the end."""

from __future__ import annotations

import asyncio
import threading

import pytest
from lucebox.errors import DeviceError, RequestError
from lucebox.server.api_errors import ApiError
from lucebox.server.deltas import Output, OutputOptions
from lucebox.tokenizer import Tokenizer
from scheduler_bench import Bench, ids, in_loop, read, use_scripted_types
from scripted_core import ScriptedCore

WORD = 300
"""A token whose text does not matter."""


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    use_scripted_types(monkeypatch)


def counting(prompt: list[int]) -> list[int]:
    """A script that says which prompt it answers."""
    return [1000 + prompt[0] + i for i in range(400)]


@in_loop
async def test_each_answer_is_its_own(tokenizer: Tokenizer) -> None:
    """Eight jobs on four slots, in bursts: none gets a token of another."""
    core = ScriptedCore(counting, slots=4, burst=lambda step, slot: 1 + (step * 7 + slot) % 5)
    bench = Bench(core, tokenizer)
    with bench.running():
        jobs = [bench.job([i * 10] + [WORD] * i, limit=20) for i in range(8)]
        for job in jobs:
            bench.scheduler.submit(job)
        for i, job in enumerate(jobs):
            events = await read(job)
            assert ids(events) == [1000 + i * 10 + k for k in range(20)]
            assert events[0].kind == "start" and job.choices[0].output.finish_reason == "length"
    assert core.free_pages == core.slots * 2


@in_loop
async def test_a_long_prompt_holds_a_reply_up_by_one_chunk(tokenizer: Tokenizer) -> None:
    gate = threading.Semaphore(0)
    core = ScriptedCore(counting, slots=2, max_rows=32, gate=gate)
    bench = Bench(core, tokenizer)
    with bench.running():
        first = bench.job([1], limit=30)
        bench.scheduler.submit(first)
        assert await asyncio.to_thread(core.entered.acquire, timeout=20)
        second = bench.job([2] + [WORD] * 199, limit=2)
        bench.scheduler.submit(second)
        gate.release(100)
        await read(first)
        await read(second)
    mixed = [step for step in core.steps if any(work.slot == 1 and work.ids for work in step)]
    # Every step with a chunk of the second prompt has a decode of the first, and the chunk takes the rest of the rows.
    assert len(mixed) == 13
    assert all(any(work.slot == 0 and not work.ids for work in step) for step in mixed)
    assert sum(len(work.ids) for step in mixed for work in step if work.slot == 1) == 200


@in_loop
async def test_prompts_take_turns(tokenizer: Tokenizer) -> None:
    """A short prompt does not wait for the end of a long one in front of it."""
    gate = threading.Semaphore(0)
    core = ScriptedCore(counting, slots=2, max_rows=16, gate=gate)
    bench = Bench(core, tokenizer)
    with bench.running():
        long, short = bench.job([1] + [WORD] * 300, limit=1), bench.job([2] + [WORD] * 10, limit=1)
        bench.scheduler.submit(long)
        assert await asyncio.to_thread(core.entered.acquire, timeout=20)
        bench.scheduler.submit(short)
        gate.release(100)
        await read(short)
        await read(long)
    steps = [i for i, step in enumerate(core.steps) for work in step if work.slot == 1]
    assert steps[-1] < 4 and len(core.steps) > 19


@in_loop
async def test_clients_take_turns(tokenizer: Tokenizer) -> None:
    gate = threading.Semaphore(0)
    core = ScriptedCore(counting, slots=1, gate=gate)
    bench = Bench(core, tokenizer)
    with bench.running():
        jobs = [bench.job([i], limit=1, client="a") for i in range(1, 5)] + [bench.job([9], limit=1, client="b")]
        for job in jobs:
            bench.scheduler.submit(job)
        gate.release(100)
        for job in jobs:
            await read(job)
    order = [step[0].ids[0] for step in core.steps]
    assert order == [1, 9, 2, 3, 4] or order == [1, 2, 9, 3, 4]


@in_loop
async def test_a_full_queue(tokenizer: Tokenizer) -> None:
    gate = threading.Semaphore(0)
    bench = Bench(ScriptedCore(counting, slots=1, gate=gate), tokenizer, queue=1)
    with bench.running():
        jobs = [bench.job([i], limit=2) for i in range(3)]
        bench.scheduler.submit(jobs[0])
        assert await asyncio.to_thread(bench.core.entered.acquire, timeout=20)
        bench.scheduler.submit(jobs[1])
        with pytest.raises(ApiError) as error:
            bench.scheduler.submit(jobs[2])
        assert error.value.status == 429 and error.value.headers["retry-after"] == "1"
        gate.release(100)
        await read(jobs[0])
        await read(jobs[1])
        bench.scheduler.submit(jobs[2])
        await read(jobs[2])


@in_loop
async def test_cancelling_frees_the_slot_before_the_next_step(tokenizer: Tokenizer) -> None:
    """Running, in its prompt, and queued (C7, C8, C9): only the one that is meant ends."""
    gate = threading.Semaphore(0)
    core = ScriptedCore(counting, slots=2, max_rows=16, gate=gate)
    bench = Bench(core, tokenizer)
    with bench.running():
        active, prompt = bench.job([1], limit=100), bench.job([2] + [WORD] * 300, limit=1)
        queued, kept = bench.job([3], limit=3), bench.job([4], limit=3)
        for job in (active, prompt, queued, kept):
            bench.scheduler.submit(job)
        for _ in range(4):
            assert await asyncio.to_thread(core.entered.acquire, timeout=20)
            gate.release()
        assert await asyncio.to_thread(core.entered.acquire, timeout=20)
        before = len(core.steps)
        bench.scheduler.cancel(queued)
        bench.scheduler.cancel(prompt)
        gate.release(1000)
        assert ids(await read(kept)) == [1004, 1005, 1006]
        assert ids(await read(active)) == [1001 + k for k in range(100)]
        # The prompt ran in the step that was under way, and in none behind it; the queued one in none at all.
        assert not any(len(work.ids) > 1 for step in core.steps[before + 1 :] for work in step)
        assert not any(list(work.ids) == [3] for step in core.steps for work in step)
        assert bench.scheduler.idle
    assert core.free_pages == 4


@in_loop
async def test_a_fault_is_told_and_the_engine_comes_back(tokenizer: Tokenizer) -> None:
    core, second = ScriptedCore(counting, slots=1), ScriptedCore(counting, slots=1)
    core.fail = [DeviceError("broken")]
    bench = Bench(core, tokenizer, cores=[second])
    with bench.running():
        jobs = [bench.job([1]), bench.job([2])]
        for job in jobs:
            bench.scheduler.submit(job)
        (error,) = [event.error for event in await read(jobs[0]) if event.kind == "error"]
        assert error is not None and error.status == 503 and "broken" not in error.message
        assert ids(await read(jobs[1])) == [1002, 1003, 1004, 1005]
    assert bench.metrics.value("lucebox_engine_faults_total") == 1 and second.steps


@in_loop
async def test_an_engine_that_stays_broken_is_dead(tokenizer: Tokenizer) -> None:
    cores = [ScriptedCore(counting, slots=1) for _ in range(6)]
    for core in cores:
        core.fail = [DeviceError("broken")]
    bench = Bench(cores[0], tokenizer, cores=cores[1:])
    with bench.running():
        jobs = [bench.job([i]) for i in range(6)]
        for job in jobs:
            bench.scheduler.submit(job)
        for job in jobs:
            events = await read(job)
            assert events[-1].error is not None and events[-1].error.status == 503
        assert await asyncio.to_thread(bench.died.wait, 20)
        assert bench.scheduler.dead and not bench.scheduler.ready
        with pytest.raises(ApiError) as error:
            bench.scheduler.submit(bench.job([7]))
        assert error.value.status == 503


@in_loop
async def test_a_step_that_is_refused_hits_only_its_cause(tokenizer: Tokenizer) -> None:
    core = ScriptedCore(counting, slots=2)
    bench = Bench(core, tokenizer)
    refused = RequestError("no")
    with bench.running():
        jobs = [bench.job([i], limit=3) for i in (1, 2)]
        core.fail = [refused, refused]
        for job in jobs:
            bench.scheduler.submit(job)
        events = [await read(job) for job in jobs]
    errors = [event.error for one in events for event in one if event.error is not None]
    assert [error.status for error in errors] == [500]
    assert any(ids(one) == [1000 + i, 1001 + i, 1002 + i] for i, one in zip((1, 2), events, strict=True))


@in_loop
async def test_stopping_tells_everyone(tokenizer: Tokenizer) -> None:
    gate = threading.Semaphore(0)
    bench = Bench(ScriptedCore(counting, slots=1, gate=gate), tokenizer)
    with bench.running():
        jobs = [bench.job([1], limit=300), bench.job([2])]
        for job in jobs:
            bench.scheduler.submit(job)
        assert await asyncio.to_thread(bench.core.entered.acquire, timeout=20)
        bench.scheduler.stop()
        gate.release(1000)
        for job in jobs:
            events = await read(job)
            assert events[-1].error is not None and events[-1].error.status == 503


@in_loop
async def test_time_limits(tokenizer: Tokenizer) -> None:
    """A reply that has begun ends where it is; a request that still waits is told."""
    gate = threading.Semaphore(0)
    bench = Bench(ScriptedCore(counting, slots=1, gate=gate), tokenizer)
    with bench.running():
        running, waiting = bench.job([1], limit=300), bench.job([2])
        bench.scheduler.submit(running)
        bench.scheduler.submit(waiting)
        gate.release(3)
        for _ in range(4):
            assert await asyncio.to_thread(bench.core.entered.acquire, timeout=20)
        running.deadline = waiting.deadline = 0.0
        gate.release(1000)
        assert ids(await read(running)) == [1001, 1002, 1003, 1004]
        assert running.choices[0].output.stopped_by == "timeout"
        (event,) = await read(waiting)
        assert event.error is not None and event.error.status == 503 and event.error.code == "timeout"


@in_loop
async def test_a_reasoning_budget_is_kept_to_the_token(tokenizer: Tokenizer) -> None:
    """S16: also in bursts, and with the budget's end inside a block."""
    close = tuple(tokenizer.encode("\n</think>\n\n"))
    for budget in (0, 1, 3, 7):
        for burst in (1, 4, 16):
            core = ScriptedCore(counting, slots=1, burst=lambda step, slot, burst=burst: burst)  # type: ignore[misc]
            bench = Bench(core, tokenizer)
            with bench.running():
                job = bench.job([1], reasoning_budget=budget, close_ids=close)
                made = OutputOptions(limit=budget + len(close) + 3, split_reasoning=True, thinking=True, chat=True)
                job.choices[0].output = Output(tokenizer, made)
                bench.scheduler.submit(job)
                said = ids(await read(job))
            assert said[:budget] == [1001 + k for k in range(budget)]
            assert tuple(said[budget : budget + len(close)]) == close
            assert len(said) == budget + len(close) + 3
            marker = said.index(tokenizer.marker_id("</think>")) + 1
            assert job.choices[0].output.reasoning_tokens == marker


@in_loop
async def test_prefill_only_and_pinned_slots(tokenizer: Tokenizer) -> None:
    core = ScriptedCore(counting, slots=2)
    bench = Bench(core, tokenizer)
    with bench.running():
        job = bench.job([1], limit=1, prefill_only=True, wanted_slot=1)
        bench.scheduler.submit(job)
        events = await read(job)
    output = job.choices[0].output
    assert (ids(events), output.generated, output.finish_reason, job.choices[0].slot) == ([], 0, "length", 1)
