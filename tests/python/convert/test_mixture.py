"""Which tensor gets which type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lucebox import _core
from lucebox.convert.mixture import Wishes, choose, is_matrix, type_named
from lucebox.errors import RequestError, UnsupportedModelError
from lucebox.selftest import tiny


def write(path: Path, **changes: Any) -> _core.GGUFFile:
    tiny.write(path, tiny.TinyModel(**{"types": "f16", "layers": 16, "ff": 512, **changes}))
    return _core.GGUFFile(str(path))


def types(file: _core.GGUFFile, **wishes: Any) -> dict[str, str]:
    return {choice.tensor.name: choice.type for choice in choose(file, Wishes(**wishes))}


def test_pure_takes_every_matrix_and_nothing_else(tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf")
    found = types(file, base="iq4_xs", pure=True)
    assert {found[t.name] for t in file.tensors if is_matrix(t)} == {"iq4_xs"}
    assert {found[t.name] for t in file.tensors if not is_matrix(t)} == {"f32"}
    assert found["blk.0.ssm_conv1d.weight"] == found["blk.0.attn_norm.weight"] == found["blk.0.ssm_a"] == "f32"


@pytest.mark.parametrize("base", ["q4_0", "q4_K", "iq4_xs", "q8_0"])
def test_mixtures(tmp_path: Path, base: str) -> None:
    found = types(write(tmp_path / "model.gguf"), base=base)
    large = base if base == "q8_0" else "q6_K"
    assert found["output.weight"] == found["blk.3.attn_v.weight"] == large
    assert found["token_embd.weight"] == found["blk.0.ffn_up.weight"] == base
    assert found["blk.0.ssm_alpha.weight"] == "q8_0"
    assert found["blk.0.ssm_out.weight"] == ("q6_K" if base == "q4_K" else base)
    more = [i for i in range(16) if found[f"blk.{i}.ffn_down.weight"] != base]
    assert more == {"q4_0": [0, 1], "iq4_xs": [0, 1], "q4_K": [0, 1, 4, 7, 10, 13, 14, 15], "q8_0": []}[base]
    tied = types(write(tmp_path / "tied.gguf", tied=True), base=base)
    assert tied["token_embd.weight"] == large


def test_wishes(tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf")
    overrides = [("ffn_(up|gate|norm)", "q8_0"), (r"blk\.3\..*ffn_up", "bf16")]
    found = types(file, base="q4_K", overrides=overrides, output="q8_0", embedding="f16")
    assert found["blk.3.ffn_gate.weight"] == "q8_0" and found["blk.3.ffn_up.weight"] == "bf16"
    assert found["output.weight"] == "q8_0" and found["token_embd.weight"] == "f16"
    assert types(file, base="q4_K", output="q8_0", overrides=[("^output.weight$", "f16")])["output.weight"] == "f16"


@pytest.mark.parametrize(
    ("override", "text"),
    [
        (("ffn_(", "q8_0"), "regular expression"),
        (("absent", "q8_0"), "no matrix"),
        (("attn_norm", "q8_0"), "no matrix"),
    ],
)
def test_refused_overrides(tmp_path: Path, override: tuple[str, str], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        types(write(tmp_path / "model.gguf"), base="q4_K", overrides=[override])


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", ff=288)  # a multiple of 32, not of 256
    found = {choice.tensor.name: choice for choice in choose(file, Wishes(base="q4_K", pure=True))}
    assert found["blk.0.ffn_down.weight"].type == "q8_0" and found["blk.0.ffn_down.weight"].fallback
    assert found["blk.0.ffn_up.weight"].type == "q4_K" and not found["blk.0.ffn_up.weight"].fallback
    with pytest.raises(RequestError, match="rows of 288"):
        types(file, base="q8_0", overrides=[("ffn_down", "q4_K")])


def test_names_of_types() -> None:
    assert [type_named(name) for name in ("Q4_K", "q4_k", "IQ4_XS", "BF16")] == ["q4_K", "q4_K", "iq4_xs", "bf16"]
    with pytest.raises(RequestError, match="Q3_K"):
        type_named("Q3_K")


def test_other_architectures(tmp_path: Path) -> None:
    tensors = [("a.weight", "f32", [256, 2], np.zeros(2048, np.uint8))]
    _core.write_gguf(str(tmp_path / "a.gguf"), [("general.architecture", "str", "llama")], tensors)
    with pytest.raises(UnsupportedModelError, match="'llama'"):
        choose(_core.GGUFFile(str(tmp_path / "a.gguf")), Wishes(base="q8_0"))
