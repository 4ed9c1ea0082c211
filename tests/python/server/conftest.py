"""One server on nano for all tests of this folder; the same model in this process to compare with."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
import served as process
from lucebox import load
from lucebox.engine import Engine
from served import Served

MAX_CTX = 1024


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    arguments = ["--draft", "nano", "--slots", "8", "--max-ctx", str(MAX_CTX), "--metrics-compat", "--queue", "16"]
    with process.serve(*arguments) as server:
        yield server


@pytest.fixture(scope="session")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="unused", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=120) as http:
        yield http


@pytest.fixture(scope="session")
def solo() -> Iterator[Engine]:
    """The engine without a server, for the answers that the server must give."""
    with load("nano", max_ctx=MAX_CTX, threads=1) as engine:
        yield engine
