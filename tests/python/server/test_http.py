"""Routes, errors, limits, keys and CORS of a server process, without a client library in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import served as process
from lucebox.engine import Engine
from served import Served, events

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}
SHORT: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "enable_thinking": False}


def chat(http: httpx.Client, messages: Any = (USER,), **body: Any) -> httpx.Response:
    messages = list(messages) if isinstance(messages, tuple) else messages
    return http.post(CHAT, json={"messages": messages, **SHORT, **body})


def refused(answer: httpx.Response, status: int = 400, param: str | None = None) -> dict[str, Any]:
    """The error object, whose form is checked."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    error: dict[str, Any] = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert "Traceback" not in answer.text and "/" not in error["message"].replace("application/json", "")
    if param is not None:
        assert error["param"] == param, error
    return error


@pytest.mark.parametrize(
    "path", ["/health", "/v1/health", "/props", "/slots", "/v1/models", "/models", "/openapi.json"]
)
def test_get_routes(http: httpx.Client, path: str) -> None:
    for one in (path, path + "/", path + "?beta=true"):
        answer = http.get(one)
        assert answer.status_code == 200 and answer.json()
        assert http.head(one).status_code == 200
    refused(http.delete(path), 405)


def test_paths_that_are_none(http: httpx.Client) -> None:
    refused(http.get("/nothing"), 404)
    refused(http.get("/v1/models/other"), 404)
    refused(http.get(CHAT), 405)
    assert http.options("/anything").status_code == 204
    assert http.post("/chat/completions/?beta=true", json={"messages": [USER], **SHORT}).status_code == 200


def test_props_and_slots(http: httpx.Client) -> None:
    props = http.get("/props").json()
    assert props["total_slots"] == 8 and props["model_alias"] == "nano"
    assert props["model_path"] == "nano-IQ4_XS.gguf"
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert props["default_generation_settings"]["params"]["temperature"] == pytest.approx(0.7)
    assert "<|im_start|>" in props["chat_template"]
    slots = http.get("/slots").json()
    assert [slot["id"] for slot in slots] == list(range(8))
    assert http.get("/slots?fail_on_no_slot=1").status_code == 200


def test_tokens_and_templates(http: httpx.Client, solo: Engine) -> None:
    text = "a 🎉<|im_end|>"
    ids = solo.tokenizer.encode(text)
    assert http.post("/tokenize", json={"content": text}).json() == {"tokens": ids}
    plain = http.post("/tokenize", json={"content": text, "parse_special": False}).json()["tokens"]
    assert plain == solo.tokenizer.encode(text, special=False)
    pieces = http.post("/tokenize", json={"content": "🎉", "with_pieces": True}).json()["tokens"]
    assert b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    counted = http.post("/tokenize", json={"prompt": text}).json()
    assert counted == {"tokens": ids, "count": len(ids), "max_model_len": 1024}
    messages = http.post("/tokenize", json={"messages": [USER]}).json()
    assert messages["tokens"] == solo.chat.encode([USER]).ids
    assert http.post("/detokenize", json={"tokens": ids}).json() == {"content": text}
    half = solo.tokenizer.encode("🎉")[:1]
    assert http.post("/detokenize", json={"tokens": half}).json()["content"] == "\ufffd"
    prompt = http.post("/apply-template", json={"messages": [USER]}).json()["prompt"]
    assert prompt == solo.chat.encode([USER]).text
    refused(http.post("/tokenize", json={}))
    refused(http.post("/detokenize", json={"tokens": [1 << 40]}))
    refused(http.post("/detokenize", json={"tokens": [999_999]}), 400, "tokens")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),  # M7
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, None),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 0.01}, "top_k"),  # L6
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"min_tokens": 9}, "min_tokens"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),  # L5
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": [[1, True]]}, "logit_bias"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": "é" * 200}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x", ""]}, "stop[1]"),
        ({"stop_token_ids": [999_999]}, "stop_token_ids"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"seed": 1 << 63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, "repeat_last_n"),
        ({"typical_p": 0.5}, "typical_p"),
        ({"mirostat": 2}, "mirostat"),
        ({"dry_multiplier": 0.8}, "dry_multiplier"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tool_choice": "sometimes"}, None),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 129}, "tools"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"enable_thinking": "maybe"}, None),
        ({"chat_template_kwargs": {"enable_thinking": 3}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"messages": []}}, None),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}, "response_format"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"id_slot": 8}, "id_slot"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"stream": "yes"}, "stream"),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else "",
)
def test_what_is_refused(http: httpx.Client, body: dict[str, Any], param: str | None) -> None:
    refused(http.post(CHAT, json={"messages": [USER], **SHORT, **body}), 400, param)


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": None, "top_p": None, "stop": None, "tools": None, "seed": None, "stream_options": None},  # M9
        {"store": True, "metadata": {"a": "b"}, "service_tier": "auto", "user": "u", "verbosity": "low"},
        {"modalities": ["text"], "prediction": None, "prompt_cache_key": "k", "safety_identifier": "s"},
        {"typical_p": 1, "mirostat": 0, "dry_multiplier": 0.0, "xtc_probability": 0, "samplers": []},
        {"top_k": -1, "top_p": 1, "min_p": 0},
        {"top_k": 10**6},
        {"temperature": 1e-6, "seed": 3},
        {"temperature": 1, "top_k": 1},
        {"stop": ["zzz"], "stream_options": {"include_usage": True}},
        {"max_completion_tokens": 3},  # M10
        {"max_tokens": 10**6, "stop": "e"},
        {"logit_bias": [[5, False], [6, -1.5]]},
        {"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}]},  # T13
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "none"},
        {"reasoning_effort": "minimal"},
        {"reasoning": {"effort": "none"}},
        {"thinking": {"type": "enabled", "budget_tokens": 2}},
        {"chat_template_kwargs": {"enable_thinking": "false"}},
        {"return_tokens": True, "cache_prompt": False, "id_slot": 2, "sse_ping_interval": -1},
        {"t_max_predict_ms": 1},
        {"model": "anything"},
        {"repeat_penalty": 1.1},
        {"min_tokens": 2, "ignore_eos": True},
    ],
    ids=lambda body: ",".join(body)[:50],
)
def test_what_is_taken(http: httpx.Client, body: dict[str, Any]) -> None:
    answer = chat(http, **body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "nano"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "Be brief."}, USER],  # M1
        [USER, {"role": "system", "content": "Be brief."}, USER],  # M2
        [  # M3, M4
            USER,
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}'}}]},
            {"role": "tool", "tool_call_id": "other", "content": [{"type": "text", "text": "42"}]},  # M5
        ],
        [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{broken"}}]}],
        [USER, {"role": "assistant", "content": "The answer is"}],  # M8
        [{"role": "system", "content": "only"}],
        [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]}],
        [{"role": "user", "content": None}, {"role": "assistant", "content": []}, USER],
        [USER, {"role": "function", "name": "f", "content": "1"}],
        [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, USER],
        [{"role": "user", "content": "half \ud800 pair"}],
    ],
    ids=lambda messages: "-".join(message["role"] for message in messages),
)
def test_conversations(http: httpx.Client, messages: list[dict[str, Any]]) -> None:
    for thinking in (False, True):
        body = {"messages": messages, **SHORT, "enable_thinking": thinking}
        answer = http.post(CHAT, content=json.dumps(body), headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text


def test_parts_that_are_not_text(http: httpx.Client) -> None:
    """M6."""
    for kind in ("image_url", "input_audio", "file"):
        error = refused(chat(http, [{"role": "user", "content": [{"type": kind}]}]))
        assert "input is not supported" in error["message"] and "messages[0].content[0]" in error["message"]


def test_prefill_goes_on(http: httpx.Client, solo: Engine) -> None:
    messages = [USER, {"role": "assistant", "content": "The answer"}]
    pieces = list(solo.generate(messages, max_tokens=4, thinking=False))
    for extra in ({}, {"add_generation_prompt": False}, {"continue_final_message": True}):
        answer = chat(http, messages, **extra).json()
        assert answer["choices"][0]["message"]["content"] == "".join(piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b"\xff", {}, 400),
        (b'{"messages": NaN}', {}, 400),
        (b'{"messages": ' + b"[" * 200 + b"]" * 200 + b"}", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"temperature": 1' + b"0" * 5000 + b"}", {}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 415),
    ],
    ids=range(10),
)
def test_bodies_that_are_none(http: httpx.Client, content: bytes, headers: dict[str, str], status: int) -> None:
    headers = {"content-type": "application/json", **headers}
    refused(http.post(CHAT, content=content, headers=headers), status)


def test_lists_that_are_too_long_name_the_count(http: httpx.Client) -> None:
    error = refused(http.post(CHAT, json={"messages": [USER], **SHORT, "stop": ["x"] * 17}), 400, "stop")
    assert "at most 16" in error["message"] and "17" in error["message"]
    error = refused(http.post("/v1/completions", json={"prompt": ["x"] * 129}), 400, "prompt")
    assert "at most 128" in error["message"] and "129" in error["message"]
    error = refused(http.post("/v1/completions", json={"prompt": [5, -1]}), 400, "prompt[1]")
    assert "greater than or equal to 0" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("grammar", ["root ::= (", "root ::= root", "root ::= other", 'root ::= root "a"', "", "x"])
def test_grammars_that_are_none(http: httpx.Client, grammar: str, stream: bool) -> None:
    refused(chat(http, grammar=grammar, stream=stream), 400, "grammar")


def test_what_is_no_http(served: Served) -> None:
    with process.socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(b"nothing\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"application/json" in head
    assert json.loads(body)["error"]["message"] == "the request is not valid HTTP"


def test_a_length_that_is_too_much_is_answered_before_the_body(served: Served) -> None:
    with process.send(served, "POST", CHAT, headers={"content-length": str((32 << 20) + 1)}) as connection:
        head = connection.makefile("rb").readline()
    assert head.startswith(b"HTTP/1.1 413 ")


def test_the_longest_body(http: httpx.Client) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(33):
            yield b" " * (1 << 20)

    refused(http.post(CHAT, content=parts(), headers={"content-type": "application/json"}), 413)
    refused(http.post(CHAT, content=b" " * (33 << 20), headers={"content-type": "application/json"}), 413)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^+[a-z]$"},  # L1
        {"type": "string", "pattern": "(?<=a)b"},
        {"type": "string", "pattern": r"(a)\1"},
        {"type": "string", "pattern": "(" * 10_000},
        {"type": "banana"},  # L2
        {"$ref": "http://example.org/x"},
        {"type": "object", "not": {}},
        {"enum": []},
        {"type": "object", "properties": {str(i): {} for i in range(1001)}},
        {"type": "string", "description": "x" * 70_000},
        {"type": "string", "minLength": 5, "maxLength": 3},
    ],
    ids=range(11),
)
def test_schemas_that_cannot_be_enforced(http: httpx.Client, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for stream in (False, True):
        refused(chat(http, response_format=form, stream=stream))


def test_schemas_that_are_nested_deeply(http: httpx.Client) -> None:
    """L3."""
    schema: dict[str, Any] = {"type": "string"}
    for i in range(30):
        schema = {"oneOf": [{"type": "integer"}, {"type": "object", "properties": {f"p{i}": schema}}]}
    refused(chat(http, response_format={"type": "json_schema", "json_schema": {"schema": schema}}))


def test_a_grammar_that_becomes_too_complex(http: httpx.Client, solo: Engine) -> None:
    """A limit that is met while tokens are masked ends the request, not with half a JSON text; others go on."""
    schema = {"type": "object", "properties": {f"a{i}": {"type": "string"} for i in range(1000)}}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    closing = {str(id): -100 for id in range(len(solo.tokenizer)) if b"}" in solo.tokenizer.token_bytes(id)}
    error = refused(chat(http, response_format=form, max_tokens=100, logit_bias=closing))
    assert "too complex" in error["message"]
    assert chat(http).status_code == 200


def test_context_limits(http: httpx.Client) -> None:
    """L8: n_ctx + 1, n_ctx, and n_ctx - 5, where the block is cut; the request behind each works."""
    for count in (1025, 1024):
        error = refused(http.post("/v1/completions", json={"prompt": [100] * count, "max_tokens": 1}))
        assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == ("context_length_exceeded", count, 1024)
        assert chat(http).status_code == 200
    for body in ({"ignore_eos": True}, {"ignore_eos": True, "max_tokens": 500}):
        answer = http.post(
            "/v1/completions", json={"prompt": [100, 200] * 509 + [300], "temperature": 0, **body}
        ).json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("prompt", ["", [], [[]], [""]], ids=range(4))
def test_empty_prompts(http: httpx.Client, prompt: Any) -> None:
    refused(http.post("/v1/completions", json={"prompt": prompt}))  # L7


def test_max_tokens_of_nothing(http: httpx.Client) -> None:
    for path, body in ((CHAT, {"messages": [USER]}), ("/v1/completions", {"prompt": "a"})):
        answer = http.post(path, json={**body, "max_tokens": 0}).json()
        assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", ["auto", "deepseek", "none"])
@pytest.mark.parametrize("shown", [False, True])
def test_tags_never_leak(http: httpx.Client, thinking: bool, stream: bool, form: str, shown: bool) -> None:
    """R1, and the grid of thinking and streaming: with 5 tokens everything may still be reasoning."""
    for limit in (5, 80):
        options = {"max_tokens": limit, "enable_thinking": thinking, "reasoning_format": form}
        answer = chat(http, stream=stream, include_reasoning=shown, **options)
        if stream:
            choices = [choice["delta"] for event in events(answer.text) for choice in event["choices"]]
        else:
            choices = [answer.json()["choices"][0]["message"]]
        content = "".join(choice.get("content") or "" for choice in choices)
        reasoning = "".join(choice.get("reasoning_content") or "" for choice in choices)
        if form != "none":
            assert "think>" not in content + reasoning
            assert bool(reasoning) == (thinking and shown)
            assert content == "" or not (thinking and limit == 5)
        else:
            assert reasoning == "" and content


def test_streams_are_framed_as_the_rules_say(http: httpx.Client) -> None:
    """P3: usage is a chunk of its own and only where it is asked for."""
    answer = chat(http, stream=True, stream_options={"include_usage": True}, max_tokens=6)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache" and answer.headers["x-accel-buffering"] == "no"
    chunks = events(answer.text)
    assert chunks[0]["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 6 and "timings" in chunks[-1]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-2]["choices"][0]["delta"] == {} and chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    chunks = events(chat(http, stream=True, max_tokens=6).text)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks) and "timings" in chunks[-1]


def test_progress_of_a_long_prompt(http: httpx.Client) -> None:
    body = {"prompt": [100] * 700, "max_tokens": 1, "stream": True, "return_progress": True}
    found = [event["prompt_progress"] for event in events(http.post("/v1/completions", json=body).text)[:-2]]
    processed = [progress["processed"] for progress in found]
    assert processed == sorted(processed) and len(processed) >= 4
    assert all(progress["total"] == 700 and progress["cache"] == 0 for progress in found)


def test_token_ids_on_request(http: httpx.Client, solo: Engine) -> None:
    answer = chat(http, return_token_ids=True, max_tokens=20).json()["choices"][0]
    assert solo.tokenizer.decode(answer["token_ids"]) == answer["message"]["content"]
    chunks = events(chat(http, return_tokens=True, max_tokens=20, stream=True).text)
    assert sum((chunk["choices"][0]["token_ids"] for chunk in chunks), []) == answer["token_ids"]


def test_a_thinking_budget(http: httpx.Client, solo: Engine) -> None:
    """S16: closed at the budget, with drafts and without; the answer goes on behind it."""
    close = len(solo.tokenizer.encode("\n</think>"))
    for extra in ({}, {"speculative.n_max": 0}):
        for budget in (0, 3):
            answer = chat(http, enable_thinking=True, thinking_budget=budget, max_tokens=40, **extra).json()
            assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == budget + close
            assert answer["choices"][0]["message"]["content"]
            assert bool(answer["choices"][0]["message"].get("reasoning_content")) == bool(budget)
    unlimited = chat(http, enable_thinking=True, thinking_budget=-1, reasoning_effort="minimal", max_tokens=40).json()
    assert unlimited["usage"]["completion_tokens_details"]["reasoning_tokens"] > 3 + close


def test_metrics(served: Served, http: httpx.Client) -> None:
    before = served.metric("lucebox_generation_tokens_total")
    chat(http, max_tokens=7)
    text = served.get("/metrics")
    assert served.metric("lucebox_generation_tokens_total") - before == 7
    assert served.metric("llamacpp:tokens_predicted_total") == served.metric("lucebox_generation_tokens_total")
    for name in ("ttft", "inter_token", "e2e", "queue", "prefill", "decode"):
        assert f"lucebox_{name}_seconds_bucket" in text
    assert 'lucebox_requests_total{code="200",finish_reason="length",model="nano"}' in text
    assert served.metric("lucebox_kv_usage_ratio") == 0
    assert http.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_cors(http: httpx.Client) -> None:
    local = {"origin": "http://localhost:3000", "access-control-request-headers": "x-stainless-os"}
    answer = http.options(CHAT, headers=local)
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert answer.headers["access-control-allow-headers"] == "x-stainless-os"
    assert http.get("/nothing", headers=local).headers["access-control-allow-origin"] == "http://localhost:3000"
    for origin in ("https://evil.example", "http://localhost.evil.example", "null", "http://[::1"):
        assert "access-control-allow-origin" not in http.get("/health", headers={"origin": origin}).headers


def test_api_keys_and_options() -> None:
    arguments = ["--api-key", "first,second", "--cors-origins", "*", "--strict-model", "--alias", "my-model"]
    with process.serve(*arguments, "--slots", "1", "--max-ctx", "256", "--no-metrics", "--log-json") as served:
        with httpx.Client(base_url=served.url) as http:
            assert http.get("/health").status_code == 200
            answer = http.get("/v1/models", headers={"origin": "https://a.example"})
            refused(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["access-control-allow-origin"] == "https://a.example"
            for headers in ({"authorization": "Bearer firs"}, {"x-api-key": ""}, {"authorization": "first"}):
                refused(http.get("/v1/models", headers=headers), 401)
            for headers in ({"authorization": "bearer first"}, {"x-api-key": "second"}):
                assert http.get("/v1/models", headers=headers).json()["data"][0]["id"] == "my-model"
            key = {"x-api-key": "first"}
            body = {"messages": [{"role": "user", "content": "a secret text"}], "max_tokens": 1, "model": "my-model"}
            assert http.post(CHAT, headers=key, json=body).status_code == 200
            error = refused(http.post(CHAT, headers=key, json={**body, "model": "other"}), 404, "model")
            assert error["code"] == "model_not_found"
            refused(http.get("/metrics", headers=key), 404)
        assert served.end() == 0
    lines = [json.loads(line) for line in served.log]
    assert any(line.get("prompt_tokens") and line["status"] == 200 for line in lines)
    assert "secret" not in "".join(served.log) and "first" not in "".join(served.log)
