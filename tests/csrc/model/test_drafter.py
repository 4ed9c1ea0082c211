"""The drafter against a plain float64 program: candidates, scores and paths at every kind of context, both versions and layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import SequenceParams, StepWork, testing
from lucebox.selftest import tiny
from lucebox.selftest.tiny_draft import TinyDrafter, write
from reference import dflash

TARGET = tiny.TinyModel(seed=8, context_length=8192)
DRAFTERS = {
    "dflash2": TinyDrafter(),
    "block 16, multiplier, softcap": TinyDrafter(
        block_size=16, multiplier=0.2, softcap=20.0, layers=3, window=(48,) * 3
    ),
    "v1, sliding and full": TinyDrafter(version=1, window=(64, 0), causal=None, taps=(1, 2), seed=2),
    "v1, all full": TinyDrafter(version=1, window=(0, 0), causal=None, head_dim=32, heads=6, kv_heads=2),
    "odd sizes": TinyDrafter(
        ff=352, heads=6, kv_heads=3, head_dim=96, rank=48, top_k=5, conv_group=64, window=(33, 33)
    ),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drafter") / "target.gguf"
    tiny.write(path, TARGET)
    return path


def embedding(path: Path) -> np.ndarray:
    file = _core.GGUFFile(str(path))
    return (
        _core.dequantize("f32", np.array(file.data("token_embd.weight"))).reshape(TARGET.vocab, -1).astype(np.float64)
    )


def head(path: Path) -> np.ndarray:
    file = _core.GGUFFile(str(path))
    return _core.dequantize("f32", np.array(file.data("output.weight"))).reshape(TARGET.vocab, -1).astype(np.float64)


def open_engine(target: Path, draft: Path, **options: object) -> _core.Engine:
    files = {"file": _core.GGUFFile(str(target)), "draft": _core.GGUFFile(str(draft))}
    return _core.Engine(**files, **{"max_ctx": 8192, "threads": 1, **options})


def tokens(n: int, seed: int = 0) -> list[int]:
    return np.random.RandomState(seed).randint(0, 256, n).tolist()


def feed(engine: _core.Engine, ids: list[int], slot: int = 0, chunk: int = 128) -> None:
    """ids[:-1] as the drafter's context; blocks are drafted behind the anchor ids[-1]."""
    context = ids[:-1]
    engine.begin(slot, SequenceParams(), context or ids)
    for at in range(0, len(context), chunk):
        part = context[at : at + chunk]
        engine.step([StepWork(slot, part, emit=at + len(part) == len(context))])


def expected_of(drafter: TinyDrafter, target: Path, engine: _core.Engine, ids: list[int], width: int) -> tuple:
    """Logits, and rows of the reference for a block behind ids[:-1]."""
    reference = dflash.Drafter(drafter)
    if len(ids) > 1:
        taps = open_engine_plain(target).hidden(ids[:-1], list(drafter.taps)).astype(np.float64)
        reference.context(np.concatenate(list(taps), -1))
    embedded = embedding(target)[[ids[-1], *[drafter.mask_token] * (width - 1)]]
    rows = reference.block(embedded)[1:]
    return reference, rows, reference.logits(rows, head(target))


def open_engine_plain(target: Path) -> _core.Engine:
    return _core.Engine(_core.GGUFFile(str(target)), max_ctx=8192, threads=1)


def check(drafter: TinyDrafter, target: Path, draft: Path, ids: list[int], width: int) -> None:
    engine = open_engine(target, draft)
    feed(engine, ids)
    candidates, edges = testing.draft(engine, 0, ids[-1], width)
    reference, rows, logits = expected_of(drafter, target, engine, ids, width)
    k = drafter.top_k if drafter.version == 2 else 1
    order = np.argsort(-logits, -1, kind="stable")[:, :k]
    scale = np.abs(logits).max()
    # Two logits that float32 cannot tell apart may change places; the set of candidates is compared by value.
    got = np.take_along_axis(logits, candidates[:, :k], -1)
    assert np.abs(got - np.take_along_axis(logits, order, -1)).max() < 2e-5 * scale
    assert np.mean(candidates[:, :k] == order) > 0.98
    for i, wanted in enumerate(reference.edges(rows, candidates[:, :k], got, ids[-1])):
        assert np.abs(edges[i, : len(wanted), :k] - wanted).max() < 5e-5 * max(scale, np.abs(wanted).max())


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("context", [0, 1, 31, 32, 33, 47, 63, 64, 65, 127, 128, 255, 257, 1000])
def test_against_float64(target: Path, tmp_path: Path, name: str, context: int) -> None:
    drafter = DRAFTERS[name]
    write(tmp_path / "d.gguf", drafter)
    check(drafter, target, tmp_path / "d.gguf", tokens(context + 1, seed=context), drafter.block_size)


@pytest.mark.parametrize("width", [2, 3, 5, 8, 15, 16])
def test_widths(target: Path, tmp_path: Path, width: int) -> None:
    """Fewer and more rows than trained; convolution and mask go over the whole block."""
    write(tmp_path / "d.gguf", DRAFTERS["dflash2"])
    check(DRAFTERS["dflash2"], target, tmp_path / "d.gguf", tokens(100), width)


@pytest.mark.parametrize("context", [5000, 2303, 2560])
def test_a_ring_that_wrapped(target: Path, tmp_path: Path, context: int) -> None:
    write(tmp_path / "d.gguf", TinyDrafter(window=(300, 300)))
    check(TinyDrafter(window=(300, 300)), target, tmp_path / "d.gguf", tokens(context + 1), 8)


def test_the_layouts_give_the_same_bits(target: Path, tmp_path: Path) -> None:
    results = []
    for layout in ("dflash", "qwen35-dflash-draft"):
        write(tmp_path / f"{layout}.gguf", TinyDrafter(layout=layout))
        engine = open_engine(target, tmp_path / f"{layout}.gguf")
        feed(engine, tokens(80))
        results.append(testing.draft(engine, 0, 5, 8))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def quantised(name: str) -> str:
    if "selector_p" in name or "selector_s" in name:
        return "q8_0"
    return ["q8_0", "q4_0", "q4_K", "iq4_xs", "q6_K", "f16"][sum(name.encode()) % 6] if "conv" not in name else "q8_0"


@pytest.mark.parametrize("variant", _core.variants())
def test_variants_chunks_slots_and_threads_give_the_same_bits(target: Path, tmp_path: Path, variant: str) -> None:
    drafter = TinyDrafter(types=quantised, ff=512, window=(200, 0), causal=False)
    write(tmp_path / "d.gguf", drafter)
    expected = None
    for chunk, slots, threads in [(1, 1, 1), (7, 1, 2), (64, 3, 1), (128, 8, 2)]:
        engine = open_engine(target, tmp_path / "d.gguf", variant=variant, slots=slots, threads=threads)
        for slot in range(slots):
            feed(engine, tokens(333 if slot == slots // 2 else 50 + slot, seed=slot == slots // 2 and 77), slot, chunk)
        got = testing.draft(engine, slots // 2, 9, 8)
        expected = expected or got
        assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True))
    portable = open_engine(target, tmp_path / "d.gguf", variant="portable")
    feed(portable, tokens(333, seed=77))
    assert all(np.array_equal(a, b) for a, b in zip(expected, testing.draft(portable, 0, 9, 8), strict=True))


def test_accepted_rows_are_the_context_and_rejected_ones_are_not(target: Path, tmp_path: Path) -> None:
    """After steps that kept 0 to 15 drafts the drafter's ring is that of a prompt with the same tokens."""
    write(tmp_path / "d.gguf", DRAFTERS["dflash2"])
    engine = open_engine(target, tmp_path / "d.gguf")
    ids = tokens(60)
    engine.begin(0, SequenceParams(), ids)
    text = list(ids)
    text += engine.step([StepWork(0, ids, emit=True)])[0].token_ids
    plain = open_engine_plain(target)
    plain.begin(0, SequenceParams(lookup=False), ids)
    right = plain.step([StepWork(0, ids, emit=True)])[0].token_ids
    while len(right) < 200:
        right += plain.step([StepWork(0, limit=1)])[0].token_ids
    for count in [0, 3, 7, 15, 1, 0, 5, 14]:
        at = len(text) - len(ids)
        draft = right[at : at + count] + [(t + 1) % 256 for t in right[at + count : at + 15]]
        text += engine.step([StepWork(0, limit=16, draft=draft)])[0].token_ids
        fresh = open_engine(target, tmp_path / "d.gguf")
        feed(fresh, text)
        got, wanted = testing.draft(engine, 0, text[-1], 8), testing.draft(fresh, 0, text[-1], 8)
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_a_long_prompt_skips_what_no_block_sees(target: Path, tmp_path: Path) -> None:
    """Only the window's rows of a prompt are projected; the draft is that of a context which was projected whole."""
    write(tmp_path / "d.gguf", DRAFTERS["dflash2"])
    skipping, whole = (open_engine(target, tmp_path / "d.gguf") for _ in range(2))
    ids = tokens(1)
    whole.begin(0, SequenceParams(), ids)
    text = ids + whole.step([StepWork(0, ids, emit=True)])[0].token_ids
    while len(text) < 300:  # a short prompt and a long reply: every row was projected
        text += whole.step([StepWork(0, limit=8)])[0].token_ids
    feed(skipping, text)
    got, wanted = testing.draft(skipping, 0, text[-1], 8), testing.draft(whole, 0, text[-1], 8)
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_plan_is_what_is_taken(target: Path, tmp_path: Path) -> None:
    write(tmp_path / "d.gguf", DRAFTERS["dflash2"])
    files = {"file": _core.GGUFFile(str(target)), "draft": _core.GGUFFile(str(tmp_path / "d.gguf"))}
    planned = [(e.name, e.nbytes, e.kind) for e in _core.plan(**files, max_ctx=8192, threads=1)]
    taken = [(e.name, e.nbytes, e.kind) for e in open_engine(target, tmp_path / "d.gguf").allocated()]
    assert planned == taken
    shorter = [(e.name, e.nbytes) for e in _core.plan(**files, max_ctx=1024, threads=1)]
    rings = [
        sum(bytes for name, bytes in entries if "drafter's ring" in name)
        for entries in ([p[:2] for p in planned], shorter)
    ]
    assert rings[0] == rings[1] > 0  # the ring does not grow with the context
