"""Qwen's XML tool calls in a reply, as a stream of events.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Only text counts, however it is cut: every partition of a reply gives the same events when adjacent texts are joined.
What is held back is bounded, so the work is linear. A value ends at a line break and `</parameter>` in front of the
next `<parameter=` or `</function>`, not at the bare tag: values may hold any of the tags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from lucebox.server import values
from lucebox.streams import MAX_GAP, overlap

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
MAX_NAME = 256
"""Characters of a function's or parameter's name; more are no name."""

_MAYBE_CLOSER = re.compile(r"[\n<]")
_NAME = re.compile(rf"[^\r\n<>]{{0,{MAX_NAME}}}")
_GAP = re.compile(rf"\s{{0,{MAX_GAP}}}")


@dataclass(frozen=True, slots=True)
class Event:
    kind: Literal["content", "head", "arguments", "end"]
    text: str = ""
    """Content, the function's name, or the next part of the arguments' JSON."""


class _NeedMore(Exception):
    """The text ends where the next characters decide."""


class ToolParser:
    """tools: as in the request; they give the values their types."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._types = values.ToolTypes(tools)
        self._text = ""
        self._final = False
        self._state = self._content
        self._after_call = False
        self._function = ""
        self._keys: set[str] = set()
        self._value: list[str] | None = None
        self._sink = False
        self._key_types: frozenset[str] = frozenset()
        self._first = self._fresh = False
        self._events: list[Event] = []
        self.calls = 0
        """Calls that are closed."""

    @property
    def held(self) -> int:
        return len(self._text)

    @property
    def inside(self) -> bool:
        """Whether a call has begun and is not closed."""
        return self._state in (self._in_function, self._in_value)

    def push(self, text: str) -> list[Event]:
        self._text += text
        return self._run()

    def finish(self, *, close: bool) -> list[Event]:
        """The end of the reply; close: a call that is open is closed (otherwise it stays cut)."""
        self._final = True
        events = self._run()
        if self._state == self._in_value:
            self._end_value(close)
        if close and self._state == self._in_function:
            self._end_function()
        return events + self._take()

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _run(self) -> list[Event]:
        with suppress(_NeedMore):
            while self._text:
                self._state()
        return self._take()

    def _emit(self, kind: Literal["content", "head", "arguments", "end"], text: str = "") -> None:
        if text or kind in ("head", "end"):
            self._events.append(Event(kind, text))

    # Each state takes something from the front of the text, or raises _NeedMore.

    def _content(self) -> None:
        if self._after_call:
            # White space between calls, and behind the last one.
            self._text = self._text.lstrip()
            if not self._text:
                return
        at = self._text.find(CALL)
        if at < 0:
            at = len(self._text) - (0 if self._final else overlap(self._text, CALL))
        if at > 0:
            self._after_call = False
            self._emit("content", self._text[:at])
            self._text = self._text[at:]
            return
        if not self._text.startswith(CALL):
            raise _NeedMore
        self._open_call()

    def _open_call(self) -> None:
        """`<tool_call>` is in front; a call begins only with the function's whole name."""
        at = self._after(len(CALL), FUNCTION)
        if at is None or not self._open_function(at):
            self._after_call = False
            self._emit("content", CALL)
            self._text = self._text[len(CALL) :]

    def _open_function(self, at: int) -> bool:
        """at: where the function's name begins. False if there is none."""
        end = self._name_end(at)
        name = "" if end is None else self._text[at:end].strip()
        if end is None or not name:
            return False
        self._text = self._text[end + 1 :]
        self._function = name
        self._keys = set()
        self._emit("head", name)
        self._state = self._in_function
        return True

    def _in_function(self) -> None:
        """Between parameters."""
        at = self._text.find("<")
        if at < 0:
            self._text = ""
            return
        self._text = self._text[at:]
        if self._front(PARAMETER):
            end = self._name_end(len(PARAMETER))
            if end is not None:
                key = self._text[len(PARAMETER) : end].strip()
                self._text = self._text[end + 1 :]
                self._open_value(key)
                return
        elif self._front(FUNCTION_END):
            self._text = self._text[len(FUNCTION_END) :]
            self._end_function()
            self._state = self._after_function
            return
        elif self._front(CALL_END):
            self._end_function()
            self._state = self._after_function
            return
        self._text = self._text[1:]

    def _open_value(self, key: str) -> None:
        types = self._types.of(self._function, key)
        self._sink = key in self._keys  # A key that is given twice keeps its first value.
        self._value = None if values.is_text(types) else []
        if not self._sink:
            self._emit("arguments", ("{" if not self._keys else ", ") + values.quote(key) + ": ")
            self._emit("arguments", '"' if self._value is None else "")
            self._keys.add(key)
        self._key_types = types
        self._first = self._fresh = True
        self._state = self._in_value

    def _in_value(self) -> None:
        if self._first:
            self._text = self._text.removeprefix("\n")
            self._first = False
        start = 0
        while found := _MAYBE_CLOSER.search(self._text, start):
            at = found.start()
            try:
                end = self._closer(at)
            except _NeedMore:
                self._say_value(at)
                raise
            if end is not None:
                self._say_value(at)
                self._text = self._text[end - at :]
                self._end_value(True)
                return
            start = at + 1
        self._say_value(len(self._text))

    def _closer(self, at: int) -> int | None:
        """Where the closing tag ends that begins at this place with its line break; None if none does."""
        line = self._text[at] == "\n"
        start = at + line
        end = start + len(PARAMETER_END)
        if (line or (at == 0 and self._fresh)) and self._text.startswith(PARAMETER_END, start):
            if self._after(end, PARAMETER) is not None or self._after(end, FUNCTION_END) is not None:
                return end
            if self._final and PARAMETER.startswith(self._text[end:].lstrip()):
                return end
        return len(self._text) if self._ends_here(start, line) else None

    def _ends_here(self, at: int, line: bool) -> bool:
        """Whether nothing but closing tags follows, of which any may be missing, and the reply is over.

        line: a line break is in front, so that even a part of a tag counts.
        """
        for i, tag in enumerate((PARAMETER_END, FUNCTION_END, CALL_END)):
            if self._final and line and tag.startswith(self._text[at:].lstrip()):
                return True
            end = self._after(at, tag) if i else self._tag(at, tag)
            at = at if end is None else end
        gap = _GAP.match(self._text, at)
        assert gap is not None
        if gap.end() < len(self._text):
            return False
        if not self._final:
            raise _NeedMore
        return True

    def _say_value(self, count: int) -> None:
        text, self._text = self._text[:count], self._text[count:]
        self._fresh = self._fresh and not text
        if self._value is not None:
            self._value.append(text)
        elif not self._sink:
            self._emit("arguments", values.quote(text)[1:-1])

    def _end_value(self, whole: bool) -> None:
        """whole: false for a value that the reply's length cut."""
        if self._value is not None and not self._sink and whole:
            self._emit("arguments", values.to_json("".join(self._value), self._key_types))
        elif self._value is None and not self._sink and whole:
            self._emit("arguments", '"')
        self._value = None
        self._state = self._in_function

    def _end_function(self) -> None:
        self._emit("arguments", "}" if self._keys else "{}")
        self._emit("end")
        self.calls += 1

    def _after_function(self) -> None:
        """Behind `</function>`: the call's end, or a further function in the same call."""
        self._text = self._text.lstrip()
        if not self._text:
            return
        if self._front(CALL_END):
            self._text = self._text[len(CALL_END) :]
        elif self._front(FUNCTION) and self._open_function(len(FUNCTION)):
            return
        self._after_call = True
        self._state = self._content

    def _front(self, tag: str) -> bool:
        return self._tag(0, tag) is not None

    def _tag(self, at: int, tag: str) -> int | None:
        """Where the tag that begins at this place ends, None if another text does."""
        found = self._text[at : at + len(tag)]
        if found == tag:
            return at + len(tag)
        if not self._final and tag.startswith(found) and at + len(found) == len(self._text):
            raise _NeedMore
        return None

    def _after(self, at: int, tag: str) -> int | None:
        """The same for a tag with white space in front."""
        gap = _GAP.match(self._text, at)
        assert gap is not None
        return self._tag(gap.end(), tag)

    def _name_end(self, at: int) -> int | None:
        """Where the `>` of a name stands."""
        name = _NAME.match(self._text, at)
        assert name is not None
        if name.end() == len(self._text) and not self._final and name.end() - at < MAX_NAME:
            raise _NeedMore
        return name.end() if self._text.startswith(">", name.end()) else None
