"""Messages to token ids through the file's chat template.

Only the template makes control tokens. Texts of a request are shielded while the template runs: each marker in them is
broken by a character that the request does not contain, and that character is taken out before the text is tokenised.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucebox.chatml import CHATML
from lucebox.errors import RequestError
from lucebox.messages import Message, normalize
from lucebox.template import Template
from lucebox.tokenizer import Tokenizer

EFFORTS = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "xhigh",
    "xhigh": "xhigh",
    "max": "xhigh",
}
"""reasoning_effort as clients name it -> as templates do; None is thinking off."""

_RESERVED = (
    "messages",
    "tools",
    "add_generation_prompt",
    "enable_thinking",
    "reasoning_effort",
    "bos_token",
    "eos_token",
)


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    text: str
    """The rendered prompt, for people: markers that a user wrote look like markers here."""
    thinking: bool
    """The reply starts inside the reasoning."""


class Chat:
    """metadata: the GGUF file's. A template that is missing or broken is replaced by ChatML, with a warning."""

    def __init__(self, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tool_template: Template | None = None
        self.fallback_reason: str | None = None
        source = metadata.get("tokenizer.chat_template")
        try:
            self._template = Template(_source(source))
            if "tokenizer.chat_template.tool_use" in metadata:
                self._tool_template = Template(_source(metadata["tokenizer.chat_template.tool_use"]))
        except ValueError as error:
            self.fallback_reason = "the file has no chat template" if source is None else f"its chat template: {error}"
            self._template = Template(CHATML)
            if source is not None:
                self._warn()

    @property
    def source(self) -> str:
        """The template's text."""
        return self._template.source

    def mentions(self, name: str) -> bool:
        """Whether the template knows a variable."""
        return name in self._template.source

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        reasoning_effort: str | None = None,
        template_args: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt for the next assistant turn; a last message of the assistant is continued instead.

        thinking: None leaves it to the template. template_args: further variables (`preserve_thinking`, …).
        Raises RequestError for messages or arguments that the template does not take.
        """
        template = self._tool_template if tools and self._tool_template else self._template
        if self.fallback_reason is not None:
            self._check_fallback()
        values = _arguments(template, thinking, reasoning_effort, template_args)
        turns = normalize(messages, split_reasoning=_splits_reasoning(template.source))
        shield = _Shield(self._tokenizer.markers, [turns, list(tools or []), values])
        values = shield.protect(values)
        continued = turns[-1]["role"] == "assistant" and "tool_calls" not in turns[-1]
        values.update(
            messages=shield.protect(turns),
            tools=shield.protect(list(tools)) if tools else None,
            add_generation_prompt=not continued,
            bos_token=self._marker(self._tokenizer.bos_id),
            eos_token=self._marker(self._tokenizer.eos_id),
            thinks=self._tokenizer.marker_id("<think>") is not None,
        )
        rendered = template.render(values)
        if continued:
            rendered = _reopened(rendered, turns[-1])
        ids: list[int] = []
        for piece, marker in self._tokenizer.cut(rendered):
            ids += self._tokenizer.encode(shield.remove(piece), special=False) if marker is None else [marker]
        if self._tokenizer.add_bos and self._tokenizer.bos_id is not None and ids[:1] != [self._tokenizer.bos_id]:
            ids.insert(0, self._tokenizer.bos_id)
        return Prompt(ids, shield.remove(rendered), rendered.rstrip().endswith("<think>"))

    def _marker(self, id: int | None) -> str:
        return "" if id is None else self._tokenizer.token_text(id)

    def _check_fallback(self) -> None:
        if self._tokenizer.marker_id("<|im_start|>") is None or self._tokenizer.marker_id("<|im_end|>") is None:
            raise RequestError(
                f"{self.fallback_reason}, and its vocabulary has no ChatML tokens: give a text prompt instead"
            )
        self._warn()

    def _warn(self) -> None:
        warnings.warn(f"{self.fallback_reason}; using ChatML instead", stacklevel=4)


def _source(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("missing" if value is None else f"a {type(value).__name__} where a string was expected")
    return value


def _splits_reasoning(source: str) -> bool:
    """Whether the template itself takes reasoning out of an assistant's content (Qwen3.5, 3.6 do, 3.8 does not)."""
    return re.search(r"""split\(\s*['"]</think>['"]""", source) is not None


def _arguments(
    template: Template, thinking: bool | None, effort: str | None, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    values = dict(extra or {})
    for name in _RESERVED:
        if name in values:
            raise RequestError(f"template_args: {name!r} is set by the engine; use the argument of that name")
    if effort is not None:
        if effort not in EFFORTS:
            raise RequestError(f"reasoning_effort: {effort!r}; accepted are {', '.join(EFFORTS)}")
        level = EFFORTS[effort]
        if level is None:
            thinking = False
        elif "reasoning_effort" not in template.source:
            raise RequestError(
                "reasoning_effort: this model's chat template has no levels; use thinking = true or false"
            )
        else:
            values["reasoning_effort"] = level
    if thinking is not None:
        if "enable_thinking" not in template.source:
            raise RequestError("thinking: this model's chat template has no switch for it")
        values["enable_thinking"] = thinking
    return values


def _reopened(rendered: str, turn: Message) -> str:
    """The prompt up to the end of the last assistant turn's text, so that the model goes on with it."""
    end = "<|im_end|>\n"
    if not rendered.endswith(end):
        raise RequestError(
            f"this model's chat template does not end a turn with {end!r}: its last message cannot be continued"
        )
    return rendered[: -len(end)]


class _Shield:
    def __init__(self, markers: Sequence[str], request: Any) -> None:
        # Whatever the case: a template may put a text into lower case.
        self._whole = re.compile("|".join(map(re.escape, markers)) or r"(?!)", re.IGNORECASE)
        self._starts = {marker[:n].lower() for marker in markers for n in range(1, len(marker))}
        self._ends = {marker[-n:].lower() for marker in markers for n in range(1, len(marker))}
        self._longest = max(map(len, markers), default=0)
        texts = list(_strings(request))
        candidates = map(chr, [*range(0xFDD0, 0xFDF0), *range(0xF0000, 0x10FFFE)])
        self._mark = next(char for char in candidates if not any(char in text for text in texts))

    def protect(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def remove(self, text: str) -> str:
        return text.replace(self._mark, "")

    def _text(self, text: str) -> str:
        text = self._whole.sub(lambda match: match.group()[0] + self._mark + match.group()[1:], text)
        core = text.strip()
        if not core:
            return text
        # A text may begin or end with part of a marker and meet the rest in the template.
        low = core.lower()
        before = any(low[:n] in self._ends for n in range(1, min(self._longest, len(low) + 1)))
        after = any(low[-n:] in self._starts for n in range(1, min(self._longest, len(low) + 1)))
        start = text.index(core)
        end = start + len(core)
        return text[:start] + self._mark * before + core + self._mark * after + text[end:]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
