"""A server in this process whose engine does what the test says: faults, restarts, death, and timeouts over HTTP."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from lucebox.chat import Chat
from lucebox.errors import DeviceError, RequestError
from lucebox.server import logs
from lucebox.server import run as server_run
from lucebox.server.config import ServerConfig
from lucebox.server.prepare import Model
from lucebox.server.run import Server
from lucebox.tokenizer import Tokenizer
from scheduler_bench import use_scripted_types
from scripted_core import Params, ScriptedCore, Work


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    use_scripted_types(monkeypatch)
    monkeypatch.setattr(server_run, "StepWork", Work)
    monkeypatch.setattr(server_run, "SequenceParams", lambda: Params({}))


@pytest.fixture
def model(nano_metadata: dict[str, Any], tokenizer: Tokenizer) -> Model:
    return Model(
        name="scripted",
        file="scripted.gguf",
        tokenizer=tokenizer,
        chat=Chat(nano_metadata, tokenizer),
        metadata=nano_metadata,
        vocab=len(tokenizer),
        n_ctx=512,
        n_ctx_train=512,
        slots=2,
        parameters=0,
        file_bytes=0,
        created=0,
        backend={},
        speculative={"type": "none"},
    )


@contextmanager
def running(
    model: Model, cores: list[ScriptedCore | Exception], **config: Any
) -> Iterator[tuple[httpx.Client, Server, list[int]]]:
    """A client, the server, and its exit code once it has ended."""
    left = iter(cores)

    def open_core() -> ScriptedCore:
        core = next(left)
        if isinstance(core, Exception):
            raise core
        return core

    logs.configure(as_json=False)
    server = Server(model, open_core, ServerConfig(port=0, **config))
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(server.run()))
    thread.start()
    try:
        assert server.listening.wait(30)
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as http:
            yield http, server, codes
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def words(tokenizer: Tokenizer, text: str = " word") -> Any:
    return lambda prompt: tokenizer.encode(text) * 300


def wait_for_health(http: httpx.Client, status: int) -> None:
    while http.get("/health").status_code != status:
        pass


def core_waits(core: ScriptedCore) -> bool:
    """Whether a step waits for its permit; each is seen once."""
    return core.entered.acquire(timeout=0.01)


def test_a_fault_before_and_in_a_stream(model: Model, tokenizer: Tokenizer) -> None:
    """503 where nothing was sent, an error event where something was; then the engine is back."""
    gate = threading.Semaphore(0)
    first = ScriptedCore(words(tokenizer), gate=gate)
    with running(model, [first, ScriptedCore(words(tokenizer))]) as (http, server, _):
        wait_for_health(http, 200)
        body = {"prompt": "x", "max_tokens": 50}
        answers: list[httpx.Response] = []
        threads = [
            threading.Thread(
                target=lambda s=stream: answers.append(http.post("/v1/completions", json={**body, "stream": s}))
            )  # type: ignore[misc]
            for stream in (False, True)
        ]
        for thread in threads:
            thread.start()
        while len(server.scheduler.running()) < 2:
            assert all(thread.is_alive() for thread in threads)
            if core_waits(first):
                gate.release()
        first.fail = [DeviceError("secret detail")]
        gate.release(100)
        for thread in threads:
            thread.join(30)
        whole, stream = sorted(answers, key=lambda answer: answer.headers["content-type"])
        assert whole.status_code == 503 and whole.json()["error"]["type"] == "unavailable_error"
        assert stream.status_code == 200 and stream.text.count('data: {"error":{') == 1
        assert stream.text.endswith("data: [DONE]\n\n")
        assert "secret" not in whole.text + stream.text
        wait_for_health(http, 200)
        again = http.post("/v1/completions", json=body)
        assert again.json()["choices"][0]["text"] == " word" * 50
        assert server.metrics.value("lucebox_engine_faults_total") == 1


def test_an_engine_that_cannot_be_loaded_again(model: Model, tokenizer: Tokenizer) -> None:
    """Requests are told, and the process ends with an error code."""
    core = ScriptedCore(words(tokenizer))
    with running(model, [core, RequestError("gone")]) as (http, server, codes):
        wait_for_health(http, 200)
        core.fail = [DeviceError("broken")]
        assert http.post("/v1/completions", json={"prompt": "x"}).status_code == 503
    assert codes == [1] and server.scheduler.dead


def test_while_the_model_is_loaded(model: Model, tokenizer: Tokenizer) -> None:
    """503 with a reason, and other routes answer."""
    gate = threading.Event()

    class Slow(ScriptedCore):
        def begin(self, slot: int, params: Params, prompt_ids: Any) -> None:
            gate.wait(30)
            super().begin(slot, params, prompt_ids)

    with running(model, [Slow(words(tokenizer))]) as (http, _, codes):
        answer = http.get("/health")
        assert answer.status_code == 503 and "loading" in answer.json()["error"]["message"]
        assert http.get("/v1/models").status_code == 200
        gate.set()
        wait_for_health(http, 200)
    assert codes == [0]


def test_all_else_answers_while_a_step_runs(model: Model, tokenizer: Tokenizer) -> None:
    """No other route waits for the engine: here its step does not end before they have answered."""
    gate = threading.Semaphore(0)
    core = ScriptedCore(words(tokenizer), gate=gate)
    with running(model, [core]) as (http, server, _):
        wait_for_health(http, 200)
        answers: list[httpx.Response] = []
        thread = threading.Thread(
            target=lambda: answers.append(http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}))
        )
        thread.start()
        assert core.entered.acquire(timeout=30)
        for path in ("/health", "/slots", "/metrics", "/props", "/v1/models"):
            assert http.get(path).status_code == 200
        assert http.post("/tokenize", json={"content": "a b"}).json()["tokens"]
        assert http.get("/slots").json()[0]["is_processing"]
        assert server.metrics.value("lucebox_requests_running") == 1
        assert not answers
        gate.release(10)
        thread.join(30)
        assert answers[0].json()["choices"][0]["text"] == " word"


def test_a_template_that_refuses(model: Model, tokenizer: Tokenizer) -> None:
    """400, not 500; so is one that would run for ever."""
    endless = "{% for i in range(1000000) %}{% for j in range(1000000) %}{{ i }}{% endfor %}{% endfor %}"
    for template in ("{{ raise_exception('No user query found in messages.') }}", endless, "{{ 1 / 0 }}"):
        hostile = dataclasses.replace(model, chat=Chat({"tokenizer.chat_template": template}, tokenizer))
        with running(hostile, [ScriptedCore(words(tokenizer))]) as (http, _, _codes):
            wait_for_health(http, 200)
            body = {"messages": [{"role": "user", "content": "x"}]}
            for path in ("/v1/chat/completions", "/apply-template"):
                answer = http.post(path, json=body)
                assert answer.status_code == 400 and "chat template" in answer.json()["error"]["message"]


def test_a_time_limit(model: Model, tokenizer: Tokenizer) -> None:
    """What there is of a reply is its end; what never began is told."""
    gate = threading.Semaphore(0)
    core = ScriptedCore(words(tokenizer), slots=1, gate=gate)
    with running(model, [core], timeout=0.2) as (http, server, _):
        wait_for_health(http, 200)
        answers: dict[str, httpx.Response] = {}

        def ask(prompt: str) -> None:
            answers[prompt] = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 400})

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in ("a", "b")]
        threads[0].start()
        assert core.entered.acquire(timeout=30)
        gate.release()
        assert core.entered.acquire(timeout=30)
        threads[1].start()
        while server.scheduler.waiting < 1:
            assert threads[1].is_alive()
        over = time.monotonic() + 0.3
        while time.monotonic() < over:
            pass
        gate.release(1000)
        for thread in threads:
            thread.join(30)
        finished = [answer for answer in answers.values() if answer.status_code == 200]
        told = [answer for answer in answers.values() if answer.status_code == 503]
        assert len(finished) == 1 and finished[0].json()["choices"][0]["finish_reason"] == "length"
        assert len(told) == 1 and told[0].json()["error"]["code"] == "timeout"


def test_a_port_that_is_taken(model: Model, tokenizer: Tokenizer) -> None:
    with running(model, [ScriptedCore(words(tokenizer))]) as (_, server, _codes):
        taken = ServerConfig(port=server.port)
        with pytest.raises(RequestError, match=f"cannot listen on 127.0.0.1 port {server.port}: "):
            Server(model, lambda: ScriptedCore(words(tokenizer)), taken).run()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": 70000}, "port: 70000"),
        ({"queue": -1}, "queue: -1"),
        ({"speculative": "maybe"}, "known are match, reject, off"),
        ({"api_keys": ("",)}, "a key is empty"),
        ({"api_keys": ("é",)}, "a key is empty or has characters"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        ServerConfig(**options)
