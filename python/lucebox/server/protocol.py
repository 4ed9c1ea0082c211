"""HTTP/1.1 connections whose client may close its sending side and read on."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lucebox.server import api_errors
from lucebox.server.wire import dumps

PROBE_SECONDS = 0.25


class HalfOpenProtocol(H11Protocol):
    """The end of what a client sends does not end its request. Whether it still reads shows when something is sent:
    a comment in a stream, an interim answer (100) in front of any other answer, until the answer itself."""

    _half_closed = False

    def eof_received(self) -> bool:  # type: ignore[override]
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        self._half_closed = True
        self._probe()
        return True

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = dumps(api_errors.bad_request("the request is not valid HTTP").body)
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed:
            self.transport.close()

    def _probe(self) -> None:
        cycle = self.cycle
        if self.transport.is_closing() or cycle.response_complete or cycle.disconnected:
            return
        event: Any = None
        if not cycle.response_started:
            event = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
        elif cycle.scope.get("state", {}).get("events"):
            event = h11.Data(data=b": ping\n\n")
        if event is not None:
            self.transport.write(self.conn.send(event) or b"")
        asyncio.get_running_loop().call_later(PROBE_SECONDS, self._probe)
