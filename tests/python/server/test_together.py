"""Several requests at once on a server process: each answer is that of its solo run; clients that leave."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import served as process
from lucebox.engine import Engine
from served import Served, events, send

CHAT = "/v1/chat/completions"
CODE = "import os\n\n\nclass FileCache:\n    def __init__(self, path):\n"
PROMPTS = [
    CODE,
    "def add(a, b):\n",
    "The list of",
    "for i in range(10):\n    ",
    "import sys\nimport",
    "A server is",
    "x",
    "{",
]


def complete(http: httpx.Client, prompt: Any, **options: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": 40, "temperature": 0, **options}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def text(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["text"])


def everything(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    raw = b""
    while more := connection.recv(65536):
        raw += more
    connection.close()
    return raw


def at_once(http: httpx.Client, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: complete(http, **body), bodies))


def wait_until_idle(served: Served, seconds: float) -> None:
    """The slots are free and all KV pages are back within the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(slot["is_processing"] for slot in served.get("/slots")):
            break
    assert not any(slot["is_processing"] for slot in served.get("/slots"))
    assert served.metric("lucebox_requests_waiting") == 0
    assert served.metric("lucebox_kv_usage_ratio") == 0


@pytest.mark.parametrize("count", [1, 4, 8])
def test_identical_prompts(http: httpx.Client, solo: Engine, count: int) -> None:
    """Equal texts, and equal drafts: tokens a step do not depend on the company."""
    wanted = "".join(piece.text for piece in solo.generate(CODE, max_tokens=64))
    answers = at_once(http, [{"prompt": CODE, "max_tokens": 64}] * count)
    assert [text(answer) for answer in answers] == [wanted] * count
    drafts = {(a["timings"].get("draft_n"), a["timings"].get("draft_n_accepted")) for a in answers}
    assert len(drafts) == 1
    single = complete(http, CODE, max_tokens=64)["timings"]
    assert drafts == {(single.get("draft_n"), single.get("draft_n_accepted"))}


def test_distinct_prompts(http: httpx.Client, solo: Engine) -> None:
    """S8, C4."""
    wanted = ["".join(piece.text for piece in solo.generate(prompt, max_tokens=40)) for prompt in PROMPTS]
    answers = at_once(http, [{"prompt": prompt} for prompt in PROMPTS])
    assert [text(answer) for answer in answers] == wanted


def test_the_emulated_gpu(solo: Engine) -> None:
    """A server on a device: four at once, each as it is alone on the CPU."""
    prompts = ["x", "{", "def f", "A"]
    wanted = ["".join(piece.text for piece in solo.generate(prompt, max_tokens=3)) for prompt in prompts]
    options = ["--device", "emulated", "--slots", "4", "--max-ctx", "256"]
    with process.serve(*options) as served, httpx.Client(base_url=served.url, timeout=120) as http:
        answers = at_once(http, [{"prompt": prompt, "max_tokens": 3} for prompt in prompts])
    assert [text(answer) for answer in answers] == wanted


def test_sampled_answers_do_not_depend_on_the_company(http: httpx.Client) -> None:
    """S17: temperature 2 with drafts."""
    bodies = [
        {"prompt": p, "temperature": 2, "top_k": 50, "top_p": 1, "seed": 42 + i} for i, p in enumerate(PROMPTS[:6])
    ]
    alone = [text(complete(http, **body)) for body in bodies]
    assert [text(answer) for answer in at_once(http, bodies)] == alone
    plain = [text(complete(http, **body, **{"speculative.n_max": 0})) for body in bodies]
    assert plain == alone


def test_rejection_sampling_is_repeatable() -> None:
    """Drafts judged by p/q: another text than plain decoding, the same for a seed."""
    options = ["--draft", "nano", "--speculative", "reject", "--slots", "2", "--max-ctx", "512"]
    with process.serve(*options) as served, httpx.Client(base_url=served.url, timeout=60) as http:
        body = {"prompt": CODE, "temperature": 1, "max_tokens": 60}
        texts = [text(complete(http, **body, seed=seed)) for seed in (1, 1, 2)]
        assert texts[0] == texts[1] != texts[2]
        assert http.get("/props").json()["speculative"] == {"type": "drafter+lookup", "judge": "reject", "block": 8}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-6, "seed": 5},
        {"temperature": 1, "top_k": 1, "seed": 5},
    ],
    ids=["temperature", "top_k"],
)
def test_what_amounts_to_greedy(http: httpx.Client, options: dict[str, Any]) -> None:
    assert text(complete(http, CODE, **options)) == text(complete(http, CODE))


@pytest.mark.parametrize(
    "options",
    [
        {"frequency_penalty": 1.5},
        {"presence_penalty": -2},
        {"repetition_penalty": 1.3},
        {"min_p": 0.5, "temperature": 1, "seed": 1},
        {"logit_bias": {"300": 4}},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "[a-z ]{10,30}\\."}},
        {"min_tokens": 30, "stop": ["e"]},
        {"logprobs": 2},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_with_drafts_are_those_without(http: httpx.Client, options: dict[str, Any]) -> None:
    """S1, S10, S11, S14, S15."""
    prompt = '{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n{"a": 1,'
    drafted = complete(http, prompt, max_tokens=60, **options)
    plain = complete(http, prompt, max_tokens=60, **options, **{"speculative.n_max": 0})
    assert drafted["choices"] == plain["choices"]
    assert drafted["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
    assert "draft_n" not in plain["timings"]


@pytest.mark.parametrize("budget", [-1, 4])
def test_a_schema_behind_the_reasoning(http: httpx.Client, budget: int) -> None:
    """S12: the grammar holds from the token behind `</think>`, also where that lies inside a block."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    body = {
        "messages": [{"role": "user", "content": "Is it done? Answer in JSON."}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"schema": {**schema, "additionalProperties": False}},
        },
        "enable_thinking": True,
        "thinking_budget": budget,
        "max_tokens": 400,
        "temperature": 0,
    }
    answers = [http.post(CHAT, json={**body, **extra}).json() for extra in ({}, {"speculative.n_max": 0})]
    messages = [answer["choices"][0]["message"] for answer in answers]
    assert messages[0] == messages[1] and messages[0]["reasoning_content"]
    if answers[0]["choices"][0]["finish_reason"] == "stop":
        assert set(json.loads(messages[0]["content"])) == {"ok"}
    else:
        assert budget < 0 and messages[0]["content"] == ""


def test_many_constrained_requests(http: httpx.Client) -> None:
    """S10, S13: valid JSON from all, whitespace is bounded, and the server serves on."""
    body = {"prompt": "A record: ", "max_tokens": 200, "response_format": {"type": "json_object"}, "temperature": 1}
    answers = at_once(http, [{**body, "seed": seed} for seed in range(8)])
    for answer in answers:
        if answer["choices"][0]["finish_reason"] == "stop":
            assert isinstance(json.loads(text(answer)), dict)
        assert " " * 33 not in text(answer)


def test_a_second_shorter_request_and_the_same_twice(http: httpx.Client, solo: Engine) -> None:
    complete(http, CODE * 6, id_slot=0)
    short = "".join(piece.text for piece in solo.generate("x", max_tokens=40))
    first, second = complete(http, "x", id_slot=0), complete(http, "x", id_slot=0)
    assert text(first) == text(second) == short
    assert first["timings"].get("draft_n") == second["timings"].get("draft_n")


def body_of(**options: Any) -> bytes:
    return json.dumps({"prompt": CODE, "max_tokens": 900, "ignore_eos": True, **options}).encode()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves(served: Served, http: httpx.Client, stream: bool) -> None:
    """C7: at the third delta, or in the middle of an answer that is not streamed."""
    connection = send(served, "POST", "/v1/completions", body_of(stream=stream))
    if stream:
        seen = b""
        while seen.count(b"data: ") < 3:
            seen += connection.recv(65536)
    else:
        while not any(slot["n_decoded"] for slot in served.get("/slots")):
            pass
    connection.close()
    wait_until_idle(served, 5)
    assert 'finish_reason="cancelled"' in served.get("/metrics")


def test_a_client_that_leaves_in_its_prompt(served: Served) -> None:
    """C8."""
    connection = send(
        served, "POST", "/v1/completions", json.dumps({"prompt": [100] * 1000, "max_tokens": 20}).encode()
    )
    while not any(slot["is_processing"] for slot in served.get("/slots")):
        pass
    connection.close()
    wait_until_idle(served, 5)


def test_a_client_that_closes_its_sending_side_only(served: Served, http: httpx.Client) -> None:
    """C10: it gets its whole answer."""
    wanted = text(complete(http, CODE, max_tokens=60))
    for stream in (False, True):
        body = json.dumps({"prompt": CODE, "max_tokens": 60, "temperature": 0, "stream": stream}).encode()
        connection = send(served, "POST", "/v1/completions", body)
        connection.shutdown(socket.SHUT_WR)
        raw = everything(connection)
        assert b"HTTP/1.1 200" in raw
        if stream:
            lines = [line for line in raw.decode().splitlines() if line.startswith("data: {")]
            choices = [json.loads(line[6:])["choices"][0] for line in lines]
            assert "".join(choice["text"] for choice in choices) == wanted
        else:
            assert json.loads(raw.rpartition(b"\r\n\r\n")[2])["choices"][0]["text"] == wanted
    wait_until_idle(served, 5)


def test_a_full_queue_and_a_queued_client_that_leaves() -> None:
    """C9; 429 with its header; the active request is left alone."""
    with process.serve("--slots", "1", "--queue", "1", "--max-ctx", "1024") as served:
        active = send(served, "POST", "/v1/completions", body_of(stream=True))
        seen = active.recv(65536)
        while not any(slot["n_decoded"] for slot in served.get("/slots")):
            pass
        queued = send(served, "POST", "/v1/completions", body_of())
        while served.metric("lucebox_requests_waiting") < 1:
            pass
        with httpx.Client(base_url=served.url, timeout=60) as http:
            full = http.post("/v1/completions", json={"prompt": "x"})
            assert (full.status_code, full.headers["retry-after"]) == (429, "1")
            assert full.json()["error"]["code"] == "queue_full"
            assert http.get("/slots?fail_on_no_slot=1").status_code == 503
            assert http.get("/health").status_code == 200
            queued.close()
            while served.metric("lucebox_requests_waiting"):
                pass
            while not seen.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
                more = active.recv(65536)
                assert more
                seen += more
            assert b'"finish_reason":"length"' in seen
            assert http.post("/v1/completions", json={"prompt": "x", "max_tokens": 2}).status_code == 200


def test_sigterm_lets_running_requests_finish() -> None:
    with process.serve("--slots", "2", "--max-ctx", "1024") as served:
        connection = send(served, "POST", "/v1/completions", body_of(stream=True, max_tokens=300))
        seen = connection.recv(65536)
        waiting = served.get("/slots")
        while not any(slot["n_decoded"] for slot in waiting):
            waiting = served.get("/slots")
        served.process.terminate()
        with httpx.Client(base_url=served.url) as http:
            while (health := http.get("/health")).status_code == 200:
                pass
            assert health.status_code == 503 and "retry-after" in health.headers
            assert http.post("/v1/completions", json={"prompt": "x"}).status_code == 503
        while more := connection.recv(65536):
            seen += more
        assert b'"finish_reason":"length"' in seen and b"data: [DONE]" in seen
        assert served.process.wait(30) == 0


def test_sigterm_tells_those_that_take_too_long() -> None:
    with process.serve("--slots", "1", "--max-ctx", "8192", "--drain", "0") as served:
        streaming = send(served, "POST", "/v1/completions", body_of(stream=True, max_tokens=8000))
        seen = streaming.recv(65536)
        waiting = send(served, "POST", "/v1/completions", body_of())
        while served.metric("lucebox_requests_waiting") < 1:
            pass
        served.process.terminate()
        while more := streaming.recv(65536):
            seen += more
        assert b'data: {"error":{' in seen and seen.count(b"data: [DONE]") == 1
        refused = everything(waiting)
        assert refused.startswith(b"HTTP/1.1 503") and b"shutting down" in refused
        assert served.process.wait(30) == 0


def test_pings_while_a_stream_waits(served: Served) -> None:
    """P4: a stream that has no text yet is not silent."""
    blockers = [send(served, "POST", "/v1/completions", body_of(max_tokens=300)) for _ in range(8)]
    while not all(slot["is_processing"] for slot in served.get("/slots")):
        pass
    body = body_of(stream=True, max_tokens=2, sse_ping_interval=0.02)
    connection = send(served, "POST", "/v1/completions", body)
    raw = b""
    while b"[DONE]" not in raw:
        raw += connection.recv(65536)
    for one in (connection, *blockers):
        one.close()
    assert b": ping\n\n" in raw
    wait_until_idle(served, 5)


def test_idle_costs_no_cpu(served: Served) -> None:
    """The engine's thread sleeps: its steps stand still, and nothing waits."""
    steps = served.metric("lucebox_engine_steps_total")
    for _ in range(20):
        served.get("/health")
    assert served.metric("lucebox_engine_steps_total") == steps
    assert events(
        httpx.post(served.url + "/v1/completions", json={"prompt": "x", "max_tokens": 2, "stream": True}).text
    )
    assert served.metric("lucebox_engine_steps_total") > steps
