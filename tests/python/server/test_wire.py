"""Bodies as they come in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lucebox.server.api_errors import ApiError
from lucebox.server.config import ServerConfig
from lucebox.server.wire import read_body
from starlette.requests import Request


def test_a_body_that_stalls() -> None:
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await asyncio.Event().wait()

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(ApiError) as caught:
        asyncio.run(read_body(request, ServerConfig(body_timeout=0.01)))
    assert caught.value.status == 408
