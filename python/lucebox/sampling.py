"""The options of one request, checked where they are made."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucebox import _core
from lucebox.errors import RequestError

_KEYS = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_PREFIX = "general.sampling."


@dataclass(frozen=True)
class RequestOptions:
    """Raises RequestError for a value out of range. The defaults are greedy decoding to the end of the context."""

    temperature: float = 0.0
    """0 = greedy."""
    top_k: int = 0
    """Candidates that are kept, 0 = all."""
    top_p: float = 1.0
    """Probability that is kept, 1 = all."""
    min_p: float = 0.0
    """Share of the best candidate's probability that a candidate needs, 0 = none."""
    repetition_penalty: float = 1.0
    """Divides (a positive logit) or multiplies (another) what has occurred in prompt or reply; 1 = off."""
    presence_penalty: float = 0.0
    """Taken from the logits of what has occurred in the reply; 0 = off."""
    frequency_penalty: float = 0.0
    """Likewise, for each time it has occurred; 0 = off."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids; -inf forbids one."""
    speculative: str = "match"
    """"match": drafts never change the text; "reject": never its law; "off": no drafts (docs/speculation.md)."""
    lookup: bool = True
    """Draft from the text so far where it repeats itself."""
    adaptive: bool = True
    """Verify as many drafts as pay, and pause a drafter that does not (docs/speculation.md)."""
    draft_width: int = 0
    """Rows of a drafted block, the anchor included; 0 = the engine's."""
    selector: str = "walk"
    """How a path through the drafter's candidates is chosen: "walk", "best-first" or "reach"."""
    seed: int | None = None
    """0 to 2**64 - 1; None = one drawn at random for the request."""
    max_tokens: int | None = None
    """None = to the end of the context."""
    stop: tuple[str, ...] = ()
    """Texts in front of which the reply ends; not looked for in the reasoning."""
    ignore_eos: bool = False
    """Go on after an end token."""

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0.0, math.inf)
        _number("top_p", self.top_p, 0.0, 1.0)
        _number("min_p", self.min_p, 0.0, 1.0)
        if self.top_p == 0:
            raise RequestError("top_p: 0 keeps no candidate; use a value above 0, up to 1")
        _integer("top_k", self.top_k, (1 << 31) - 1)
        if self.seed is not None:
            _integer("seed", self.seed, (1 << 64) - 1)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, (1 << 31) - 1)
        _integer("draft_width", self.draft_width, 64)
        _choice("speculative", self.speculative, ("match", "reject", "off"))
        _choice("selector", self.selector, ("walk", "best-first", "reach"))
        for name, flag in (("lookup", self.lookup), ("adaptive", self.adaptive), ("ignore_eos", self.ignore_eos)):
            if not isinstance(flag, bool):
                raise RequestError(f"{name}: {flag!r}; True or False was expected")
        if self.speculative == "off" and (self.draft_width or self.selector != "walk"):
            raise RequestError('speculative: "off" drafts nothing; leave draft_width and selector out')
        _number("repetition_penalty", self.repetition_penalty, 0.0, 10.0)
        _number("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _number("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if not isinstance(self.logit_bias, Mapping):
            raise RequestError(f"logit_bias: {self.logit_bias!r}; a mapping of token ids to numbers was expected")
        for id, bias in self.logit_bias.items():
            _integer("logit_bias", id, (1 << 31) - 1)
            if bias != -math.inf:
                _number("logit_bias", bias, -1000.0, 1000.0)
        for stop in self.stop:
            if not isinstance(stop, str) or not stop:
                raise RequestError(f"stop: {stop!r}; a text of at least one character was expected")

    def params(self, *, end_ids: Collection[int], seed: int) -> _core.SequenceParams:
        """As the engine takes them; values out of range are refused there."""
        return _core.SequenceParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=seed,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=dict(self.logit_bias),
            end_ids=[] if self.ignore_eos else sorted(end_ids),
            speculative=self.speculative,
            lookup=self.lookup,
            adaptive=self.adaptive,
            draft_width=self.draft_width,
            selector=self.selector,
        )


def defaults(metadata: Mapping[str, Any], *, thinking: bool) -> dict[str, Any]:
    """The sampling options for chats: the file's general.sampling.* over those of the model family's cards."""
    values: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
    if not thinking:
        values.update(temperature=0.7, top_p=0.8)
    for name, key in _KEYS.items():
        value = metadata.get(_PREFIX + key)
        if isinstance(value, int | float):
            # The file holds f32; seven digits are what its writer meant.
            values[name] = int(value) if name == "top_k" else float(f"{value:.7g}")
    return values


def unsupported(metadata: Mapping[str, Any]) -> list[str]:
    """Keys of the file's sampling defaults that this engine has no option for."""
    known = {_PREFIX + key for key in _KEYS.values()}
    return [key for key in metadata if key.startswith(_PREFIX) and key not in known]


def _number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or math.isinf(value):
        limit = f"{low:g} to {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise RequestError(f"{name}: {value!r}; a number was expected, {limit}")


def _choice(name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise RequestError(f"{name}: {value!r}; it may be {', '.join(known[:-1])} or {known[-1]}")


def _integer(name: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise RequestError(f"{name}: {value!r}; an integer was expected, 0 to {high}")
