"""Many clients at one server, some of them rude; run by hand before a release, by the tests for a few seconds, and on each GPU.

    python scripts/serve_load.py --seconds 60 --clients 32

Starts `lucebox serve`, asks each question once alone, then lets all clients ask at once: streamed and whole, sampled
and greedy, JSON and tool calls, with disconnects, prompts that are too long and bodies that are no JSON in between.
Every answer must be that of its solo run. At the end nothing may be left: memory, KV pages, slots. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

WORDS = ["server", "cache", "path", "import", "class", "return", "value", "index", "token", "batch", "thread", "file"]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"properties": {"key": {"enum": ["a", "b"]}}}},
}
MEMORY_SLACK = 8 << 20


@dataclass
class Tally:
    seen: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


def questions(count: int) -> list[tuple[str, dict[str, Any]]]:
    """(path, body) of requests whose answers are settled by their seeds."""
    source = random.Random(11)
    made: list[tuple[str, dict[str, Any]]] = []
    for i in range(count):
        text = " ".join(source.choices(WORDS, k=source.choice([3, 10, 40, 150])))
        body: dict[str, Any] = {"max_tokens": source.choice([1, 8, 24, 48]), "seed": i}
        body["temperature"] = source.choice([0, 0, 0.8, 1.5])
        kind = i % 5
        if kind == 0:
            made.append(("/v1/completions", {**body, "prompt": text}))
            continue
        body.update(messages=[{"role": "user", "content": text}], enable_thinking=kind == 1)
        if kind == 2:
            body.update(response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}}, max_tokens=64)
        if kind == 3:
            body.update(tools=[TOOL], tool_choice="required", max_tokens=64)
        if kind == 4:
            body.update(stop=["e", "\n"], logprobs=True)
        made.append(("/v1/chat/completions", body))
    return made


def gist(answer: dict[str, Any]) -> str:
    """What two runs of a question must have in common."""
    choice = answer["choices"][0]
    message = choice.get("message", {"content": choice.get("text")})
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    parts = [message.get("content") or "", message.get("reasoning_content") or "", calls, choice["finish_reason"]]
    return json.dumps([*parts, answer["usage"]["completion_tokens"]])


def gist_of_stream(text: str) -> str:
    if not text.endswith("data: [DONE]\n\n"):
        raise ValueError(f"a stream was cut: {text[-80:]!r}")
    content = reasoning = ""
    calls: list[dict[str, str]] = []
    finish = tokens = None
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise ValueError(f"an error in a stream: {chunk['error']}")
        tokens = (chunk.get("usage") or {}).get("completion_tokens")
        for choice in chunk["choices"]:
            delta = choice.get("delta", {"content": choice.get("text")})
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    calls.append({"name": call["function"]["name"], "arguments": ""})
                calls[call["index"]]["arguments"] += call["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    return json.dumps([content, reasoning, calls, finish, tokens])


async def ask(http: httpx.AsyncClient, path: str, body: dict[str, Any], stream: bool) -> tuple[int, str]:
    """(status, gist)."""
    if stream:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    answer = await http.post(path, json=body)
    if answer.status_code != 200:
        return answer.status_code, answer.text
    return 200, gist_of_stream(answer.text) if stream else gist(answer.json())


async def be_rude(http: httpx.AsyncClient, kind: str, path: str, body: dict[str, Any]) -> int:
    """Requests that have no answer worth comparing. Returns the status, 0 for a connection that was left."""
    if kind == "leave":
        async with http.stream("POST", path, json={**body, "stream": True, "max_tokens": 400}) as answer:
            chunks = answer.aiter_raw()
            for _ in range(3):
                await anext(chunks, b"")
        return 0 if answer.status_code == 200 else answer.status_code
    if kind == "too long":
        long = {"messages": [{"role": "user", "content": "word " * 20_000}]}
        return (await http.post("/v1/chat/completions", json=long)).status_code
    return (await http.post(path, content=b'{"messages": [')).status_code


async def client(
    number: int,
    http: httpx.AsyncClient,
    asked: list[tuple[str, dict[str, Any]]],
    right: list[str],
    tally: Tally,
    end: float,
) -> None:
    source = random.Random(number)
    while time.monotonic() < end:
        i = source.randrange(len(asked))
        path, body = asked[i]
        draw = source.random()
        try:
            if draw < 0.15:
                kind = source.choice(["leave", "too long", "malformed"])
                status = await be_rude(http, kind, path, body)
                tally.count(f"{kind} {status}")
                if status not in ((0, 429, 503) if kind == "leave" else (400,)):
                    tally.wrong.append(f"{kind}: status {status}")
                continue
            status, found = await ask(http, path, body, stream=draw < 0.6)
        except (ValueError, httpx.HTTPError) as error:
            tally.wrong.append(f"question {i}: {error!r}")
            continue
        tally.count(f"answer {status}")
        if status == 200 and found != right[i]:
            tally.wrong.append(f"question {i}: {found} instead of {right[i]}")
        elif status not in (200, 429):
            tally.wrong.append(f"question {i}: status {status}: {found}")


async def settle(http: httpx.AsyncClient) -> str:
    """What is left when all clients are gone; empty if nothing."""
    for _ in range(200):
        slots = (await http.get("/slots")).json()
        if not any(slot["is_processing"] for slot in slots):
            break
        await asyncio.sleep(0.02)
    text = (await http.get("/metrics")).text
    left = [
        f"{name} is {value}"
        for name in ("kv_usage_ratio", "requests_running", "requests_waiting", "engine_faults_total")
        if (value := float(re.findall(rf"^lucebox_{name}{{.*}} (.*)$", text, re.MULTILINE)[0]))
    ]
    return ", ".join(left)


def resident(process: subprocess.Popen[str]) -> int:
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


async def load(process: subprocess.Popen[str], url: str, seconds: float, clients: int) -> tuple[Tally, list[int]]:
    """The tally, and the resident sizes at a third of the time and at its end."""
    tally = Tally()
    limits = httpx.Limits(max_connections=clients + 4)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
        asked = questions(40)
        right = []
        for path, body in asked:
            status, found = await ask(http, path, body, stream=False)
            if status != 200:
                raise SystemExit(f"{path}: status {status}: {found}")
            right.append(found)
        end = time.monotonic() + seconds
        tasks = [asyncio.create_task(client(i, http, asked, right, tally, end)) for i in range(clients)]
        await asyncio.sleep(seconds / 3)
        sizes = [resident(process)]
        await asyncio.gather(*tasks)
        left = await settle(http)
        if left:
            tally.wrong.append(left)
        sizes.append(resident(process))
        # The end comes while answers are under way: each is finished, or told.
        last = [asyncio.create_task(ask(http, *asked[i % len(asked)], stream=True)) for i in range(clients)]
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        for i, outcome in enumerate(await asyncio.gather(*last, return_exceptions=True)):
            if isinstance(outcome, tuple):
                tally.count(f"at the end {outcome[0]}")
                if outcome[0] == 200 and outcome[1] != right[i % len(asked)]:
                    tally.wrong.append(f"at the end: {outcome[1]} instead of {right[i % len(asked)]}")
            elif isinstance(outcome, ValueError) and "shutting down" in str(outcome):
                tally.count("told at the end")
            elif isinstance(outcome, httpx.ConnectError):
                tally.count("not connected at the end")
            else:
                tally.wrong.append(f"at the end: {outcome!r}")
    return tally, sizes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--model", default="nano")
    parser.add_argument("serve", nargs="*", help="further options of `lucebox serve`, behind --")
    options = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "lucebox",
        "serve",
        options.model,
        "--port",
        "0",
        "--max-ctx",
        "2048",
        *options.serve,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = iter(process.stderr)
    url = next((found.group(1) for line in lines if (found := re.search(r"listening on (\S+)", line))), None)
    if url is None:
        print("the server did not start")
        return 1
    loop = asyncio.new_event_loop()
    log: list[str] = []
    reader = loop.run_in_executor(None, lambda: log.extend(lines))
    try:
        tally, sizes = loop.run_until_complete(load(process, url, options.seconds, options.clients))
        code = process.wait(60)
    finally:
        process.kill()
        loop.run_until_complete(reader)
    if code:
        tally.wrong.append(f"the server's exit code is {code}")
    tally.wrong += [line for line in log if "Traceback" in line or line.startswith("error")]
    grown = sizes[1] - sizes[0]
    if options.seconds >= 40 and grown > MEMORY_SLACK:
        tally.wrong.append(f"{grown} bytes more at the end than at a third of the time")
    print(
        json.dumps(
            {"seen": dict(sorted(tally.seen.items())), "grown_bytes": grown, "wrong": tally.wrong[:20]}, indent=1
        )
    )
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
