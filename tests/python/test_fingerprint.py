"""The fingerprint of a target: the same for its quantisations, another for another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lucebox import _core
from lucebox.fingerprint import fingerprint
from lucebox.selftest import tiny


def of(tmp_path: Path, **changes: Any) -> str:
    tiny.write(tmp_path / "model.gguf", tiny.TinyModel(**changes))
    return fingerprint(_core.GGUFFile(str(tmp_path / "model.gguf")))


def test_types_and_values_count_for_nothing(tmp_path: Path) -> None:
    assert of(tmp_path, types="q8_0") == of(tmp_path, types="q4_K", seed=3)


@pytest.mark.parametrize("changes", [{"ff": 768}, {"layers": 8}, {"vocab": 352}, {"tied": True}])
def test_other_models(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert of(tmp_path) != of(tmp_path, **changes)


def test_tokens_count(tmp_path: Path) -> None:
    model = tiny.TinyModel()
    keys = [(k, t, ["other", *v[1:]] if k == "tokenizer.ggml.tokens" else v) for k, t, v in tiny.metadata(model)]
    _core.write_gguf(str(tmp_path / "other.gguf"), keys, tiny.tensors(model))
    assert fingerprint(_core.GGUFFile(str(tmp_path / "other.gguf"))) != of(tmp_path)
