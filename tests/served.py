"""A server process on nano, for tests that go through HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Served:
    process: subprocess.Popen[str]
    url: str
    log: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            body = answer.read().decode()
            return json.loads(body) if "json" in answer.headers["content-type"] else body

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", self.get("/metrics"), re.MULTILINE)
        assert found, name
        return float(found.group(1))

    def end(self, seconds: float = 60) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def serve(*arguments: str, model: str = "nano") -> Iterator[Served]:
    command = [sys.executable, "-m", "lucebox", "serve", model, "--port", "0", "--threads", "1", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    log: list[str] = []
    url = ""
    for line in process.stderr:
        log.append(line)
        found = re.search(r"listening on (http://\S+?)[\"\s]", line)
        if found:
            url = found.group(1)
            break
    assert url, "".join(log)
    reader = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
    reader.start()
    served = Served(process, url, log)
    try:
        _wait_until_ready(served)
        yield served
        if process.poll() is None:
            assert served.end() == 0, "".join(log)
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stderr.close()


def _wait_until_ready(served: Served) -> None:
    """The health route answers 503 until the first step has run."""
    while served.process.poll() is None:
        try:
            served.get("/health")
            return
        except urllib.error.HTTPError as error:
            assert error.code == 503


def send(
    served: Served, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> socket.socket:
    """A request on a connection of its own, which the caller reads or leaves."""
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    lines = {"host": "test", "content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items())
    connection.sendall(head.encode() + b"\r\n" + body)
    return connection


def events(text: str) -> list[dict[str, Any]]:
    """The data of a stream of server-sent events; its framing is checked."""
    assert text.endswith("data: [DONE]\n\n"), text[-200:]
    found = []
    for block in text.removesuffix("data: [DONE]\n\n").split("\n\n"):
        if block and not block.startswith(":"):
            assert block.startswith("data: ") and "\n" not in block, block
            found.append(json.loads(block.removeprefix("data: ")))
    return found
