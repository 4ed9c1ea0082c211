"""Speculative decoding in the hands of a script: a sequence, what to draft for it, and what the model says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from lucebox import _core
from lucebox._core import StepWork
from lucebox.errors import ContextFullError, RequestError

MOST_DRAFTED = 31
"""Tokens that one `verify` takes."""


@dataclass(frozen=True)
class Block:
    """Tokens proposed to follow a sequence."""

    ids: tuple[int, ...]
    candidates: npt.NDArray[np.int32]
    """[len(ids), k]: what the drafter chose each id from, best logit first; k is 0 where it was not asked."""
    scores: npt.NDArray[np.float32]
    """[len(ids), k]: of the candidates, behind the id before."""
    confidence: tuple[float, ...]
    """Of each id: its probability among the candidates. Empty where the drafter was not asked."""
    source: str
    """"drafter", "lookup", "drafter+lookup" or "none"."""


@dataclass(frozen=True)
class Verified:
    """What the model says of a block."""

    accepted: int
    """Leading ids of the block that it would have said."""
    token_ids: tuple[int, ...]
    """These, and the token that it says behind them."""
    logits: npt.NDArray[np.float32] | None = None
    """[len(token_ids), vocab] that each was taken from, where asked for."""


class DraftedSequence:
    """One sequence of an engine. `token_ids`: prompt and reply so far, the first token of the reply included."""

    def __init__(
        self, core: _core.Engine, prompt_ids: Sequence[int], params: _core.SequenceParams, release: Callable[[], None]
    ) -> None:
        self.token_ids = list(prompt_ids)
        self.prompt_tokens = len(self.token_ids)
        self._core: _core.Engine | None = core
        self._release = release
        self._turn = threading.Lock()
        core.begin(0, params, self.token_ids)
        rows = core.max_rows
        for start in range(0, len(prompt_ids), rows):
            last = start + rows >= len(prompt_ids)
            result = self._step(StepWork(0, self.token_ids[start : start + rows], emit=last))
        self.token_ids += result.token_ids

    def _open(self) -> _core.Engine:
        if self._core is None:
            raise RequestError("the sequence is closed")
        return self._core

    def _step(self, work: StepWork) -> _core.StepResult:
        (result,) = self._open().step([work])
        if result.error:
            self.close()
            raise RequestError(result.error)
        return result

    def room(self) -> int:
        """Tokens that prompt and reply may still take together."""
        return self._open().max_ctx - len(self.token_ids)

    def close(self) -> None:
        """The engine is free for the next request. Closing twice is no error."""
        if self._core is not None:
            self._core.reset(0)
            self._core = None
            self._release()

    def __enter__(self) -> DraftedSequence:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_core"):
            self.close()


def draft(sequence: DraftedSequence, *, most: int = MOST_DRAFTED) -> Block:
    """At most `most` tokens by the sequence's history and the engine's drafter; nothing of the sequence changes."""
    if not isinstance(most, int) or not 0 <= most <= MOST_DRAFTED:
        raise RequestError(f"most: {most!r}; an integer from 0 to {MOST_DRAFTED} was expected")
    limit = min(most + 1, max(sequence.room(), 1))
    (proposal,) = sequence._open().propose([(0, limit)])
    ids = tuple(proposal.ids)
    candidates, scores = proposal.candidates, proposal.scores
    return Block(ids, candidates, scores, tuple(proposal.confidence), proposal.source)


def verify(
    sequence: DraftedSequence, block: Block | Iterable[int], *, commit: bool = True, logits: bool = False
) -> Verified:
    """Runs a block, of any origin, through the model in one pass and adds what is accepted and one token more.

    The tokens are those of decoding without a draft, whatever the block says. commit: False only looks.
    Raises RequestError (an unknown id, more than 31 ids), ContextFullError.
    """
    if not sequence._turn.acquire(blocking=False):
        raise RequestError("the sequence is being used by another thread")
    try:
        return _verify(sequence, _ids(block), commit, logits)
    finally:
        sequence._turn.release()


def _ids(block: Block | Iterable[int]) -> list[int]:
    try:
        ids = list(block.ids) if isinstance(block, Block) else [index(id) for id in block]
    except TypeError:
        raise RequestError(f"block: {block!r}; a Block or token ids were expected") from None
    for id in ids:
        if not 0 <= id < 1 << 31:
            raise RequestError(f"block: token id {id} is none")
    return ids


def _verify(sequence: DraftedSequence, ids: list[int], commit: bool, logits: bool) -> Verified:
    core, room = sequence._open(), sequence.room()
    if room < 1:
        length = len(sequence.token_ids)
        raise ContextFullError(
            f"the sequence has {length} tokens, and the context holds {core.max_ctx}",
            asked=length + 1,
            length=length,
            max_ctx=core.max_ctx,
        )
    result = sequence._step(StepWork(0, limit=room, draft=ids, look=not commit, logits=logits))
    if commit:
        sequence.token_ids += result.token_ids
    return Verified(result.accepted, tuple(result.token_ids), result.logits)
