"""`lucebox quantize` against llama.cpp's quantiser: how far each file is from the one that it was made from."""

from __future__ import annotations

from pathlib import Path

import lucebox
import numpy as np
import pytest
from lucebox import _core
from lucebox.convert.mixture import Wishes, is_matrix, type_named
from lucebox.convert.quantize import quantize
from oracle.files import NANO, rewrite
from oracle.test_llama_cpp import PROMPTS, log_softmax

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nano in f32, its values moved off the grid of the type that it is bundled in."""
    path = tmp_path_factory.mktemp("source") / "source.gguf"
    file, random = _core.GGUFFile(str(NANO)), np.random.default_rng(5)
    keys = [(key, file.value_types[key], value) for key, value in file.metadata.items()]
    with _core.GGUFWriter(str(path), keys, [(t.name, "f32", t.dims) for t in file.tensors]) as writer:
        for tensor in file.tensors:
            x = _core.dequantize(tensor.type, file.data(tensor.name)).copy()
            if is_matrix(tensor):
                x *= (1 + 0.05 * random.standard_normal(x.size)).astype(np.float32)
            writer.add(x.view(np.uint8))
        writer.finish()
    return path


def distributions(path: Path, prompts: list[list[int]]) -> np.ndarray:
    with lucebox.load(str(path), max_ctx=256, kv="f32") as engine:
        return np.concatenate([log_softmax(engine.forward(ids)) for ids in prompts])


@pytest.mark.parametrize("type", ["Q8_0", "Q4_0", "Q4_K", "IQ4_XS"])
def test_kl_of_pure_files(tmp_path: Path, source: Path, type: str) -> None:
    with lucebox.load(str(source), max_ctx=64) as engine:
        prompts = [engine.tokenizer.encode(prompt) for prompt in PROMPTS]
    quantize(source, tmp_path / "ours.gguf", Wishes(type_named(type), pure=True), threads=2)
    rewrite(source, tmp_path / "theirs.gguf", lambda name: type)
    exact = distributions(source, prompts)
    kl = {}
    for name in ("ours", "theirs"):
        other = distributions(tmp_path / f"{name}.gguf", prompts)
        kl[name] = float((np.exp(exact) * (exact - other)).sum(axis=1).mean())
    print(f"{type}: KL {kl['ours']:.3e}, llama.cpp {kl['theirs']:.3e}, ratio {kl['ours'] / kl['theirs']:.3f}")
    assert kl["ours"] <= 1.001 * kl["theirs"]
    if type in ("Q8_0", "Q4_K"):  # the same search, to the bit
        ours, theirs = (_core.GGUFFile(str(tmp_path / f"{name}.gguf")) for name in kl)
        assert all(np.array_equal(ours.data(t.name), theirs.data(t.name)) for t in ours.tensors)
