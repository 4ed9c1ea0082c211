"""The step: whatever is drafted, tokens, logits and states are those of plain decoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox._core import SequenceParams, StepWork
from lucebox.errors import ContextFullError, RequestError
from lucebox.selftest import tiny

VOCAB = 320


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoder") / "tiny.gguf"
    tiny.write(path, tiny.TinyModel(value_heads=6, seed=5, context_length=4096))
    return path


def open_engine(path: Path, **options: object) -> _core.Engine:
    return _core.Engine(_core.GGUFFile(str(path)), **{"max_ctx": 1024, "threads": 1, **options})


def prompt(n: int, seed: int = 0) -> list[int]:
    return np.random.RandomState(seed).randint(0, VOCAB, n).tolist()


def start(engine: _core.Engine, ids: list[int], slot: int = 0, **params: object) -> int:
    """Begins a sequence, runs its prompt in one step, and returns the first token."""
    engine.begin(slot, SequenceParams(**params), ids)
    return engine.step([StepWork(slot, ids, emit=True)])[0].token_ids[0]


def plain(path: Path, ids: list[int], n: int) -> tuple[list[int], np.ndarray]:
    """n greedy tokens and the logits they were taken from, one row a call."""
    engine = open_engine(path, max_ctx=4096)
    rows = [engine.forward([(0, ids)], "last")[0]]
    while len(rows) < n:
        rows.append(engine.forward([(0, [int(rows[-1].argmax())])], "last")[0])
    return [int(r.argmax()) for r in rows], np.array(rows)


@pytest.fixture(scope="module")
def text(model: Path) -> tuple[list[int], np.ndarray]:
    return plain(model, prompt(40), 400)


def wrong(id: int) -> int:
    return (id + 1) % VOCAB


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_prompt_in_chunks(model: Path, text: tuple[list[int], np.ndarray], chunk: int) -> None:
    engine, ids = open_engine(model), prompt(40)
    engine.begin(0, SequenceParams(), ids)
    for at in range(0, 40, chunk):
        part = ids[at : at + chunk]
        result = engine.step([StepWork(0, part, emit=at + len(part) == 40, logits=at + len(part) == 40)])[0]
    assert result.token_ids == [text[0][0]]
    assert np.array_equal(result.logits[0], text[1][0])


def test_every_ordered_pair_of_accept_counts(model: Path) -> None:
    """One walk through all 256 pairs of accepted counts 0 to 15, with steps without a draft in between."""
    # An Euler circuit over the pairs: each count follows each other count once.
    counts, left = [0], {a: list(range(16)) for a in range(16)}
    stack = [0]
    counts = []
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            counts.append(stack.pop())
    assert len(counts) == 257
    pairs = set(zip(counts, counts[1:], strict=False))
    assert len(pairs) == 256
    total = sum(c + 1 for c in counts) + len(counts) // 16 + 64
    ids = prompt(40)
    expected, logits = plain(model, ids, total)
    engine = open_engine(model, max_ctx=4096)
    got = [start(engine, ids)]
    for i, count in enumerate(counts):
        at = len(got)
        draft = expected[at : at + count] + [wrong(t) for t in expected[at + count : at + 15]]
        result = engine.step([StepWork(0, limit=16, draft=draft, logits=True)])[0]
        assert (result.drafted, result.accepted, result.source) == (15, count, "given")
        assert np.array_equal(result.logits, logits[at : at + count + 1])
        got += result.token_ids
        if i % 16 == 15:
            result = engine.step([StepWork(0, limit=16, draft=[], logits=True)])[0]
            assert np.array_equal(result.logits[0], logits[len(got)])
            got += result.token_ids
        assert engine.length(0) == len(ids) + len(got) - 1
    assert got == expected[: len(got)]


@pytest.mark.parametrize("seed", range(20))
def test_random_patterns(model: Path, text: tuple[list[int], np.ndarray], seed: int) -> None:
    """Widths 0 to 31, right up to anywhere; two sequences with opposite patterns; plain steps and looks in between."""
    random = np.random.RandomState(seed)
    engine, ids = open_engine(model, slots=2), prompt(40)
    got = [[start(engine, ids, slot)] for slot in range(2)]
    while max(map(len, got)) < 330:
        right = int(random.randint(0, 32))
        work = []
        for slot in range(2):
            at = len(got[slot])
            keep = right if slot == 0 else 31 - right
            draft = text[0][at : at + keep] + [wrong(t) for t in text[0][at + keep : at + 31]]
            work.append(
                StepWork(
                    slot,
                    limit=32,
                    draft=draft[: int(random.randint(0, 32))],
                    look=seed % 4 == 0 and slot == 0 and random.rand() < 0.3,
                    logits=True,
                )
            )
        looks = random.rand() < 0.2
        for slot, result in enumerate(engine.step(work if not looks else work[:1])):
            at = len(got[slot])
            assert np.array_equal(result.logits, text[1][at : at + len(result.token_ids)])
            if engine.length(slot) == len(ids) + at - 1:
                continue  # a look leaves the sequence as it was
            got[slot] += result.token_ids
    for slot in range(2):
        assert got[slot] == text[0][: len(got[slot])]


def test_the_state_after_rejections_is_that_of_plain_decoding(model: Path, text: tuple[list[int], np.ndarray]) -> None:
    """Rows that are still pending are replayed by a call that commits."""
    ids = prompt(40)
    for accepted in (0, 1, 5, 15):
        engine = open_engine(model)
        start(engine, ids)
        draft = text[0][1 : 1 + accepted] + [wrong(t) for t in text[0][1 + accepted : 16]]
        engine.step([StepWork(0, limit=16, draft=draft)])
        after = text[0][accepted + 1 : accepted + 30]
        logits = engine.forward([(0, after)], "all")
        assert np.array_equal(logits, text[1][accepted + 2 : accepted + 2 + len(after)])


def test_limit_and_end_ids_cut_inside_a_block(model: Path, text: tuple[list[int], np.ndarray]) -> None:
    ids, tokens = prompt(40), text[0]
    for cut in range(1, 16):
        engine = open_engine(model)
        start(engine, ids)
        assert engine.step([StepWork(0, limit=cut, draft=tokens[1:16])])[0].token_ids == tokens[1 : 1 + cut]
        end = tokens[cut]
        engine = open_engine(model)
        start(engine, ids, end_ids=[end])
        result = engine.step([StepWork(0, limit=16, draft=tokens[1:16])])[0]
        first = tokens[1:].index(end) + 1
        assert result.token_ids == tokens[1 : 1 + first]
        assert result.accepted == min(first, 15)


def test_end_of_context(model: Path, text: tuple[list[int], np.ndarray]) -> None:
    """Drafts are trimmed to the room that is left; the last token needs none."""
    engine = open_engine(model, max_ctx=50)
    got = [start(engine, prompt(40))]
    while len(got) < 11:
        got += engine.step([StepWork(0, limit=99, draft=text[0][len(got) : len(got) + 15])])[0].token_ids
    assert got == text[0][:11]
    with pytest.raises(ContextFullError):
        engine.step([StepWork(0, limit=1)])


SAMPLED = [
    {"temperature": 0.8, "seed": 7},
    {"temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 1},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": 0.4, "temperature": 0.9, "seed": 3},
    {"logit_bias": {3: 4.0, 9: -100.0}, "repetition_penalty": 1.1, "temperature": 0.7, "seed": 11},
    {"end_ids": [5, 6], "min_tokens": 30, "logit_bias": {5: 6.0}},
]


@pytest.mark.parametrize("params", SAMPLED)
def test_match_mode_equals_plain_decoding(model: Path, params: dict) -> None:
    """Right, half right and wrong drafts: the same tokens for the seed."""
    ids = prompt(30, seed=2)
    engine = open_engine(model)
    expected = [start(engine, ids, speculative="off", **params)]
    while len(expected) < 60:
        expected += engine.step([StepWork(0, limit=1)])[0].token_ids
    random = np.random.RandomState(0)
    engine = open_engine(model)
    got = [start(engine, ids, lookup=False, **params)]
    while len(got) < 44:
        at, right = len(got), int(random.randint(0, 16))
        draft = expected[at : at + right] + [wrong(t) for t in expected[at + right : at + 15]]
        got += engine.step([StepWork(0, limit=16, draft=draft)])[0].token_ids
        if got[-1] in params.get("end_ids", []):
            break
    assert got == expected[: len(got)]


def test_lookup_never_changes_the_text(model: Path) -> None:
    ids = prompt(20) * 4
    engine = open_engine(model)
    expected, _ = plain(model, ids, 100)
    got, steps = [start(engine, ids)], 0
    while len(got) < 100:
        result = engine.step([StepWork(0, limit=100 - len(got))])[0]
        got += result.token_ids
        steps += result.source == "lookup"
    assert got == expected
    assert steps > 0


def test_masks(model: Path) -> None:
    """A mask for each row: the next token, and the one after each draft."""
    ids, words = prompt(30), (VOCAB + 31) // 32
    engine = open_engine(model)
    start(engine, ids)
    only = [17, 33, 250]
    masks = np.zeros((3, words), np.uint32)
    for row, id in enumerate(only):
        masks[row, id // 32] |= np.uint32(1 << id % 32)
    result = engine.step([StepWork(0, limit=8, draft=only[:2], masks=masks)])[0]
    assert result.token_ids == only
    with pytest.raises(RequestError, match="masks of"):
        engine.step([StepWork(0, limit=8, draft=[1, 2], masks=masks[:2])])


def test_a_mask_without_tokens_ends_its_sequence_only(model: Path, text: tuple[list[int], np.ndarray]) -> None:
    engine, ids = open_engine(model, slots=2), prompt(40)
    start(engine, ids, 0)
    start(engine, ids, 1)
    masks = np.zeros((1, (VOCAB + 31) // 32), np.uint32)
    bad, good = engine.step([StepWork(0, limit=1, masks=masks), StepWork(1, limit=1)])
    assert "no token is left" in bad.error and good.error == ""
    assert good.token_ids == text[0][1:2]
    with pytest.raises(RequestError, match="runs no sequence"):
        engine.step([StepWork(0, limit=1)])


def test_logprobs(model: Path, text: tuple[list[int], np.ndarray]) -> None:
    engine, ids = open_engine(model), prompt(40)
    start(engine, ids, logprobs=5)
    result = engine.step([StepWork(0, limit=16, draft=text[0][1:4])])[0]
    assert len(result.logprobs) == len(result.token_ids) == 4
    for row, (token, (logprob, best)) in enumerate(zip(result.token_ids, result.logprobs, strict=True), 1):
        x = text[1][row].astype(np.float64)
        exact = x - x.max() - np.log(np.exp(x - x.max()).sum())
        assert abs(exact[token] - logprob) < 1e-12
        assert [i for i, _ in best] == np.argsort(-exact, kind="stable")[:5].tolist()


@pytest.mark.parametrize(
    "params,match",
    [
        ({"temperature": -1}, "temperature"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": float("nan")}, "presence_penalty"),
        ({"frequency_penalty": 1e9}, "frequency_penalty"),
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"logit_bias": {0: float("inf")}}, "logit_bias"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"logprobs": VOCAB + 1}, "logprobs"),
        ({"speculative": "yes"}, "speculative"),
    ],
)
def test_bad_parameters(model: Path, params: dict, match: str) -> None:
    with pytest.raises(RequestError, match=match):
        open_engine(model).begin(0, SequenceParams(**params), [1])


def test_bad_work_changes_nothing(model: Path, text: tuple[list[int], np.ndarray]) -> None:
    engine, ids = open_engine(model, max_rows=64), prompt(40)
    engine.begin(0, SequenceParams(), ids)
    for work, match in [
        (StepWork(0, [1, 2]), "do not go on with its prompt"),
        (StepWork(0, ids), "emit belongs"),
        (StepWork(0, limit=4), "left to run"),
        (StepWork(1, limit=4), "slot is 1"),
        (StepWork(0, ids, emit=True, limit=0), "limit is 0"),
        (StepWork(0, ids, emit=True, draft=[1]), "for a decode"),
    ]:
        with pytest.raises(RequestError, match=match):
            engine.step([work])
    assert engine.step([StepWork(0, ids, emit=True)])[0].token_ids == text[0][:1]
    for draft, match in [([VOCAB], "outside the vocabulary"), ([1] * 32, "draft of 32")]:
        with pytest.raises(RequestError, match=match):
            engine.step([StepWork(0, limit=64, draft=draft)])
    assert engine.step([StepWork(0, limit=1)])[0].token_ids == text[0][1:2]
