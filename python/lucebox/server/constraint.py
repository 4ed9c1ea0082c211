"""A grammar at work on one choice: masks for each row of a step, rolled back where a draft is not accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher

Masks = npt.NDArray[np.uint32]


def words(vocab: int) -> int:
    return (vocab + 31) // 32


def only(id: int, vocab: int) -> npt.NDArray[np.uint32]:
    """A mask that allows one token."""
    mask = np.zeros(words(vocab), np.uint32)
    mask[id // 32] = np.uint32(1) << np.uint32(id % 32)
    return mask


def everything(vocab: int) -> npt.NDArray[np.uint32]:
    return np.full(words(vocab), 0xFFFFFFFF, np.uint32)


class Constraint:
    """matcher: at its start. begin_id: the token behind which it applies (the end of the reasoning); None = at once.

    In front of it the reply may say anything, but not end.
    """

    def __init__(
        self, matcher: LLMatcher, vocab: int, end_ids: frozenset[int], *, begin_id: int | None, param: str
    ) -> None:
        self.param = param
        """The request's field that asked for it."""
        self._matcher = matcher
        self._vocab = vocab
        self._end_ids = end_ids
        self._begin_id = begin_id
        self._active = begin_id is None
        self._open = everything(vocab)
        for id in end_ids:
            self._open &= ~only(id, vocab)

    def masks(self, drafted: Sequence[int]) -> tuple[list[int], Masks]:
        """The part of the draft that the grammar allows, and [1 + its length, words] masks; the state stays."""
        usable: list[int] = []
        rows = [self._row(self._active)]
        active, consumed = self._active, 0
        for id in drafted:
            if id in self._end_ids:
                break
            if active and self._matcher.try_consume_tokens([id]) != 1:
                break
            consumed += active
            active = active or id == self._begin_id
            usable.append(id)
            rows.append(self._row(active))
        if consumed:
            self._matcher.rollback(consumed)
        return usable, np.stack(rows)

    def advance(self, ids: Sequence[int]) -> None:
        """Takes what was emitted."""
        for id in ids:
            if self._active:
                if id not in self._end_ids:
                    self._matcher.consume_token(id)
            elif id == self._begin_id:
                self._active = True

    @property
    def error(self) -> str:
        """Not empty: the grammar ran into a limit and cannot go on."""
        return self._matcher.get_error() if self._matcher.is_error() else ""

    def _row(self, active: bool) -> npt.NDArray[np.uint32]:
        if not active:
            return self._open
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        return bits[: words(self._vocab)]
