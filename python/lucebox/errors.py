"""The errors that lucebox raises; each carries the facts of its text as attributes."""

from __future__ import annotations


class Error(Exception):
    """Base of all errors of lucebox. Its text says what was asked, what was found, the limit and what to do."""

    def __init__(self, text: str, **facts: str | int) -> None:
        super().__init__(text)
        for name, value in facts.items():
            setattr(self, name, value)


class GGUFError(Error):
    """A file is no valid GGUF file. Facts: file, field (a key, a tensor or a part of the layout), offset.

    The offset is in bytes from the file's start; -1 where the field has none.
    """

    file: str
    field: str
    offset: int


class UnsupportedModelError(Error):
    """A valid file of a model that lucebox cannot run; the text says what it is and what is supported."""


class DrafterMismatchError(Error):
    """A drafter that does not belong to the target."""


class ContextFullError(Error):
    """The sequence has no room for the tokens asked for. Facts: asked, length, max_ctx (tokens)."""

    asked: int
    length: int
    max_ctx: int


class OutOfMemoryError(Error):
    """The memory plan does not fit. Facts: asked, free (bytes)."""

    asked: int
    free: int


class DeviceError(Error):
    """A device or one of its kernels failed, or produced numbers that are none."""


class RequestError(Error):
    """An argument of a request is not usable."""
