"""Sequences: the same bits however rows are cut, batched, threaded and dispatched; limits and faults leave no trace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox.errors import ContextFullError, DeviceError, GGUFError, OutOfMemoryError, RequestError
from lucebox.selftest import tiny

TYPES = ["q8_0", "q4_0", "q4_K", "q6_K", "iq4_xs", "q5_K", "iq3_s", "iq4_nl", "f16"]


def mixed(name: str) -> str:
    """A type a tensor: any matrix may have any type."""
    return TYPES[sum(name.encode()) % len(TYPES)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "tiny.gguf"
    tiny.write(path, tiny.TinyModel(value_heads=6, types=mixed, seed=3))
    return path


def open_engine(path: Path, **options: object) -> _core.Engine:
    return _core.Engine(_core.GGUFFile(str(path)), **{"max_ctx": 1024, "threads": 1, **options})


def ids(n: int, seed: int = 0) -> list[int]:
    return np.random.RandomState(seed).randint(0, 300, n).tolist()


@pytest.fixture(scope="module")
def expected(model: Path) -> np.ndarray:
    """600 tokens, three segments of keys, in calls of one row by the portable variant."""
    return open_engine(model, variant="portable", max_rows=1).forward([(0, ids(600))], "all")


@pytest.mark.parametrize("variant", _core.variants())
@pytest.mark.parametrize("rows", [7, 64, 128])
def test_chunks(model: Path, expected: np.ndarray, variant: str, rows: int) -> None:
    engine = open_engine(model, variant=variant, max_rows=rows, threads=1 + rows % 2)
    assert engine.variant == variant
    assert np.array_equal(engine.forward([(0, ids(600))], "all"), expected)


@pytest.mark.parametrize("variant", _core.variants())
def test_pieces_and_last_row(model: Path, expected: np.ndarray, variant: str) -> None:
    engine, tokens, at = open_engine(model, variant=variant, threads=2), ids(600), 0
    for n in (1, 1, 2, 3, 30, 31, 33, 100, 128, 129, 142):
        assert np.array_equal(engine.forward([(0, tokens[at : at + n])], "last")[0], expected[at + n - 1])
        at += n
    assert engine.length(0) == at == 600


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_sequences_in_one_call(model: Path, slots: int) -> None:
    """1 to 128 rows of 1 to 8 sequences: each equals its solo run."""
    engine, solo = open_engine(model, slots=slots, max_ctx=300), open_engine(model, max_ctx=300)
    tokens = [ids(40 * i + 1, seed=i) for i in range(slots)]
    together = np.split(engine.forward(list(enumerate(tokens)), "all"), np.cumsum([len(t) for t in tokens])[:-1])
    more = engine.forward([(slot, [slot + 1]) for slot in reversed(range(slots))], "last")[::-1]
    for slot, own in enumerate(tokens):
        assert np.array_equal(together[slot], solo.forward([(0, own)], "all"))
        assert np.array_equal(more[slot], solo.forward([(0, [slot + 1])], "last")[0])
        solo.reset(0)


@pytest.mark.parametrize("kv", ["q8_0", "f16", "f32"])
def test_variants_and_kv(model: Path, kv: str) -> None:
    rows = [open_engine(model, variant=v, kv=kv).forward([(0, ids(300))], "all") for v in _core.variants()]
    assert all(np.array_equal(rows[0], other) for other in rows[1:])


def test_argmax_and_none(model: Path, expected: np.ndarray) -> None:
    engine = open_engine(model)
    assert engine.forward([(0, ids(600)[:10])], "none") is None
    best = engine.forward([(0, ids(600)[10:20])], "argmax")
    assert best.dtype == np.int32 and best[0] == expected[19].argmax()


def test_a_slot_forgets(model: Path, expected: np.ndarray) -> None:
    """A second, shorter request after a longer one equals a fresh engine."""
    engine = open_engine(model)
    engine.forward([(0, ids(500, seed=9))], "none")
    engine.reset(0)
    assert engine.length(0) == 0
    assert np.array_equal(engine.forward([(0, ids(600)[:50])], "all"), expected[:50])


def test_hidden(model: Path) -> None:
    engine = open_engine(model, max_rows=16)
    hidden = engine.hidden(ids(40), [3, 0])
    assert hidden.shape == (2, 40, 256) and engine.length(0) == 0
    assert np.array_equal(hidden[::-1], open_engine(model).hidden(ids(40), [0, 3]))
    engine.forward([(0, [1])], "none")
    with pytest.raises(RequestError, match="reset it first"):
        engine.hidden([1], [0])


@pytest.mark.parametrize(
    "batch,text",
    [
        ([(1, [1])], "slot is 1"),
        ([(-1, [1])], "slot is -1"),
        ([(0, [])], "no tokens"),
        ([(0, [320])], "token id 320 is outside the vocabulary of 320"),
        ([(0, [5, -1])], "token id -1"),
        ([(0, [1]), (0, [2])], "twice"),
    ],
)
def test_bad_requests_change_nothing(model: Path, expected: np.ndarray, batch: list, text: str) -> None:
    engine = open_engine(model)
    engine.forward([(0, ids(600)[:5])], "none")
    with pytest.raises(RequestError, match=text):
        engine.forward(batch)
    assert engine.length(0) == 5
    assert np.array_equal(engine.forward([(0, ids(600)[5:6])])[0], expected[5])


def test_context_full(model: Path, expected: np.ndarray) -> None:
    engine = open_engine(model, max_ctx=20)
    with pytest.raises(ContextFullError, match="room for 20") as caught:
        engine.forward([(0, ids(600)[:21])])
    assert (caught.value.asked, caught.value.length, caught.value.max_ctx) == (21, 0, 20)
    assert np.array_equal(engine.forward([(0, ids(600)[:20])])[0], expected[19])
    with pytest.raises(ContextFullError):
        engine.forward([(0, [1])])
    assert engine.length(0) == 20


@pytest.mark.parametrize(
    "options,text",
    [
        ({"kv": "q4_0"}, "kv is"),
        ({"slots": 9}, "slots is 9"),
        ({"max_rows": 129}, "max_rows is 129"),
        ({"max_ctx": 8193}, "max_ctx is 8193"),
        ({"max_ctx": 0}, "max_ctx is 0"),
        ({"threads": 1000}, "threads is 1000"),
        ({"variant": "sse"}, "variant is"),
    ],
)
def test_bad_options(model: Path, options: dict, text: str) -> None:
    with pytest.raises(RequestError, match=text):
        open_engine(model, **options)
    with pytest.raises(RequestError, match=text):
        _core.plan(_core.GGUFFile(str(model)), **{"max_ctx": 64, **options})


@pytest.mark.parametrize("variant", _core.variants())
def test_the_plan_is_what_is_taken(model: Path, variant: str) -> None:
    options = {"max_ctx": 700, "slots": 3, "kv": "f16", "variant": variant, "threads": 2}
    planned = [(e.name, e.nbytes, e.kind) for e in _core.plan(_core.GGUFFile(str(model)), **options)]
    taken = [(e.name, e.nbytes, e.kind) for e in open_engine(model, **options).allocated()]
    assert planned == taken
    assert {kind for _, _, kind in planned} == {"mapped", "allocated"}


def test_resident_bytes_follow_the_plan(model: Path) -> None:
    """The engine's own bytes are within 2 % of the plan (measured as anonymous memory of this process)."""

    def anonymous() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))

    before = anonymous()
    engine = open_engine(model, max_ctx=8192, slots=8, kv="f32")
    for slot in range(8):
        engine.forward([(slot, ids(8192, seed=slot)[:2])], "none")
    planned = sum(e.nbytes for e in engine.allocated() if e.kind == "allocated")
    assert anonymous() - before <= planned * 1.02 + (1 << 20)


def test_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    tiny.write(path, tiny.TinyModel(kv_heads=2, context_length=1 << 30))
    with pytest.raises(OutOfMemoryError, match="KV pages") as caught:
        open_engine(path, max_ctx=1 << 30, kv="f32")
    assert caught.value.asked > caught.value.free > 0


def test_the_file_shrinks_or_is_replaced(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.gguf"
    shutil.copy(model, path)
    engine = open_engine(path)
    engine.forward([(0, [1, 2])], "none")
    os.truncate(path, path.stat().st_size - 1000)
    with pytest.raises(GGUFError, match="load it again"):
        engine.forward([(0, [3])])
    shutil.copy(model, tmp_path / "other.gguf")
    os.replace(tmp_path / "other.gguf", path)
    with pytest.raises(GGUFError):
        engine.forward([(0, [3])])
    assert engine.length(0) == 2


def test_nan_names_its_layer(tmp_path: Path) -> None:
    """Damaged weights: the error says where, a NaN never becomes a token, and the slot is empty afterwards."""
    path = tmp_path / "nan.gguf"
    tiny.write(path, tiny.TinyModel(types="q8_0"))
    tensor = next(t for t in _core.GGUFFile(str(path)).tensors if t.name == "blk.2.ffn_up.weight")
    with path.open("r+b") as f:
        f.seek(tensor.offset)
        f.write(np.float16("nan").tobytes())
    for variant in _core.variants():
        engine = open_engine(path, variant=variant)
        with pytest.raises(DeviceError, match=r"layer 2 \(DeltaNet\)"):
            engine.forward([(0, ids(5))], "argmax")
        assert engine.length(0) == 0


def test_progress_and_its_exception(model: Path) -> None:
    seen: list[float] = []
    open_engine(model, progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1.0

    def stop(part: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_engine(model, progress=stop)
