"""The law of speculative sampling: a toy of 32 tokens against its exact probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lucebox._core import SamplingParams, testing

VOCAB, DRAWS, TOKENS = 32, 20000, 6
SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.95, "min_p": 0.02},
]


def tables(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The target's logits behind each token, and a drafter's that resemble them."""
    random = np.random.RandomState(seed)
    target = random.normal(0, 1.5, (VOCAB, VOCAB)).astype(np.float32)
    return target, (target + random.normal(0, 1.0, target.shape)).astype(np.float32)


def law(logits: np.ndarray, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> np.ndarray:
    """Exact transition probabilities [before, next]."""
    out = np.zeros(logits.shape)
    for before, row in enumerate(logits.astype(np.float64)):
        order = np.argsort(-row, kind="stable")[: top_k or VOCAB]
        weight = np.exp((row[order] - row[order[0]]) / temperature)
        reached = np.cumsum(weight) - weight < top_p * weight.sum()
        keep = (reached & (weight >= min_p)) | (np.arange(len(order)) == 0)
        out[before, order[keep]] = weight[keep] / weight[keep].sum()
    return out


def p_value(observed: np.ndarray, expected: np.ndarray) -> float:
    """Of a chi-squared test, rare cells joined; Wilson and Hilferty's approximation of the upper tail."""
    observed, expected = observed.ravel(), expected.ravel() * DRAWS
    assert observed[expected == 0].sum() == 0
    rare = expected < 5
    o = np.append(observed[~rare], observed[rare].sum())
    e = np.append(expected[~rare], expected[rare].sum())
    o, e = o[e > 0], e[e > 0]
    freedom = max(len(e) - 1, 1)
    statistic = ((o - e) ** 2 / e).sum() / freedom
    z = (statistic ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return math.erfc(z / math.sqrt(2)) / 2


def p_values(draws: np.ndarray, transition: np.ndarray) -> list[float]:
    """Of tokens 1 to 6, and of neighbouring pairs."""
    out, marginal = [], np.eye(VOCAB)[0]
    for i in range(TOKENS):
        pairs = marginal[:, None] * transition
        marginal = marginal @ transition
        out.append(p_value(np.bincount(draws[:, i], minlength=VOCAB), marginal))
        if i > 0:
            seen = np.bincount(draws[:, i - 1] * VOCAB + draws[:, i], minlength=VOCAB * VOCAB)
            out.append(p_value(seen, pairs))
    return out


@pytest.mark.parametrize("point_mass", [False, True])
@pytest.mark.parametrize("width", [1, 4])
def test_what_comes_out_follows_the_target(width: int, point_mass: bool) -> None:
    values = []
    for seed in (1, 2, 3):
        target, drafter = tables(seed)
        for options in SETTINGS:
            params = SamplingParams(**options, seed=seed)
            draws = testing.speculative_chain(target, drafter, params, width, point_mass, DRAWS, TOKENS)
            values += p_values(draws, law(target, **options))
    assert min(values) * len(values) > 0.01


def test_the_test_sees_a_wrong_law() -> None:
    """Draws of the drafter instead of the target are found out."""
    target, drafter = tables(1)
    draws = testing.speculative_chain(
        drafter, drafter, SamplingParams(temperature=1.0, seed=1), 4, False, DRAWS, TOKENS
    )
    assert min(p_values(draws, law(target, 1.0))) < 1e-6


@pytest.mark.parametrize("options", [{"temperature": 1.0, "top_k": 1}, {"temperature": 1e-9}, {"temperature": 0.0}])
def test_one_token_is_greedy(options: dict) -> None:
    target, drafter = tables(4)
    text, expected = 0, []
    for _ in range(TOKENS):
        text = int(target[text].argmax())
        expected.append(text)
    for width in (0, 1, 4):
        draws = testing.speculative_chain(target, drafter, SamplingParams(**options, seed=2), width, True, 20, TOKENS)
        assert (draws == expected).all()


def test_a_seed_repeats() -> None:
    target, drafter = tables(5)
    first, second = (
        testing.speculative_chain(target, drafter, SamplingParams(temperature=1.0, seed=9), 4, False, 50, 30)
        for _ in range(2)
    )
    assert np.array_equal(first, second)
