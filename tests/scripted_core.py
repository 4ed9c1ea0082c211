"""An engine that says what a script tells it, in the bursts that it tells, for tests of what is above the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from lucebox.errors import ContextFullError, RequestError

PAGE = 256


@dataclass
class Work:
    """In place of _core.StepWork, which cannot be read."""

    slot: int
    ids: Sequence[int] = ()
    emit: bool = False
    limit: int = 1
    draft: Sequence[int] | None = None
    masks: Any = None


@dataclass
class Result:
    slot: int
    token_ids: list[int] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    logprobs: list[Any] = field(default_factory=list)
    error: str = ""


@dataclass
class Params:
    """In place of _core.SequenceParams."""

    values: dict[str, Any]


def params(**values: Any) -> Params:
    return Params(values)


@dataclass
class Sequence_:
    prompt: list[int]
    params: dict[str, Any]
    script: list[int]
    length: int = 0
    emitted: int = 0


class ScriptedCore:
    """script: prompt -> the tokens that are said. burst: (step, slot) -> tokens that a decode gives at most.

    gate: where given, each step waits for one permit; `entered` is released when a step begins.
    """

    def __init__(
        self,
        script: Callable[[list[int]], list[int]],
        *,
        slots: int = 2,
        max_ctx: int = 512,
        max_rows: int = 64,
        burst: Callable[[int, int], int] = lambda step, slot: 1,
        gate: threading.Semaphore | None = None,
    ) -> None:
        self.slots, self.max_ctx, self.max_rows = slots, max_ctx, max_rows
        self.steps: list[list[Work]] = []
        self.begun: list[Params] = []
        self.fail: list[Exception] = []
        self.entered = threading.Semaphore(0)
        self._script, self._burst, self._gate = script, burst, gate
        self._running: dict[int, Sequence_] = {}

    @property
    def free_pages(self) -> int:
        used = sum(-(-sequence.length // PAGE) for sequence in self._running.values())
        return self.slots * -(-self.max_ctx // PAGE) - used

    def begin(self, slot: int, params: Params, prompt_ids: Sequence[int]) -> None:
        self.begun.append(params)
        script = self._script(list(prompt_ids))
        self._running[slot] = Sequence_(list(prompt_ids), params.values, script)

    def reset(self, slot: int) -> None:
        self._running.pop(slot, None)

    def length(self, slot: int) -> int:
        return self._running[slot].length if slot in self._running else 0

    def rows_needed(self, slot: int, limit: int) -> int:
        return min(limit, 16)

    def propose(self, slots_and_limits: Sequence[tuple[int, int]]) -> list[Any]:
        return [
            _Proposal(self._running[slot].script[self._running[slot].emitted :][: max(limit - 1, 0)])
            for slot, limit in slots_and_limits
        ]

    def step(self, work: Sequence[Work]) -> list[Result]:
        warm = [list(one.ids) for one in work] == [[0]] and not self.steps
        if not warm:
            self.entered.release()
            if self._gate is not None:
                self._gate.acquire()
            self.steps.append(list(work))
        if self.fail and not warm:
            raise self.fail.pop(0)
        rows = sum(len(one.ids) or (1 if one.masks is None else len(one.masks)) for one in work)
        if rows > self.max_rows:
            raise RequestError(f"{rows} rows; at most {self.max_rows}")
        return [self._one(one) for one in work]

    def _one(self, work: Work) -> Result:
        sequence = self._running[work.slot]
        if work.ids:
            expected = sequence.prompt[sequence.length : sequence.length + len(work.ids)]
            if list(work.ids) != expected:
                raise RequestError("tokens that do not go on with the prompt")
            sequence.length += len(work.ids)
            if work.emit != (sequence.length == len(sequence.prompt)):
                raise RequestError("emit belongs to the last chunk")
            return self._say(work, sequence, 1) if work.emit else Result(work.slot)
        if sequence.length + 1 > self.max_ctx:
            raise ContextFullError("full", asked=1, length=sequence.length, max_ctx=self.max_ctx)
        room = self.max_ctx - sequence.length
        count = min(work.limit, room, self._burst(len(self.steps), work.slot) if work.draft is None else 99)
        result = self._say(work, sequence, count)
        sequence.length += len(result.token_ids)
        return result

    def _say(self, work: Work, sequence: Sequence_, count: int) -> Result:
        result = Result(work.slot)
        draft = list(work.draft or ())
        for row in range(len(draft) + 1 if work.draft is not None else count):
            id = self._next(sequence, None if work.masks is None else work.masks[row])
            result.token_ids.append(id)
            same = row < len(draft) and id == draft[row]
            result.accepted += same
            if sequence.params.get("logprobs", -1) >= 0:
                result.logprobs.append((-0.25, [(id, -0.25)]))
            if id in sequence.params.get("end_ids", ()):
                break
            if work.draft is not None and not same or len(result.token_ids) == work.limit:
                break
        result.drafted = len(draft) if work.draft is not None else count - 1
        if work.draft is None:
            result.accepted = len(result.token_ids) - 1
        return result

    def _next(self, sequence: Sequence_, mask: Any) -> int:
        """The script's token if the mask allows it, else the smallest id that it does; forced ones leave the script."""
        id = sequence.script[sequence.emitted % len(sequence.script)]
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")) if mask is not None else None
        if allowed is not None and id not in allowed:
            return int(allowed[0])
        sequence.emitted += 1
        return id


@dataclass
class _Proposal:
    ids: list[int]
