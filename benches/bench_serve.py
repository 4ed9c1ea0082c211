"""What the server costs beside the engine: CPU time and wall time of streamed replies against `Engine.generate`.

    python benches/bench_serve.py [--model nano] [--tokens 200] [--requests 10]

Both run the same greedy replies one after another, without drafts, so that every token is a chunk. Ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import lucebox

TICKS = os.sysconf("SC_CLK_TCK")
PROMPT = "import os\n\n\nclass FileCache:\n    def __init__(self, path):\n"


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def in_process(model: str, tokens: int, requests: int) -> tuple[float, float]:
    """(CPU, wall) seconds of a token."""
    with lucebox.load(model, threads=1, max_ctx=2048) as engine:
        list(engine.generate(PROMPT, max_tokens=tokens, ignore_eos=True, speculative="off"))
        cpu, wall = time.process_time(), time.perf_counter()
        for i in range(requests):
            list(engine.generate(f"# {i}\n{PROMPT}", max_tokens=tokens, ignore_eos=True, speculative="off"))
        return (time.process_time() - cpu) / tokens / requests, (time.perf_counter() - wall) / tokens / requests


def served(model: str, tokens: int, requests: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "lucebox", "serve", model, "--port", "0", "--threads", "1", "--max-ctx", "2048"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = next(found.group(1) for line in process.stderr if (found := re.search(r"listening on (\S+)", line)))

    def ask(http: httpx.Client, prompt: str) -> None:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json={**body, "speculative.n_max": 0}) as answer:
            for _ in answer.iter_raw():
                pass

    try:
        with httpx.Client(base_url=url, timeout=600) as http:
            ask(http, PROMPT)
            cpu, wall = cpu_seconds(process.pid), time.perf_counter()
            for i in range(requests):
                ask(http, f"# {i}\n{PROMPT}")
            return (
                (cpu_seconds(process.pid) - cpu) / tokens / requests,
                (time.perf_counter() - wall) / tokens / requests,
            )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--requests", type=int, default=10)
    options = parser.parse_args()
    alone = in_process(options.model, options.tokens, options.requests)
    over_http = served(options.model, options.tokens, options.requests)
    report = {
        "engine_cpu_ms_per_token": round(alone[0] * 1e3, 3),
        "server_cpu_ms_per_token": round(over_http[0] * 1e3, 3),
        "added_cpu_ms_per_chunk": round((over_http[0] - alone[0]) * 1e3, 3),
        "wall_ratio": round(over_http[1] / alone[1], 3),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
