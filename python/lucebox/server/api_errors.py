"""Errors as clients see them: a status and a body, without request texts, paths or stacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucebox.errors import ContextFullError, Error, RequestError

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}


class ApiError(Exception):
    """status: one of TYPES. param: the field at fault. extra: further facts of the error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | int | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": TYPES[self.status], "param": self.param, "code": self.code}
        return {"error": {**error, **self.extra}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, why: str) -> ApiError:
    return bad_request(f"{param}: {why}", param, "unsupported_parameter")


def unavailable(message: str, code: str | None = None) -> ApiError:
    return ApiError(503, message, code=code, headers={"retry-after": "5"})


def queue_full(waiting: int) -> ApiError:
    message = f"the queue is full ({waiting} requests are waiting); try again"
    return ApiError(429, message, code="queue_full", headers={"retry-after": "1"})


def context_full(prompt_tokens: int, n_ctx: int) -> ApiError:
    """Agents look for both phrases to know that they must shorten their history."""
    return ApiError(
        400,
        f"This model's maximum context length is {n_ctx} tokens. The request has {prompt_tokens} tokens and "
        "exceeds the available context size; shorten the prompt.",
        code="context_length_exceeded",
        param="messages",
        extra={"n_prompt_tokens": prompt_tokens, "n_ctx": n_ctx},
    )


def of(error: Error) -> ApiError:
    """For the errors of lucebox that a request may cause."""
    if isinstance(error, ContextFullError):
        return context_full(error.asked, error.max_ctx)
    if isinstance(error, RequestError):
        text = str(error)
        name = text.partition(":")[0]
        return bad_request(
            text, name if name.replace("_", "").replace("[", "").replace("]", "").replace(".", "").isalnum() else None
        )
    return ApiError(500, "the engine could not run this request")
