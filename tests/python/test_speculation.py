"""Speculation from Python on nano: the text is that of plain decoding, and scripts may draft themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lucebox
import numpy as np
import pytest
from lucebox import _core, fingerprint
from lucebox.engine import BUNDLED, BUNDLED_DRAFTERS, Engine
from lucebox.errors import ContextFullError, DrafterMismatchError, RequestError, UnsupportedModelError
from lucebox.generation import Piece
from lucebox.prompts import KINDS
from lucebox.prompts import PROMPTS as ALL

PROMPTS = [next(p.content for p in ALL if p.kind == kind) for kind in KINDS]
CODE, PROSE = PROMPTS[0], PROMPTS[KINDS.index("prose")]
Prompt = str | list[dict[str, str]]


@pytest.fixture(scope="module")
def drafting() -> Iterator[Engine]:
    with lucebox.load("nano", draft="nano", max_ctx=512, threads=1) as engine:
        yield engine


def whole(engine: Engine, prompt: Prompt, **options: object) -> tuple[list[int], str, Piece]:
    pieces = list(engine.generate(prompt, **options))  # type: ignore[arg-type]
    return [i for p in pieces for i in p.token_ids], "".join(p.text for p in pieces), pieces[-1]


@pytest.mark.parametrize("prompt", PROMPTS[:6])
@pytest.mark.parametrize("width", [2, 8, 16])
@pytest.mark.parametrize("lookup", [False, True])
def test_the_text_is_that_of_plain_decoding(
    engine: Engine, drafting: Engine, prompt: Prompt, width: int, lookup: bool
) -> None:
    expected = whole(engine, prompt, max_tokens=48, speculative="off")
    got = whole(drafting, prompt, max_tokens=48, draft_width=width, lookup=lookup)
    assert got[:2] == expected[:2]
    assert (got[2].finish_reason, got[2].stopped_by) == (expected[2].finish_reason, expected[2].stopped_by)


@pytest.mark.parametrize(
    "options", [{"temperature": 0.8}, {"temperature": 1.0, "top_p": 0.9}, {"repetition_penalty": 1.2}]
)
def test_sampled_text_is_that_of_plain_decoding(engine: Engine, drafting: Engine, options: dict) -> None:
    plain = whole(engine, CODE, max_tokens=40, seed=4, speculative="off", **options)
    assert whole(drafting, CODE, max_tokens=40, seed=4, **options)[:2] == plain[:2]


def test_stops_and_limits_inside_a_block(engine: Engine, drafting: Engine) -> None:
    ids, text, _ = whole(engine, CODE, max_tokens=40, speculative="off")
    for count in range(1, 18):
        got, _, last = whole(drafting, CODE, max_tokens=count)
        assert got == ids[:count]
        assert last.timings.generated_tokens == count
        speculation = last.timings.speculation
        assert speculation.tokens == count - 1 and speculation.accepted <= count - 1
    for start in range(0, len(text) - 4, 7):
        stop = text[start : start + 4]
        plain = whole(engine, CODE, max_tokens=40, stop=stop, speculative="off")
        got = whole(drafting, CODE, max_tokens=40, stop=stop)
        assert got[1] == plain[1] and got[2].stopped_by == plain[2].stopped_by
        assert got[0] == plain[0]


def test_the_statistics_add_up(drafting: Engine) -> None:
    last = whole(drafting, CODE, max_tokens=60)[2]
    s = last.timings.speculation
    assert s.tokens == 59
    assert sum(s.accepted_at) == s.accepted and sum(s.drafted_at) == s.drafted
    assert all(a <= d for a, d in zip(s.accepted_at, s.drafted_at, strict=False))
    assert list(s.accepted_at) == sorted(s.accepted_at, reverse=True)
    assert sum(s.sources.values()) == s.steps
    assert s.tokens_per_step > 1.5


def test_reject_mode_repeats_for_a_seed(drafting: Engine) -> None:
    first = whole(drafting, PROSE, max_tokens=40, temperature=0.9, seed=3, speculative="reject")
    assert first[:2] == whole(drafting, PROSE, max_tokens=40, temperature=0.9, seed=3, speculative="reject")[:2]
    greedy = whole(drafting, PROSE, max_tokens=40)
    assert whole(drafting, PROSE, max_tokens=40, speculative="reject")[:2] == greedy[:2]
    assert whole(drafting, PROSE, max_tokens=40, temperature=1e-9, speculative="reject", seed=5)[:2] == greedy[:2]
    assert (
        whole(drafting, PROSE, max_tokens=40, temperature=1.0, top_k=1, speculative="reject", seed=5)[:2] == greedy[:2]
    )


def test_draft_and_verify(engine: Engine, drafting: Engine) -> None:
    expected = whole(engine, CODE, max_tokens=40, speculative="off")[0]
    with drafting.sequence(CODE) as sequence:
        start = sequence.prompt_tokens
        assert sequence.token_ids[start:] == expected[:1]
        while len(sequence.token_ids) < start + 30:
            block = lucebox.draft(sequence)
            assert len(block.ids) <= 15 and block.candidates.shape == block.scores.shape
            if block.source == "drafter":
                assert block.candidates.shape == (len(block.ids), 16) and len(block.confidence) == len(block.ids)
                assert all(id in row for id, row in zip(block.ids, block.candidates, strict=True))
            looked = lucebox.verify(sequence, block, commit=False)
            before = list(sequence.token_ids)
            result = lucebox.verify(sequence, block, logits=True)
            assert looked.token_ids == result.token_ids and looked.accepted == result.accepted
            assert sequence.token_ids == before + list(result.token_ids)
            assert result.logits is not None and [int(r.argmax()) for r in result.logits] == list(result.token_ids)
        made = sequence.token_ids[start:]
    assert made[:40] == expected[: len(made)]


def test_a_drafter_of_ones_own(engine: Engine) -> None:
    """Any ids, right or wrong, leave the text as it is; the engine needs no drafter for it."""
    expected = whole(engine, PROSE, max_tokens=40, speculative="off")[0]
    random = np.random.RandomState(0)
    with engine.sequence(PROSE, lookup=False) as sequence:
        start = sequence.prompt_tokens
        while len(sequence.token_ids) < start + 30:
            at = len(sequence.token_ids) - start
            lucebox.verify(sequence, (i for i in expected[at : at + int(random.randint(0, 6))] + [7, 8]))
        made = sequence.token_ids[start:]
    assert made[:40] == expected[: len(made)]


def test_what_scripts_may_not_do(drafting: Engine) -> None:
    with drafting.sequence(CODE) as sequence:
        with pytest.raises(RequestError, match="busy"):
            drafting.generate("x")
        with pytest.raises(RequestError, match="outside the vocabulary"):
            lucebox.verify(sequence, [10**6])
        for block in ([2**70], [-1], [1.5], "abc", None, 5):
            with pytest.raises(RequestError, match="block"):
                lucebox.verify(sequence, block)  # type: ignore[arg-type]
        for most in (-1, 32, 2**31, 1.5, None):
            with pytest.raises(RequestError, match="most"):
                lucebox.draft(sequence, most=most)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="at most 31"):
            lucebox.verify(sequence, [1] * 32)
    with pytest.raises(RequestError, match="closed"):
        lucebox.draft(sequence)
    for options in ({"selector": "best"}, {"max_tokens": 5}, {"stop": "x"}, {"foo": 1}, {"logit_bias": [1]}):
        with pytest.raises(RequestError, match=next(iter(options))):
            drafting.sequence("x", **options)
    assert whole(drafting, "x", max_tokens=2)[0]


def test_the_end_of_the_context() -> None:
    with (
        lucebox.load("nano", draft="nano", max_ctx=24, threads=1) as engine,
        engine.sequence(list(range(10))) as sequence,
    ):
        while sequence.room() > 0:
            lucebox.verify(sequence, lucebox.draft(sequence))
        assert len(sequence.token_ids) == 24
        with pytest.raises(ContextFullError):
            lucebox.verify(sequence, [])


def test_loading(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="qwen35"):
        lucebox.load("nano", draft=lucebox.engine.BUNDLED["nano"])  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedModelError, match="drafter, which goes with a target model"):
        lucebox.load(BUNDLED_DRAFTERS["nano"])
    for size in (1, 17):
        with pytest.raises(RequestError, match="2 to 16 are possible"):
            lucebox.load("nano", draft="nano", draft_block_size=size)
    for name, value in [("draft_block_size", 0), ("draft_block_size", 2**31), ("max_ctx", "8"), ("threads", 2.5)]:
        with pytest.raises(RequestError, match=name):
            lucebox.load("nano", draft="nano", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="no drafter"):
        lucebox.load("nano", draft_block_size=8)


def test_a_recorded_fingerprint_is_compared(tmp_path: Path) -> None:
    drafter = _core.GGUFFile(str(BUNDLED_DRAFTERS["nano"]))
    own = fingerprint.fingerprint(_core.GGUFFile(str(BUNDLED["nano"])))
    for name, value in (("own", own), ("other", "0" * 64)):
        (tmp_path / name).mkdir()
        keys = [(fingerprint.KEY, "str", value), *tiny_keys(drafter)]
        tensors = [(t.name, t.type, t.dims, drafter.data(t.name)) for t in drafter.tensors]
        _core.write_gguf(str(tmp_path / name / "d.gguf"), keys, tensors)
    with lucebox.load("nano", draft=tmp_path / "own" / "d.gguf", max_ctx=64, threads=1) as engine:
        assert engine.draft_block_size == 8
    with pytest.raises(DrafterMismatchError, match="was made for the target 0000000000000000"):
        lucebox.load("nano", draft=tmp_path / "other" / "d.gguf")


def tiny_keys(file: _core.GGUFFile) -> list[tuple[str, str, object]]:
    """The drafter's own keys, without its tokenizer's lists."""
    kinds = {bool: "bool", int: "u32", float: "f32", str: "str"}
    keys: list[tuple[str, str, object]] = []
    for key, value in file.metadata.items():
        if key.startswith("tokenizer.ggml.") and isinstance(value, list):
            continue
        kind = "i32[]" if key.endswith("target_layers") else kinds[type(value[0] if isinstance(value, list) else value)]
        keys.append((key, kind if kind.endswith("[]") else kind + "[]" * isinstance(value, list), value))
    return keys


@pytest.mark.parametrize(
    "options",
    [
        {"draft_width": 2.5},
        {"draft_width": 2**31},
        {"speculative": None},
        {"selector": 5},
        {"lookup": "no"},
        {"logit_bias": {"5": 1}},
        {"logit_bias": [1]},
        {"stop": None},
        {"repetition_penalty": "x"},
        {"speculative": "off", "draft_width": 4},
        {"speculative": "off", "selector": "reach"},
    ],
)
def test_options_of_another_kind_are_refused(drafting: Engine, options: dict) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        drafting.generate("x", **options)


def test_a_selector_needs_a_drafter(engine: Engine) -> None:
    with pytest.raises(RequestError, match="selector"):
        list(engine.generate("x", max_tokens=2, selector="reach"))


def test_close_ends_what_is_running() -> None:
    engine = lucebox.load("nano", draft="nano", max_ctx=64, threads=1)
    reply = engine.generate("def f(x):")
    next(reply)
    engine.close()
    assert list(reply) == []
    with pytest.raises(RequestError, match="closed"):
        engine.generate("x")


def test_a_reply_is_read_by_one_thread(drafting: Engine) -> None:
    with drafting.generate("def f(x):", max_tokens=20) as reply:
        assert reply._turn.acquire(blocking=False)
        with pytest.raises(RequestError, match="another thread"):
            next(reply)
        reply._turn.release()
        assert list(reply)
