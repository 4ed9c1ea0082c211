"""The official client against a server process: every feature, streamed and not."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from lucebox.engine import Engine
from openai.types.chat import ChatCompletion
from served import Served

QUESTION = [{"role": "user", "content": "Write a Python function that adds two numbers."}]
GREEDY: dict[str, Any] = {"model": "nano", "temperature": 0, "extra_body": {"enable_thinking": False}}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["a", "b"],
        },
    },
}


def joined(stream: Any) -> dict[str, Any]:
    """A stream put together by hand, with what every chunk must satisfy."""
    seen: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": {}, "logprobs": [], "usage": None}
    heads = set()
    for chunk in stream:
        heads.add((chunk.id, chunk.created, chunk.model))
        if not chunk.choices:
            seen["usage"] = chunk.usage
            continue
        (choice,) = chunk.choices
        delta = choice.delta.model_dump(exclude_none=True)
        assert len(set(delta) - {"role"}) <= 1
        seen["content"] += delta.get("content", "")
        seen["reasoning"] += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            known = seen["calls"].setdefault(call["index"], {"arguments": ""})
            known["arguments"] += call["function"].get("arguments", "")
            if "id" in call:
                assert call["function"]["arguments"] == "" and known == {"arguments": ""}
                known.update(id=call["id"], name=call["function"]["name"])
        if choice.logprobs is not None:
            seen["logprobs"] += choice.logprobs.content
        if choice.finish_reason:
            seen["finish"][choice.index] = choice.finish_reason
    assert len(heads) == 1
    return seen


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "nano" and model.model_dump()["max_model_len"] == 1024
    assert client.models.retrieve("nano").id == "nano"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


@pytest.mark.parametrize("thinking", [False, True])
def test_an_answer_is_that_of_the_engine(client: openai.OpenAI, solo: Engine, thinking: bool) -> None:
    pieces = list(solo.generate(QUESTION, max_tokens=48, thinking=thinking))
    text, reasoning = "".join(p.text for p in pieces), "".join(p.reasoning for p in pieces)
    options = {**GREEDY, "max_tokens": 48, "extra_body": {"enable_thinking": thinking}}
    whole = client.chat.completions.create(messages=QUESTION, **options)
    message = whole.choices[0].message
    assert (message.content, message.model_dump().get("reasoning_content", "")) == (text, reasoning)
    assert whole.choices[0].finish_reason == pieces[-1].finish_reason
    stream = client.chat.completions.create(
        messages=QUESTION, stream=True, stream_options={"include_usage": True}, **options
    )
    seen = joined(stream)
    assert (seen["content"], seen["reasoning"]) == (text, reasoning)
    assert whole.usage is not None
    assert seen["usage"].completion_tokens == whole.usage.completion_tokens == pieces[-1].timings.generated_tokens
    assert seen["usage"].prompt_tokens == len(solo.chat.encode(QUESTION, thinking=thinking).ids)
    assert (seen["usage"].completion_tokens_details.reasoning_tokens > 0) == thinking


def test_timings_and_usage(client: openai.OpenAI) -> None:
    answer: dict[str, Any] = client.chat.completions.create(messages=QUESTION, max_tokens=20, **GREEDY).model_dump()
    timings, usage = answer["timings"], answer["usage"]
    assert timings["prompt_n"] == usage["prompt_tokens"] and timings["predicted_n"] == usage["completion_tokens"] == 20
    assert timings["cache_n"] == 0 and timings["predicted_ms"] > 0 and timings["prompt_per_second"] > 0
    assert usage["timings"]["decode_tokens_per_sec"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + 20
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == timings.get("draft_n_accepted", 0)
    chunks = list(client.chat.completions.create(messages=QUESTION, max_tokens=5, stream=True, **GREEDY))
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    assert chunks[-1].model_dump()["timings"]["predicted_n"] == 5
    every = {**GREEDY, "extra_body": {"enable_thinking": False, "timings_per_token": True}}
    chunks = list(client.chat.completions.create(messages=QUESTION, max_tokens=5, stream=True, **every))
    counts = [chunk.model_dump()["timings"]["predicted_n"] for chunk in chunks[1:]]
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] == 5


def test_stop_strings(client: openai.OpenAI, solo: Engine) -> None:
    text = "".join(p.text for p in solo.generate(QUESTION, max_tokens=48, thinking=False))
    stop = text[20:26]
    for stream in (False, True):
        answer = client.chat.completions.create(messages=QUESTION, max_tokens=48, stop=[stop], stream=stream, **GREEDY)
        if stream:
            seen = joined(answer)
            assert (seen["content"], seen["finish"]) == (text[: text.index(stop)], {0: "stop"})
        else:
            assert answer.choices[0].message.content == text[: text.index(stop)]
            assert answer.choices[0].finish_reason == "stop"


def test_seeds_and_n(client: openai.OpenAI) -> None:
    options = {**GREEDY, "temperature": 1.2, "seed": 42, "max_tokens": 24, "n": 3}
    first = client.chat.completions.create(messages=QUESTION, **options)
    second = client.chat.completions.create(messages=QUESTION, **options)
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) == 3 and [choice.index for choice in first.choices] == [0, 1, 2]
    assert first.usage is not None
    single = client.chat.completions.create(messages=QUESTION, **{**options, "n": 1})
    assert single.choices[0].message.content == texts[0]
    assert single.usage is not None and first.usage.prompt_tokens == single.usage.prompt_tokens
    streamed: dict[int, str] = {}
    for chunk in client.chat.completions.create(messages=QUESTION, stream=True, **options):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert streamed == dict(enumerate(texts))


def test_logprobs(client: openai.OpenAI, solo: Engine) -> None:
    options = {**GREEDY, "max_tokens": 32, "logprobs": True, "top_logprobs": 3}
    plain = {**options, "extra_body": {"enable_thinking": False, "speculative.n_max": 0}}
    whole = client.chat.completions.create(messages=QUESTION, **options)
    content = whole.choices[0].logprobs.content  # type: ignore[union-attr]
    assert content is not None and len(content) == 32
    assert all(entry.logprob == entry.top_logprobs[0].logprob < 0 for entry in content)
    assert b"".join(bytes(entry.bytes or ()) for entry in content).decode() == whole.choices[0].message.content
    # S1: accepted drafts have the numbers of plain decoding.
    other = client.chat.completions.create(messages=QUESTION, **plain).choices[0].logprobs
    assert other is not None and other.content == content
    streamed = joined(client.chat.completions.create(messages=QUESTION, stream=True, **options))["logprobs"]
    assert streamed == content


def test_logit_bias_and_penalties(client: openai.OpenAI, solo: Engine) -> None:
    first = client.chat.completions.create(messages=QUESTION, max_tokens=1, **GREEDY).choices[0].message.content
    (id,) = solo.tokenizer.encode(first or "")
    banned = client.chat.completions.create(messages=QUESTION, max_tokens=1, logit_bias={str(id): -100}, **GREEDY)
    assert banned.choices[0].message.content != first
    texts = [
        client.chat.completions.create(messages=QUESTION, max_tokens=40, frequency_penalty=value, **GREEDY)
        .choices[0]
        .message.content
        for value in (-2, 2)
    ]
    assert texts[0] != texts[1]  # S14


def test_min_tokens_and_ignore_eos(client: openai.OpenAI) -> None:
    short = [{"role": "user", "content": "Hi"}]
    ends = client.chat.completions.create(messages=short, max_tokens=200, **GREEDY)
    assert ends.choices[0].finish_reason == "stop" and ends.usage is not None
    length = ends.usage.completion_tokens
    for extra, finish in (({"min_tokens": length + 5}, None), ({"ignore_eos": True}, "length")):
        body = {**GREEDY, "extra_body": {"enable_thinking": False, **extra}}
        answer = client.chat.completions.create(messages=short, max_tokens=length + 20, **body)
        assert answer.usage is not None and answer.usage.completion_tokens >= length + 5
        assert finish is None or answer.choices[0].finish_reason == finish


def test_an_agent_loop(client: openai.OpenAI) -> None:
    """A tool is called, its result is given back, and the model answers; streamed and not."""
    for stream in (False, True):
        messages: list[Any] = [
            {"role": "developer", "content": "You are a calculator."},
            {"role": "user", "content": "What is 12 plus 30? Use the tool."},
        ]
        options = {**GREEDY, "max_tokens": 200, "tools": [TOOL], "tool_choice": "required", "stream": stream}
        answer = client.chat.completions.create(messages=messages, **options)
        if stream:
            seen = joined(answer)
            assert seen["finish"] == {0: "tool_calls"} and seen["content"] == ""
            calls = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in seen["calls"].values()
            ]
        else:
            assert answer.choices[0].finish_reason == "tool_calls" and answer.choices[0].message.content is None
            calls = [call.model_dump() for call in answer.choices[0].message.tool_calls]
        assert calls
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        for call in calls:
            assert call["function"]["name"] == "add"
            arguments = json.loads(call["function"]["arguments"])
            assert isinstance(arguments["a"], int) and isinstance(arguments["b"], int)
            result = [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        final = client.chat.completions.create(messages=messages, tools=[TOOL], max_tokens=40, **GREEDY)
        assert isinstance(final, ChatCompletion) and final.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_json_mode_and_schema(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    prompt = [{"role": "user", "content": "Give a JSON record of a person."}]
    forms: list[Any] = [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}},
    ]
    for form in forms:
        whole = client.chat.completions.create(messages=prompt, max_tokens=300, response_format=form, **GREEDY)
        stream = client.chat.completions.create(
            messages=prompt, max_tokens=300, response_format=form, stream=True, **GREEDY
        )
        content = whole.choices[0].message.content or ""
        assert joined(stream)["content"] == content
        if whole.choices[0].finish_reason == "stop":
            value = json.loads(content)
            assert isinstance(value, dict)
            if form["type"] == "json_schema":
                assert set(value) == {"name", "age"} and isinstance(value["age"], int)
        # The same tokens as without drafts.
        plain = {**GREEDY, "extra_body": {"enable_thinking": False, "speculative.n_max": 0}}
        other = client.chat.completions.create(messages=prompt, max_tokens=300, response_format=form, **plain)
        assert other.choices[0].message.content == content


def test_completions(client: openai.OpenAI, solo: Engine) -> None:
    prompt = "def fibonacci(n):\n"
    text = "".join(p.text for p in solo.generate(prompt, max_tokens=24))
    answer = client.completions.create(model="nano", prompt=prompt, max_tokens=24, temperature=0, logprobs=2)
    assert answer.choices[0].text == text and answer.object == "text_completion"
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and "".join(logprobs.tokens or ()) == text
    assert logprobs.text_offset is not None and logprobs.text_offset[0] == 0
    ids = solo.tokenizer.encode(prompt)
    many = client.completions.create(
        model="nano",
        prompt=[ids, ids],
        max_tokens=24,
        temperature=0,
        echo=True,  # type: ignore[arg-type]
    )
    assert [choice.text for choice in many.choices] == [prompt + text] * 2
    stream = client.completions.create(model="nano", prompt=prompt, max_tokens=24, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == text


def test_errors_have_their_classes(client: openai.OpenAI, served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=[], **GREEDY)
    assert error.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=QUESTION, **{**GREEDY, "temperature": 3})
    assert error.value.param == "temperature"
    long = [{"role": "user", "content": "word " * 2000}]
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=long, **GREEDY)
    assert error.value.code == "context_length_exceeded"
    assert "maximum context length is 1024 tokens" in error.value.message
    assert "exceeds the available context size" in error.value.message
    assert error.value.body["n_ctx"] == 1024  # type: ignore[index]
    assert client.chat.completions.create(messages=QUESTION, max_tokens=2, **GREEDY).choices[0].message.content
