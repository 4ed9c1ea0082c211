"""Filters on the text of a reply as it arrives. Each holds back what it cannot settle yet and loses nothing."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Ends a text at the first stop string to be completed (of two that end together, the longer one)."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted((stop for stop in stops if stop), key=len, reverse=True)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Text in front of any stop string, as far as it is certain. After a match there is none."""
        if self.matched is not None:
            return ""
        text = self._held + text
        ends = [(text.find(stop) + len(stop), stop) for stop in self._stops if stop in text]
        if ends:
            end, self.matched = min(ends, key=lambda found: found[0])
            self._held = ""
            return text[: end - len(self.matched)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class ReasoningSplitter:
    """Parts a reply into reasoning and content; line breaks at the edges of both are dropped.

    inside: the reply starts in the reasoning. Where the vocabulary has tokens for the tags, only those part the reply
    (`marker`), so that a tag that is merely quoted does not; otherwise (`by_text`) the first tag in the text does.
    """

    OPEN, CLOSE, CALL, CALL_HEAD = "<think>", "</think>", "<tool_call>", "<function="

    def __init__(self, *, inside: bool, by_text: bool = False) -> None:
        self._inside = inside
        self._by_text = by_text
        self._closed = False
        self._held = ""
        self._reasoning = _Edges()
        self._content = _Edges()

    def push(self, text: str) -> tuple[str, str]:
        """(reasoning, content) that ordinary text settles."""
        if self._held.startswith(self.CALL):
            return self._call(text)
        if not self._by_text:
            return self._emit(text)
        return self._search(text)

    def marker(self, text: str) -> tuple[str, str]:
        """The same for the text of a marker token."""
        settled = self._release()
        if text == self.CLOSE and self._inside:
            self._inside, self._closed = False, True
            return settled
        if text == self.OPEN and not self._inside and not self._closed and not self._content.started:
            self._inside = True
            return settled
        if text == self.CALL and self._inside:
            self._held = text
            return settled
        return _joined(settled, self._emit(text))

    def finish(self) -> tuple[str, str]:
        return self._release()

    def _emit(self, text: str) -> tuple[str, str]:
        return (self._reasoning.push(text), "") if self._inside else ("", self._content.push(text))

    def _release(self) -> tuple[str, str]:
        held, self._held = self._held, ""
        return self._emit(held)

    def _call(self, text: str) -> tuple[str, str]:
        """A tool call that really begins ends a reasoning that was not closed."""
        self._held += text
        rest = self._held[len(self.CALL) :].lstrip()
        if rest.startswith(self.CALL_HEAD):
            self._inside, self._closed = False, True
            return self._release()
        return ("", "") if self.CALL_HEAD.startswith(rest) else self._release()

    def _search(self, text: str) -> tuple[str, str]:
        text = self._held + text
        self._held = ""
        if self._inside:
            before, tag, after = text.partition(self.CLOSE)
            if tag:
                settled = self._emit(before)
                self._inside, self._closed = False, True
                return _joined(settled, self._emit(after))
            return self._hold(text, _overlap(text, self.CLOSE))
        if not self._closed and not self._content.started:
            start = text.lstrip()
            if start.startswith(self.OPEN):
                self._inside = True
                return self._search(start[len(self.OPEN) :])
            if self.OPEN.startswith(start):
                return self._hold(text, len(text))
        return self._emit(text)

    def _hold(self, text: str, count: int) -> tuple[str, str]:
        self._held = text[len(text) - count :]
        return self._emit(text[: len(text) - count])


class _Edges:
    """Drops line breaks at the start and at the end of a text."""

    def __init__(self) -> None:
        self.started = False
        self._breaks = ""

    def push(self, text: str) -> str:
        if not self.started:
            text = text.lstrip("\r\n")
            self.started = bool(text.strip())
        text = self._breaks + text
        core = text.rstrip("\r\n")
        self._breaks = text[len(core) :]
        return core


def _joined(first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str]:
    return first[0] + second[0], first[1] + second[1]


def _overlap(text: str, target: str) -> int:
    """Length of the longest end of text that begins target and is shorter than it."""
    return next((n for n in range(min(len(text), len(target) - 1), 0, -1) if target.startswith(text[-n:])), 0)
