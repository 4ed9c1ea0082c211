"""What is asked: the same texts of every server, and no two requests with a common beginning, so that no cache helps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CHARS_PER_TOKEN = 4.0
"""Of a first guess; the true length is that of the server's own tokenizer."""

WORDS = [
    "the",
    "server",
    "reads",
    "a",
    "line",
    "from",
    "its",
    "queue",
    "and",
    "writes",
    "an",
    "answer",
    "to",
    "every",
    "client",
    "that",
    "waits",
    "for",
    "one",
    "while",
    "another",
    "thread",
    "keeps",
    "the",
    "files",
    "of",
    "the",
    "cache",
    "in",
    "order",
    "so",
    "that",
    "nothing",
    "is",
    "lost",
    "when",
    "a",
    "machine",
    "stops",
    "and",
    "starts",
    "again",
]

CODE = (
    'def read_config(path: str) -> dict:\n    """Reads a TOML file and fills in defaults."""\n',
    "class LRUCache:\n    def __init__(self, capacity: int) -> None:\n",
    'def parse_log_line(line: str) -> tuple[str, int, str]:\n    """Time, level and message."""\n',
    "async def fetch_all(urls: list[str], limit: int = 10) -> list[bytes]:\n",
    'def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:\n    """Sorted and disjoint."""\n',
    "import argparse\nimport sys\n\n\ndef main() -> int:\n    parser = argparse.ArgumentParser()\n",
    "class Matrix:\n    def __init__(self, rows: list[list[float]]) -> None:\n",
    "def test_queue_keeps_order() -> None:\n",
    "SELECT = '''\n    SELECT name, count(*)\n'''\n\n\ndef report(connection) -> list[tuple[str, int]]:\n",
    "@dataclass\nclass Job:\n    name: str\n    priority: int = 0\n\n    def __lt__(self, other):\n",
)
CHATS = (
    "Explain what a hash table is in three sentences.",
    "Write a haiku about the sea.",
    "What is the capital of France, and what is it known for?",
    "Give me a JSON record of a person with name and age.",
)


@dataclass(frozen=True)
class Scenario:
    """requests: those of one round, all at once but `clients` at a time."""

    name: str
    clients: int
    requests: int
    tokens: int
    """Of each answer."""
    body: Callable[[int, float], dict[str, Any]]
    """(number of the request, characters a token) -> what is asked."""
    path: str = "/v1/completions"


def filler(tokens: int) -> Callable[[int, float], dict[str, Any]]:
    """A prompt of about so many tokens, different from its first word on."""

    def make(number: int, chars_per_token: float) -> dict[str, Any]:
        source = random.Random(number)
        text = f"Report {number}:"
        parts = [text]
        size = len(text)
        while size < tokens * chars_per_token:
            word = " " + source.choice(WORDS)
            parts.append(word)
            size += len(word)
        return {"prompt": "".join(parts), "ignore_eos": True}

    return make


def code(number: int, _: float) -> dict[str, Any]:
    return {"prompt": f"# file {number}\n{CODE[number % len(CODE)]}", "ignore_eos": True}


def chat(number: int, _: float) -> dict[str, Any]:
    question = f"({number}) {CHATS[number % len(CHATS)]}"
    return {"messages": [{"role": "user", "content": question}], "ignore_eos": True}


def scenarios(tokens: int | None = None) -> list[Scenario]:
    """tokens: of every answer, in place of each scenario's own."""
    return [
        Scenario("2K x 1", 1, 1, tokens or 128, filler(2000)),
        Scenario("2K x 4", 4, 4, tokens or 128, filler(2000)),
        Scenario("2K x 8", 8, 8, tokens or 128, filler(2000)),
        Scenario("8K x 1", 1, 1, tokens or 128, filler(8000)),
        Scenario("chat", 1, len(CHATS), tokens or 128, chat, "/v1/chat/completions"),
        Scenario("code", 1, len(CODE), tokens or 256, code),
    ]
