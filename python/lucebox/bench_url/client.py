"""One streamed completion over HTTP, with the times of its chunks."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from lucebox.errors import RequestError

TIMEOUT_S = 600.0


class ServerError(RequestError):
    """The server refused a request. Facts: status."""

    status: int


@dataclass(frozen=True)
class Sample:
    """One answer. Times are in seconds."""

    start: float
    """time.perf_counter() when the request was sent."""
    first: float
    """When its first text arrived."""
    end: float
    prompt_tokens: int
    tokens: int
    text: str

    @property
    def ttft_s(self) -> float:
        return self.first - self.start

    @property
    def decode_per_s(self) -> float:
        """Tokens behind the first one, a second."""
        return (self.tokens - 1) / (self.end - self.first) if self.end > self.first else 0.0


class Server:
    """url: of the server, with or without /v1. key: sent as a bearer, if not empty."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"--url {url}: an http or https address was expected")
        self.url = url
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._address = (parts.hostname, parts.port)
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        self.model = ""

    def connect(self) -> None:
        """Asks for the model's name. Raises RequestError when nobody answers."""
        models = self._call("GET", "/v1/models", None).get("data") or [{}]
        self.model = str(models[0].get("id", ""))

    def complete(self, path: str, body: dict[str, Any]) -> Sample:
        """A streamed answer. Raises ServerError, or RequestError when the connection fails."""
        body = {**body, "model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        connection = self._connection()
        try:
            start = time.perf_counter()
            answer = self._send(connection, "POST", path, body)
            return self._read(answer, start)
        finally:
            connection.close()

    def _read(self, answer: http.client.HTTPResponse, start: float) -> Sample:
        first = end = 0.0
        usage: dict[str, Any] = {}
        texts: list[str] = []
        for chunk in _events(answer):
            if "error" in chunk:
                raise ServerError(f"{self.url}: the stream ended in an error", status=200)
            usage = chunk.get("usage") or usage
            text = "".join(map(_text, chunk.get("choices", ())))
            if text:
                end = time.perf_counter()
                first = first or end
                texts.append(text)
        tokens = usage.get("completion_tokens", len(texts))
        return Sample(start, first or start, end or start, usage.get("prompt_tokens", 0), tokens, "".join(texts))

    def _call(self, method: str, path: str, body: Any) -> Any:
        connection = self._connection()
        try:
            return json.loads(self._send(connection, method, path, body).read())
        except ValueError:
            raise RequestError(f"{self.url}: the answer of {path} is no JSON") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address
        return self._kind(host or "", port, timeout=TIMEOUT_S)

    def _send(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any) -> Any:
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, self._base + path, data, self._headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise RequestError(f"{self.url}: no answer: {error}") from None
        if answer.status != 200:
            text = answer.read(2000).decode("utf-8", "replace")
            raise ServerError(f"{self.url}{path}: status {answer.status}: {text}", status=answer.status)
        return answer


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for raw in answer:
        line = raw.strip()
        if line.startswith(b"data:"):
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                return
            yield json.loads(data)


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta") or {}
    parts = (choice.get("text"), delta.get("content"), delta.get("reasoning_content") or delta.get("reasoning"))
    return "".join(part for part in parts if part)
