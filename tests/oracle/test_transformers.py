"""The forward pass against transformers in float32: F32 weights and float KV, so that only the order of sums differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lucebox import _core
from lucebox.selftest import tiny
from oracle.files import NANO, rewrite

pytestmark = pytest.mark.oracle

GEOMETRIES = [(2, 2), (2, 4), (2, 6)]  # key heads, value heads


@pytest.fixture(scope="module")
def hf():
    from oracle import hf

    return hf


def ours(path: Path, ids: list[int], max_ctx: int = 8192, **options: object) -> tuple[np.ndarray, np.ndarray]:
    engine = _core.Engine(_core.GGUFFile(str(path)), max_ctx=max_ctx, kv="f32", **options)
    hidden = engine.hidden(ids, list(range(engine.info.layers)))
    return engine.forward([(0, ids)], "all"), hidden


def assert_close(mine: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray]) -> None:
    error = np.abs(mine[0] - theirs[0]).max() * 5 / max(5.0, np.abs(theirs[0]).max())
    assert error <= 1e-3, f"logits differ by {error}"
    for layer, (a, b) in enumerate(zip(mine[1], theirs[1], strict=True)):
        relative = np.linalg.norm(a - b) / np.linalg.norm(b)
        assert relative <= 1e-4, f"layer {layer} differs by {relative}"


@pytest.mark.parametrize("key_heads,value_heads", GEOMETRIES)
@pytest.mark.parametrize("tied", [False, True])
def test_tiny(tmp_path: Path, hf, key_heads: int, value_heads: int, tied: bool) -> None:
    path = tmp_path / "tiny.gguf"
    tiny.write(
        path, tiny.TinyModel(key_heads=key_heads, value_heads=value_heads, tied=tied, layers=8, seed=value_heads)
    )
    ids = np.random.RandomState(1).randint(0, 300, 150).tolist()
    assert_close(ours(path, ids), hf.run(hf.load(str(path)), ids))


def test_nano(tmp_path: Path, hf) -> None:
    """nano's weights as float32."""
    path = tmp_path / "nano-f32.gguf"
    rewrite(NANO, path, lambda name: "F32")
    ids = _ids_of_nano()
    assert_close(ours(path, ids), hf.run(hf.load(str(path)), ids))


def test_first_token_of_a_long_context(tmp_path: Path, hf) -> None:
    """4,096 tokens where only the first differs: the logits change as the reference says."""
    path = tmp_path / "tiny.gguf"
    tiny.write(path, tiny.TinyModel(seed=7))
    model = hf.load(str(path))
    ids = np.random.RandomState(2).randint(0, 300, 4096).tolist()
    logits = []
    for first in (11, 222):
        mine, theirs = ours(path, [first, *ids[1:]]), hf.run(model, [first, *ids[1:]])
        assert_close(mine, theirs)
        logits.append((mine[0], theirs[0]))
    change, expected = logits[1][0] - logits[0][0], logits[1][1] - logits[0][1]
    assert np.abs(expected[-1]).max() > 0
    assert np.abs(change - expected).max() <= 1e-3


def _ids_of_nano() -> list[int]:
    text = "import os\n\n\nclass FileCache:\n    def __init__(self, path):\n        self.path = path\n"
    from lucebox.tokenizer import Tokenizer

    return Tokenizer(_core.GGUFFile(str(NANO)).metadata).encode(text)
