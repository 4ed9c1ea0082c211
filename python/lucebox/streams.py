"""Filters on the text of a reply as it arrives. Each holds back what it cannot settle yet and loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.tokenizer import Detokenizer, Tokenizer

MAX_GAP = 16
"""White space that may lie between the tags of a tool call."""


class StopMatcher:
    """Ends a text at the first stop string to be completed (of two that end together, the longer one)."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted((stop for stop in stops if stop), key=len, reverse=True)
        self._held = ""
        self.matched: str | None = None
        self.dropped = 0
        """Characters of the match and behind it."""

    @property
    def held(self) -> int:
        return len(self._held)

    def push(self, text: str) -> str:
        """Text in front of any stop string, as far as it is certain. After a match there is none."""
        if self.matched is not None:
            return ""
        text = self._held + text
        ends = [(text.find(stop) + len(stop), stop) for stop in self._stops if stop in text]
        if ends:
            end, self.matched = min(ends, key=lambda found: found[0])
            self._held = ""
            self.dropped = len(text) - end + len(self.matched)
            return text[: end - len(self.matched)]
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class ReasoningSplitter:
    """Parts a reply into reasoning and content; line breaks at the edges of the reasoning and in front of the content
    are dropped (those behind it by `Edges`, after the search for stop strings).

    inside: the reply starts in the reasoning. Where the vocabulary has tokens for the tags, only those part the reply
    (`marker`), so that a tag that is merely quoted does not; otherwise (`by_text`) the first tag in the text does.
    A tool call that really begins ends the reasoning, too, unless calls is false.
    """

    OPEN, CLOSE, CALL, CALL_HEAD = "<think>", "</think>", "<tool_call>", "<function="

    def __init__(self, *, inside: bool, by_text: bool = False, calls: bool = True) -> None:
        self.inside = inside
        self._by_text = by_text
        self._calls = calls
        self._closed = False
        self._held = ""
        self._reasoning = Edges()
        self._content = Edges(behind=False)

    @property
    def held(self) -> int:
        return len(self._held) + (self._reasoning.held if self.inside else 0)

    def push(self, text: str) -> tuple[str, str]:
        """(reasoning, content) that ordinary text settles."""
        return self._search(text) if self._by_text or self.inside else self._emit(text)

    def marker(self, text: str) -> tuple[str, str]:
        """The same for the text of a marker token."""
        if self._by_text or (text == self.CALL and self.inside):
            return self._search(text)
        settled = self._release()
        if text == self.CLOSE and self.inside:
            self._close()
            return settled
        if text == self.OPEN and not self.inside and not self._closed and not self._content.started:
            self.inside = True
            return settled
        return _joined(settled, self._emit(text))

    def finish(self) -> tuple[str, str]:
        return self._release()

    def _close(self) -> None:
        self.inside, self._closed = False, True

    def _emit(self, text: str) -> tuple[str, str]:
        return (self._reasoning.push(text), "") if self.inside else ("", self._content.push(text))

    def _release(self) -> tuple[str, str]:
        held, self._held = self._held, ""
        return self._emit(held)

    def _search(self, text: str) -> tuple[str, str]:
        text = self._held + text
        self._held = ""
        if self.inside:
            return self._search_end(text)
        if self._by_text and not self._closed and not self._content.started:
            start = text.lstrip()
            if start.startswith(self.OPEN):
                self.inside = True
                return self._search(start[len(self.OPEN) :])
            if self.OPEN.startswith(start):
                return self._hold(text, len(text))
        return self._emit(text)

    def _search_end(self, text: str) -> tuple[str, str]:
        """The end of the reasoning: its tag, or the head of a tool call, which belongs to the content."""
        end = len(text)
        tag = text.find(self.CLOSE) if self._by_text else -1
        call, whole = self._find_call(text, end if tag < 0 else tag)
        if whole:
            settled = self._emit(text[:call])
            self._close()
            return _joined(settled, self._emit(text[call:]))
        if tag >= 0:
            settled = self._emit(text[:tag])
            self._close()
            return _joined(settled, self._emit(text[tag + len(self.CLOSE) :]))
        held = max(end - call, overlap(text, self.CLOSE) if self._by_text else 0)
        return self._hold(text, held)

    def _find_call(self, text: str, end: int) -> tuple[int, bool]:
        """Where a call's head begins in front of end, and whether it is whole; end if there is none."""
        if not self._calls:
            return end, False
        start = 0
        while (at := text.find(self.CALL, start, end)) >= 0:
            rest = text[at + len(self.CALL) : end]
            gap = len(rest) - len(rest.lstrip())
            if gap <= MAX_GAP and rest.startswith(self.CALL_HEAD, gap):
                return at, True
            if gap <= MAX_GAP and end == len(text) and self.CALL_HEAD.startswith(rest[gap:]):
                return at, False
            start = at + len(self.CALL)
        return (end - overlap(text, self.CALL) if end == len(text) else end), False

    def _hold(self, text: str, count: int) -> tuple[str, str]:
        self._held = text[len(text) - count :]
        return self._emit(text[: len(text) - count])


class Edges:
    """Drops line breaks at the start and, unless behind is false, at the end of a text."""

    def __init__(self, *, front: bool = True, behind: bool = True) -> None:
        self.started = not front
        self._behind = behind
        self._breaks = ""

    @property
    def held(self) -> int:
        return len(self._breaks)

    def push(self, text: str) -> str:
        if not self.started:
            text = text.lstrip("\r\n")
            self.started = bool(text.strip())
        if not self._behind:
            return text
        text = self._breaks + text
        core = text.rstrip("\r\n")
        self._breaks = text[len(core) :]
        return core

    def drop(self) -> None:
        """Forgets line breaks that are held back."""
        self._breaks = ""


class TokenText:
    """(reasoning, content) of a stream of tokens; splitter None: all is content."""

    def __init__(self, tokenizer: Tokenizer, splitter: ReasoningSplitter | None) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._splitter = splitter
        self.decoded = 0
        """Characters so far."""

    @property
    def held(self) -> int:
        return 0 if self._splitter is None else self._splitter.held

    @property
    def pending(self) -> bool:
        """Whether the last token ends inside a character."""
        return self._detokenizer.pending

    @property
    def reasoning(self) -> bool:
        """Whether the next token belongs to the reasoning."""
        return self._splitter is not None and self._splitter.inside

    def push(self, id: int) -> tuple[str, str]:
        if self._splitter is None or not self._tokenizer.is_marker(id):
            return self._split(self._detokenizer.push(id))
        before = self._split(self._detokenizer.finish())
        text = self._detokenizer.push(id)
        self.decoded += len(text)
        return _joined(before, self._splitter.marker(text))

    def finish(self) -> tuple[str, str]:
        """What was held back, at the end of the reply."""
        rest = self._split(self._detokenizer.finish())
        return rest if self._splitter is None else _joined(rest, self._splitter.finish())

    def _split(self, text: str) -> tuple[str, str]:
        self.decoded += len(text)
        return ("", text) if self._splitter is None else self._splitter.push(text)


def _joined(first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str]:
    return first[0] + second[0], first[1] + second[1]


def overlap(text: str, target: str) -> int:
    """Length of the longest end of text that begins target and is shorter than it."""
    return next((n for n in range(min(len(text), len(target) - 1), 0, -1) if target.startswith(text[-n:])), 0)
