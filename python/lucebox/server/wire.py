"""Bodies in and out: JSON with limits, answers, and the gate in front of all routes (keys, CORS, errors)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lucebox.errors import Error
from lucebox.server import api_errors
from lucebox.server.api_errors import ApiError
from lucebox.server.config import ServerConfig

log = logging.getLogger("lucebox.server")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_DEPTH = 128
"""Of lists and objects in a body."""
DRAIN_SECONDS = 5.0
"""What a client gets to read that its body is too long."""
OPEN_PATHS = ("/health", "/v1/health")


def dumps(value: Any) -> bytes:
    """One line of JSON as raw UTF-8; half a surrogate pair, which is no character, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class JSONAnswer(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


def error_answer(error: ApiError) -> JSONAnswer:
    return JSONAnswer(error.body, error.status, headers=error.headers)


async def read_body(request: Request, config: ServerConfig) -> bytes:
    """The body of a request that says it is JSON. Raises ApiError."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "content-encoding is not supported: send the body as it is")
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise ApiError(415, "content-type must be application/json")
    limit, seconds = config.max_body, config.body_timeout
    too_long = ApiError(413, f"the body is longer than {limit} bytes", headers={"connection": "close"})
    if int(request.headers.get("content-length", "0")) > limit:  # digits: the protocol has checked them
        raise too_long
    body = bytearray()
    chunks = aiter(request.stream())
    while True:
        try:
            body += await asyncio.wait_for(anext(chunks), seconds)
        except StopAsyncIteration:
            return bytes(body)
        except asyncio.TimeoutError:
            text = f"no part of the body came for {seconds:g} s"
            raise ApiError(408, text, headers={"connection": "close"}) from None
        if len(body) > limit:
            raise too_long


async def send_and_drain(answer: Response, most: int, receive: Receive, send: Send) -> None:
    """The answer to a body that is too long: a client that is cut off while it sends does not read it, so up to `most`
    bytes are still taken, and not kept."""
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    end = asyncio.get_running_loop().time() + DRAIN_SECONDS
    while most > 0:
        try:
            message = await asyncio.wait_for(receive(), end - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            break
        if not message.get("more_body"):
            break
        most -= len(message["body"])
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def parse_json(body: bytes) -> Any:
    """Raises ApiError. Long bodies take their time: not in the event loop."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise api_errors.bad_request("the body is not valid JSON") from None
    if _too_deep(value):
        raise api_errors.bad_request(f"the body is nested deeper than {MAX_DEPTH}")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += [x for x in item.values() if isinstance(x, dict | list)]
            elif isinstance(item, list):
                below += [x for x in item if isinstance(x, dict | list)]
        if not below:
            return False
        level = below
    return True


class Keys:
    """Compared by their hashes, all of them, so that the time tells nothing."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._hashes = [hashlib.sha256(key.encode()).digest() for key in keys]

    def check(self, headers: Mapping[str, str]) -> str | None:
        """A name for the client that holds a key, None for one without. Any will do where there are no keys."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        known = [hmac.compare_digest(digest, one) for one in self._hashes]
        if self._hashes and not any(known):
            return None
        return digest.hex()[:12] if self._hashes else ""


class Gate:
    """In front of the routes: preflight, keys, CORS headers on every answer, and errors as JSON."""

    def __init__(self, app: App, config: ServerConfig) -> None:
        self._app = app
        self._keys = Keys(config.api_keys)
        self._origins = config.cors_origins
        self._max_body = config.max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        extra = self._cors(headers)
        started = False

        async def send_with_cors(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        try:
            if scope["method"] == "OPTIONS":
                await Response(status_code=204)(scope, receive, send_with_cors)
                return
            client = self._keys.check(headers)
            if client is None and scope["path"].rstrip("/") not in OPEN_PATHS:
                message = "a valid API key is needed (authorization: Bearer …)"
                headers_401 = {"www-authenticate": "Bearer"}
                raise ApiError(401, message, code="invalid_api_key", headers=headers_401)
            peer = scope["client"][0] if scope.get("client") else ""
            scope.setdefault("state", {})["client"] = client or peer
            scope["app"] = self  # the router raises for unknown paths then, as all else does
            await self._app(scope, receive, send_with_cors)
        except ClientDisconnect:
            log.debug("a client left while it sent its body")
        except Exception as error:
            if started:
                raise
            answer = error_answer(as_api_error(error))
            if answer.status_code == 413:
                await send_and_drain(answer, 4 * self._max_body, receive, send_with_cors)
            else:
                await answer(scope, receive, send_with_cors)

    def _cors(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        origin = headers.get("origin")
        if origin is None or not self._allowed(origin):
            return []
        allowed = headers.get("access-control-request-headers", "authorization, content-type, x-api-key")
        pairs = {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST, OPTIONS",
            "access-control-allow-headers": allowed,
            "vary": "Origin",
        }
        return [(key.encode(), value.encode("latin-1", "replace")) for key, value in pairs.items()]

    def _allowed(self, origin: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        try:
            host = urlsplit(origin).hostname
        except ValueError:
            return False
        return "localhost" in self._origins and host in ("localhost", "127.0.0.1", "::1")


def as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Error):
        return api_errors.of(error)
    if isinstance(error, HTTPException):
        known = {404: "there is no such path", 405: "this path does not take that method"}
        status = error.status_code if error.status_code in known else 400
        return ApiError(status, known.get(status, "the request is not valid"), headers=error.headers)
    log.error("a request failed", exc_info=error)
    return ApiError(500, "the server could not handle this request")
