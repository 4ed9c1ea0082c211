"""The work of one step: a decode of every running choice, and chunks of prompts in the rows that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lucebox._core import StepWork
from lucebox.server import constraint
from lucebox.server.jobs import Choice

if TYPE_CHECKING:
    from lucebox.server.scheduler import Core

LEAST_CHUNK = 16
"""Rows that prompts get in every step, however many replies run."""


class Batch:
    """choices: those with a slot. turn: which of several prompts gets the rows first."""

    def __init__(self, core: Core, choices: Sequence[Choice], vocab: int, *, turn: int) -> None:
        self._core = core
        self._vocab = vocab
        self.choices: list[Choice] = []
        self.works: list[StepWork] = []
        self._fed: list[tuple[Choice, int]] = []
        self._forced_left: list[tuple[Choice, list[int]]] = []
        replies = [choice for choice in choices if choice.state == "reply"]
        prompts = [choice for choice in choices if choice.state == "prompt"]
        left = sum(len(choice.prompt) - choice.fed for choice in prompts)
        rows = core.max_rows - self._decode(replies, core.max_rows - min(left, LEAST_CHUNK))
        first = turn % len(prompts) if prompts else 0
        for choice in prompts[first:] + prompts[:first]:
            rows -= self._feed(choice, rows)

    def commit(self) -> None:
        """Notes in the choices what the step did; a step that was refused leaves them as they were."""
        for choice, count in self._fed:
            choice.fed += count
        for choice, ids in self._forced_left:
            choice.forced = ids

    def _decode(self, replies: Sequence[Choice], rows: int) -> int:
        """Rows that the decodes take, at most `rows`; each has at least one."""
        taken = 0
        constrained: list[tuple[Choice, int]] = []
        for i, choice in enumerate(replies):
            self._close_reasoning(choice)
            share = max(rows - taken - (len(replies) - i - 1), 1)
            limit = min(self._limit(choice), share)
            if choice.forced:
                taken += self._force(choice, limit)
                continue
            taken += min(self._core.rows_needed(choice.slot, limit), limit)
            if choice.constraint is not None:
                constrained.append((choice, limit))
            else:
                self._add(choice, StepWork(choice.slot, limit=limit))
        if constrained:
            self._constrain(constrained)
        return taken

    def _add(self, choice: Choice, work: StepWork) -> None:
        self.choices.append(choice)
        self.works.append(work)

    def _limit(self, choice: Choice) -> int:
        """Tokens that the choice may get from this step."""
        limit = choice.output.left
        if choice.draft_limit is not None:
            limit = min(limit, choice.draft_limit + 1)
        budget = choice.reasoning_budget
        if budget is not None and choice.output.reasoning:
            limit = min(limit, budget - choice.output.reasoning_tokens)
        return limit

    def _close_reasoning(self, choice: Choice) -> None:
        """At the budget's end the tokens that close the reasoning are forced."""
        if choice.reasoning_budget is None or not choice.output.reasoning:
            return
        if choice.output.reasoning_tokens >= choice.reasoning_budget:
            choice.forced = list(choice.close_ids)
            choice.reasoning_budget = None

    def _force(self, choice: Choice, limit: int) -> int:
        """Forced tokens are a draft that nothing else may replace. Returns the rows."""
        limit = min(limit, len(choice.forced) + 1)
        draft = choice.forced[: limit - 1]
        masks = [*self._forced(choice.forced[:limit]), *self._behind(choice, draft, limit)]
        self._forced_left.append((choice, choice.forced[limit:]))
        self._add(choice, StepWork(choice.slot, limit=limit, draft=draft, masks=np.stack(masks)))
        return len(masks)

    def _constrain(self, constrained: Sequence[tuple[Choice, int]]) -> None:
        """A grammar looks at the draft row by row, so it must be known before."""
        proposals = self._core.propose([(choice.slot, limit) for choice, limit in constrained])
        for (choice, limit), proposal in zip(constrained, proposals, strict=True):
            assert choice.constraint is not None
            draft, masks = choice.constraint.masks(proposal.ids)
            self._add(choice, StepWork(choice.slot, limit=limit, draft=draft, masks=masks))

    def _forced(self, ids: Sequence[int]) -> list[constraint.Masks]:
        return [constraint.only(id, self._vocab) for id in ids]

    def _behind(self, choice: Choice, draft: Sequence[int], limit: int) -> list[constraint.Masks]:
        """The row behind the forced tokens, where the limit has room for one."""
        if limit <= len(choice.forced):
            return []
        if choice.constraint is None:
            return [constraint.everything(self._vocab)]
        return [choice.constraint.masks(draft)[1][-1]]

    def _feed(self, choice: Choice, rows: int) -> int:
        """The next chunk of a prompt; rows that it takes."""
        count = min(rows, len(choice.prompt) - choice.fed)
        if count <= 0:
            return 0
        chunk = choice.prompt[choice.fed : choice.fed + count]
        self._fed.append((choice, count))
        last = choice.fed + count == len(choice.prompt)
        masks = self._first_mask(choice) if last else None
        self._add(choice, StepWork(choice.slot, chunk, emit=last, masks=masks))
        return count

    def _first_mask(self, choice: Choice) -> constraint.Masks | None:
        """Of the token behind the prompt."""
        self._close_reasoning(choice)
        if choice.forced:
            self._forced_left.append((choice, choice.forced[1:]))
            return constraint.only(choice.forced[0], self._vocab)[None]
        return None if choice.constraint is None else choice.constraint.masks([])[1]
