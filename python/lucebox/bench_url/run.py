"""Rounds of each scenario against each server: one to warm up, then measured ones, servers in turn (A B B A)."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lucebox.bench_url.client import Sample, Server, ServerError
from lucebox.bench_url.scenarios import CHARS_PER_TOKEN, Scenario, filler

FIGURES = ("ttft_s", "decode_tok_per_s", "total_tok_per_s")


@dataclass(frozen=True)
class Round:
    samples: list[Sample]
    seconds: float

    @property
    def figures(self) -> dict[str, float]:
        tokens = sum(sample.tokens for sample in self.samples)
        return {
            "ttft_s": statistics.median(sample.ttft_s for sample in self.samples),
            "decode_tok_per_s": statistics.median(sample.decode_per_s for sample in self.samples),
            "total_tok_per_s": tokens / self.seconds,
        }


def run(
    servers: Sequence[Server], scenarios: Sequence[Scenario], *, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The report. Raises RequestError when a server does not answer."""
    for server in servers:
        server.connect()
    density = [chars_per_token(server) for server in servers]
    results = []
    for scenario in scenarios:
        say(scenario.name)
        measured: list[list[Round]] = [[] for _ in servers]
        refused: list[str | None] = [None] * len(servers)
        for number in range(rounds + 1):
            order = range(len(servers)) if number % 2 == 0 else reversed(range(len(servers)))
            for i in order:
                if refused[i] is None:
                    try:
                        measured[i].append(one_round(servers[i], scenario, number, density[i]))
                    except ServerError as error:
                        if error.status != 400:
                            raise
                        refused[i] = str(error)
        for i, server in enumerate(servers):
            results.append(_result(server, scenario, measured[i][1:], refused[i]))
    return {"servers": [{"url": server.url, "model": server.model} for server in servers], "results": results}


def chars_per_token(server: Server) -> float:
    """Of the filler text, as this server counts its tokens."""
    body = filler(200)(0, CHARS_PER_TOKEN)
    sample = server.complete("/v1/completions", {**body, "max_tokens": 1, "temperature": 0})
    return len(body["prompt"]) / sample.prompt_tokens if sample.prompt_tokens else CHARS_PER_TOKEN


def one_round(server: Server, scenario: Scenario, number: int, density: float) -> Round:
    """All requests of a scenario; no two rounds ask the same, so that nothing is cached."""

    def ask(i: int) -> Sample:
        body = scenario.body(number * scenario.requests + i, density)
        return server.complete(scenario.path, {**body, "max_tokens": scenario.tokens, "temperature": 0})

    start = time.perf_counter()
    with ThreadPoolExecutor(scenario.clients) as pool:
        samples = list(pool.map(ask, range(scenario.requests)))
    return Round(samples, time.perf_counter() - start)


def _result(server: Server, scenario: Scenario, rounds: list[Round], refused: str | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "url": server.url,
        "scenario": scenario.name,
        "clients": scenario.clients,
        "requests": scenario.requests,
    }
    if refused is not None:
        return {**result, "refused": refused}
    samples = [sample for one in rounds for sample in one.samples]
    for name in FIGURES:
        values = sorted(one.figures[name] for one in rounds)
        result[name] = {"median": statistics.median(values), "min": values[0], "max": values[-1]}
    result["prompt_tokens"] = round(statistics.mean(sample.prompt_tokens for sample in samples))
    result["tokens"] = round(statistics.mean(sample.tokens for sample in samples))
    # A speed counts only beside the text that it gave.
    texts = "\0".join(sample.text for sample in samples)
    result["texts_sha256"] = hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()
    return result
