"""The engine on nano: what a request gives, where it ends, and what is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lucebox import Piece, _core, load
from lucebox.engine import Engine
from lucebox.errors import (
    ContextFullError,
    DeviceError,
    Error,
    GGUFError,
    OutOfMemoryError,
    RequestError,
    UnsupportedModelError,
)
from lucebox.selftest import tiny

PROMPT = "def fibonacci(n):"
EVEN = [{"role": "user", "content": "Write a Python function `is_even(n)`. Return True if n is even."}]


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    return [id for piece in pieces for id in piece.token_ids]


def greedy_by_forward(engine: Engine, ids: list[int], count: int) -> list[int]:
    """The slow way: the whole sequence anew for each token."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(np.argmax(engine.forward(ids)[-1])))
    return ids[-count:]


def test_greedy_tokens_are_the_argmax_of_forward(engine: Engine) -> None:
    ids = engine.tokenizer.encode(PROMPT)
    pieces = list(engine.generate(PROMPT, max_tokens=12))
    assert ids_of(pieces) == greedy_by_forward(engine, ids, 12)
    assert text_of(pieces) == engine.tokenizer.decode(ids_of(pieces))
    assert ids_of(list(engine.generate(ids, max_tokens=12))) == ids_of(pieces)
    assert ids_of(list(engine.generate(np.array(ids), max_tokens=12))) == ids_of(pieces)  # type: ignore[arg-type]


def test_only_the_last_piece_has_a_finish_reason(engine: Engine) -> None:
    pieces = list(engine.generate(PROMPT, max_tokens=9))
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert pieces[-1].stopped_by == "max_tokens"
    timings = pieces[-1].timings
    assert (timings.prompt_tokens, timings.generated_tokens) == (8, 9)
    assert timings.prompt_per_s > 0 and timings.generated_per_s > 0


@pytest.mark.parametrize("count", [0, 1, 2])
def test_max_tokens_is_exact(engine: Engine, count: int) -> None:
    pieces = list(engine.generate(PROMPT, max_tokens=count))
    assert len(ids_of(pieces)) == count
    assert (pieces[-1].finish_reason, pieces[-1].stopped_by) == ("length", "max_tokens")


def test_the_end_of_the_context_is_exact() -> None:
    with load("nano", max_ctx=16, threads=1) as engine:
        ids = engine.tokenizer.encode(PROMPT) * 2
        assert len(ids) == 16
        for length in (1, 14, 15):
            pieces = list(engine.generate(ids[:length], ignore_eos=True))
            assert len(ids_of(pieces)) == 16 - length
            assert (pieces[-1].finish_reason, pieces[-1].stopped_by) == ("length", "max_ctx")
        with pytest.raises(ContextFullError, match="the prompt has 16 tokens and the reply needs 1") as caught:
            engine.generate(ids)
        assert (caught.value.asked, caught.value.length, caught.value.max_ctx) == (17, 0, 16)
        assert ids_of(list(engine.generate(ids, max_tokens=0))) == []
        assert engine.forward(ids).shape == (16, engine.info.vocab)
        with pytest.raises(ContextFullError):
            engine.forward([*ids, 0])


def test_a_limit_that_equals_the_room_is_max_tokens(engine: Engine) -> None:
    with load("nano", max_ctx=16, threads=1) as small:
        pieces = list(small.generate([1] * 12, max_tokens=4, ignore_eos=True))
        assert pieces[-1].stopped_by == "max_tokens"
        pieces = list(small.generate([1] * 12, max_tokens=5, ignore_eos=True))
        assert pieces[-1].stopped_by == "max_ctx" and len(ids_of(pieces)) == 4


def test_stop_strings_end_the_text_wherever_tokens_are_cut(engine: Engine) -> None:
    full = text_of(list(engine.generate(PROMPT, max_tokens=40)))
    for start in range(0, len(full) - 12, 7):
        for length in (1, 2, 5, 12):
            stop = full[start : start + length]
            pieces = list(engine.generate(PROMPT, max_tokens=40, stop=stop))
            assert text_of(pieces) == full[: full.index(stop)], stop
            assert (pieces[-1].finish_reason, pieces[-1].stopped_by) == ("stop", stop)


def test_a_stop_string_that_never_comes_loses_nothing(engine: Engine) -> None:
    full = text_of(list(engine.generate(PROMPT, max_tokens=20)))
    pieces = list(engine.generate(PROMPT, max_tokens=20, stop=[full[-3:] + "\x00", "\x01"]))
    assert text_of(pieces) == full
    assert pieces[-1].finish_reason == "length"


def test_an_end_token_stops_and_is_counted_without_text(engine: Engine) -> None:
    pieces = list(engine.generate(EVEN, thinking=False, max_tokens=100))
    assert (pieces[-1].finish_reason, pieces[-1].stopped_by) == ("stop", "<|im_end|>")
    assert ids_of(pieces)[-1] == engine.tokenizer.marker_id("<|im_end|>")
    assert "<|im_end|>" not in text_of(pieces)
    longer = list(engine.generate(EVEN, thinking=False, max_tokens=len(ids_of(pieces)) + 3, ignore_eos=True))
    assert ids_of(longer)[: len(ids_of(pieces))] == ids_of(pieces)
    assert longer[-1].finish_reason == "length"
    # At the same token an end token wins over the limit.
    exact = list(engine.generate(EVEN, thinking=False, max_tokens=len(ids_of(pieces))))
    assert exact[-1].stopped_by == "<|im_end|>"


def test_thinking_is_reasoning_and_the_rest_is_text(engine: Engine) -> None:
    prompt = engine.chat.encode(EVEN)
    pieces = list(engine.generate(EVEN, max_tokens=100))
    reasoning = "".join(piece.reasoning for piece in pieces)
    raw = text_of(list(engine.generate(prompt.ids, max_tokens=100)))
    head, tag, tail = raw.partition("</think>")
    assert tag and (reasoning, text_of(pieces)) == (head.strip("\n"), tail.strip("\n"))


def test_a_stop_string_is_not_looked_for_in_the_reasoning(engine: Engine) -> None:
    plain = list(engine.generate(EVEN, max_tokens=100))
    reasoning = "".join(piece.reasoning for piece in plain)
    pieces = list(engine.generate(EVEN, max_tokens=100, stop=reasoning[:4]))
    assert "".join(piece.reasoning for piece in pieces) == reasoning


def test_closing_frees_the_engine(engine: Engine) -> None:
    reply = engine.generate(PROMPT, max_tokens=50)
    next(reply)
    with pytest.raises(RequestError, match="busy with another request"):
        engine.generate(PROMPT)
    with pytest.raises(RequestError, match="busy"):
        engine.forward([1])
    reply.close()
    reply.close()
    assert list(reply) == []
    with engine.generate(PROMPT, max_tokens=50) as reply:
        next(reply)
    engine.forward([1])


def test_a_dropped_iterator_frees_the_engine(engine: Engine) -> None:
    next(engine.generate(PROMPT, max_tokens=50))
    gc.collect()
    engine.generate(PROMPT, max_tokens=50)
    gc.collect()
    engine.forward([1])


def test_another_thread_is_refused_not_mixed(engine: Engine) -> None:
    found: list[str] = []

    def run() -> None:
        try:
            engine.forward([1])
        except Error as error:
            found.append(str(error))

    with engine.generate(PROMPT, max_tokens=2) as reply:
        next(reply)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(found) == 1 and "busy" in found[0]


def test_a_shorter_request_after_a_longer_one_equals_a_fresh_engine(engine: Engine) -> None:
    ids = engine.tokenizer.encode("class Node:\n    def __init__(self")
    list(engine.generate("import os\n" * 60, max_tokens=20))
    engine.forward(engine.tokenizer.encode("x = 1\n" * 40))
    used = engine.forward(ids)
    tokens = ids_of(list(engine.generate(ids, max_tokens=8)))
    with load("nano", max_ctx=512, threads=1) as fresh:
        assert np.array_equal(used.view(np.uint32), fresh.forward(ids).view(np.uint32))
        assert tokens == ids_of(list(fresh.generate(ids, max_tokens=8)))


def test_forward_keeps_nothing(engine: Engine) -> None:
    ids = engine.tokenizer.encode(PROMPT)
    first = engine.forward(ids)
    assert first.dtype == np.float32 and first.shape == (len(ids), engine.info.vocab)
    engine.forward([5] * 100)
    assert np.array_equal(first, engine.forward(ids))
    # A row depends on nothing behind it.
    assert np.array_equal(first[:3], engine.forward(ids[:3]))


@pytest.mark.parametrize(
    "options", [{"temperature": 1e-9}, {"temperature": 3.0, "top_k": 1}, {"temperature": 1.0, "min_p": 1.0}]
)
def test_sampling_that_leaves_one_candidate_is_greedy(engine: Engine, options: dict[str, Any]) -> None:
    greedy = ids_of(list(engine.generate(PROMPT, max_tokens=16)))
    assert ids_of(list(engine.generate(PROMPT, max_tokens=16, seed=1, **options))) == greedy


def test_a_seed_gives_the_same_text_again(engine: Engine) -> None:
    options = {"max_tokens": 16, "temperature": 1.0, "top_p": 0.95}
    with engine.generate(PROMPT, **options) as reply:
        drawn, seed = ids_of(list(reply)), reply.seed
    assert ids_of(list(engine.generate(PROMPT, seed=seed, **options))) == drawn
    others = {tuple(ids_of(list(engine.generate(PROMPT, seed=n, **options)))) for n in range(4)}
    assert len(others) > 1


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("", "the prompt is empty"),
        (b"", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([12288], "token id 12288: the vocabulary has ids 0 to 12287"),
        ([-1], "token id -1"),
        ([1.5], "text, token ids or messages were expected"),
        (3, "text, token ids or messages were expected, not int"),
        ([{"role": "user"}, "x"], r"messages\[1\]"),
    ],
)
def test_prompts_that_are_none(engine: Engine, prompt: Any, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        engine.generate(prompt)


@pytest.mark.parametrize(
    ("prompt", "options", "text"),
    [
        (PROMPT, {"thinking": True}, "thinking: for messages only"),
        (PROMPT, {"tools": []}, "tools: for messages only"),
        (PROMPT, {"template_args": {}}, "template_args: for messages only"),
        (EVEN, {"special": False}, "special: for text prompts only"),
        ([1], {"special": False}, "special: for text prompts only"),
        (PROMPT, {"temperature": -1}, "temperature: -1"),
        (PROMPT, {"stop": [""]}, "stop: ''"),
    ],
)
def test_options_that_would_be_ignored_are_errors(engine: Engine, prompt: Any, options: Any, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        engine.generate(prompt, **options)
    engine.forward([1])


def test_bytes_that_are_no_utf8_are_a_prompt(engine: Engine) -> None:
    with engine.generate(b"\xff\xfe = ", max_tokens=1) as reply:
        assert engine.tokenizer.decode_bytes(reply.prompt_ids) == b"\xff\xfe = "


@pytest.mark.parametrize("device", ["hip:0", "cuda"])
def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("LUCEBOX_HIP_LIBRARY", "/nowhere/libamdhip64.so")
    monkeypatch.setenv("LUCEBOX_CUDA_LIBRARY", "/nowhere/libcuda.so")
    with pytest.raises(DeviceError, match="no /nowhere/lib.* was found; install"):
        load("nano", device=device)


def test_the_emulated_gpu_gives_the_same_bits(engine: Engine) -> None:
    """nano on the GPU kernels, run by the CPU."""
    ids = engine.tokenizer.encode("def fibonacci(n):")
    with load("nano", device="emulated", max_ctx=64) as emulated:
        assert (emulated.device, emulated.launch) == ("emulated", "split")
        assert np.array_equal(emulated.forward(ids), engine.forward(ids))
        both = [[id for piece in e.generate(ids, max_tokens=4) for id in piece.token_ids] for e in (emulated, engine)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "tpu"}, "device: 'tpu'; known are auto, cpu, hip:N, cuda:N, emulated"),
        ({"kv": "q4_0"}, "kv: 'q4_0'; known are q8_0, f16, f32"),
        ({"variant": "sse2"}, "sse2"),
        ({"max_ctx": 0}, "max_ctx"),
        ({"max_ctx": 32769}, "32769"),
    ],
)
def test_load_options_that_are_none(options: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        load("nano", **options)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="absent.gguf"):
        load(tmp_path / "absent.gguf")
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(GGUFError, match="text.gguf"):
        load(tmp_path / "text.gguf")


def test_another_model_says_what_is_supported(tmp_path: Path) -> None:
    _core.write_gguf(str(tmp_path / "llama.gguf"), [("general.architecture", "str", "llama")], [])
    with pytest.raises(UnsupportedModelError, match="llama.*qwen35"):
        load(tmp_path / "llama.gguf")


def test_no_memory_for_the_plan(tmp_path: Path) -> None:
    tiny.write(tmp_path / "long.gguf", tiny.TinyModel(types="q8_0", context_length=1 << 30))
    with pytest.raises(OutOfMemoryError) as caught:
        load(tmp_path / "long.gguf", max_ctx=1 << 30, kv="f32")
    assert caught.value.asked > caught.value.free > 0


def test_progress_ends_at_one_and_may_stop_the_load() -> None:
    seen: list[float] = []
    load("nano", max_ctx=64, threads=1, progress=seen.append).close()
    assert seen == sorted(seen) and seen[-1] == 1.0

    def stop(done: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load("nano", max_ctx=64, threads=1, progress=stop)


def test_defaults_and_facts(engine: Engine) -> None:
    with load("nano", threads=1) as whole:
        assert (whole.max_ctx, whole.kv, whole.device, whole.threads) == (8192, "q8_0", "cpu", 1)
        assert whole.sampling_defaults() == {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.0}


def test_the_engine_holds_what_the_plan_says(engine: Engine) -> None:
    file = _core.GGUFFile(engine.path)
    planned = sum(entry.nbytes for entry in _core.plan(file, max_ctx=engine.max_ctx, kv=engine.kv, threads=1))
    held = sum(entry.nbytes for entry in engine.plan())
    assert abs(held - planned) <= 0.02 * planned
    assert held > file.nbytes


def test_a_closed_engine(engine: Engine) -> None:
    with load("nano", max_ctx=64, threads=1) as closed:
        pass
    for call in (lambda: closed.generate(PROMPT), lambda: closed.forward([1]), closed.plan):
        with pytest.raises(RequestError, match="the engine is closed"):
            call()
    closed.close()
