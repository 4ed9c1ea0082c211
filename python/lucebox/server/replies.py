"""From a job to its answer: whole, or as server-sent events; and back to the scheduler when the client has left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from lucebox.server.answers import Answer
from lucebox.server.jobs import Job
from lucebox.server.scheduler import Scheduler
from lucebox.server.wire import JSONAnswer, Receive, Scope, Send, dumps, error_answer

log = logging.getLogger("lucebox.access")

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
PING = b": ping\n\n"


class Reply:
    """An ASGI answer. The job has its place in the queue already; ping: seconds, None = never."""

    def __init__(self, scheduler: Scheduler, job: Job, answer: Answer, *, stream: bool, ping: float | None) -> None:
        self._scheduler = scheduler
        self._job = job
        self._answer = answer
        self._stream = stream
        self._ping = ping
        self._started = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 499
        try:
            async with self._watch(receive):
                if self._stream:
                    scope.setdefault("state", {})["events"] = True  # the protocol may send comments
                    status = await self._send_stream(send)
                else:
                    status = await self._send_whole(scope, receive, send)
        finally:
            if not self._job.done:
                self._scheduler.cancel(self._job)
            self._log(status)

    @asynccontextmanager
    async def _watch(self, receive: Receive) -> AsyncIterator[None]:
        """Tells the sink when the client leaves."""

        async def wait() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._job.sink.leave()

        task = asyncio.ensure_future(wait())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _send_whole(self, scope: Scope, receive: Receive, send: Send) -> int:
        left = len(self._job.choices)
        while left:
            event = await self._job.sink.get()
            if event is None:
                return 499
            if event.error is not None:
                await error_answer(event.error)(scope, receive, send)
                return event.error.status
            self._answer.add(event)
            left -= event.finished
        await JSONAnswer(self._answer.whole())(scope, receive, send)
        return 200

    async def _send_stream(self, send: Send) -> int:
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        await _body(send, b"")
        left = len(self._job.choices)
        while left:
            event = await self._job.sink.get(self._ping)
            if event is None:
                if self._job.sink.gone:
                    return 499
                await _body(send, PING)
            elif event.error is not None:
                await _body(send, b"data: " + dumps(event.error.body) + b"\n\ndata: [DONE]\n\n", more=False)
                return event.error.status
            else:
                left -= event.finished
                chunk = self._answer.chunks(event)
                if left == 0:
                    chunk += self._answer.end()
                await _body(send, chunk, more=left > 0)
        return 200

    def _log(self, status: int) -> None:
        choices = self._job.choices
        log.info(
            "request",
            extra={
                "facts": {
                    "id": self._answer.id,
                    "status": status,
                    "stream": self._stream,
                    "prompt_tokens": len(choices[0].prompt),
                    "completion_tokens": sum(choice.output.generated for choice in choices),
                    "finish_reason": choices[0].output.finish_reason,
                    "drafted": sum(choice.drafted for choice in choices),
                    "accepted": sum(choice.accepted for choice in choices),
                    "queue_ms": _ms(choices[0].queued_at, choices[0].started_at),
                    "ttft_ms": _ms(choices[0].queued_at, choices[0].first_at),
                    "total_ms": _ms(self._started, time.monotonic()),
                }
            },
        )


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _ms(start: float, end: float) -> float | None:
    return round((end - start) * 1e3, 1) if end else None
