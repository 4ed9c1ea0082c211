"""Drafters from safetensors to GGUF: layout, values, what is refused, and that a failure leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
from lucebox import _core, fingerprint
from lucebox.convert import dflash
from lucebox.errors import DrafterMismatchError, Error, RequestError, UnsupportedModelError


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write_target(tmp_path_factory.mktemp("target") / "target.gguf")


def converted(tmp_path: Path, target: Path, version: int = 2, outtype: str = "auto", **changes: Any) -> _core.GGUFFile:
    folder = checkpoints.write(tmp_path / "drafter", version, **changes)
    dflash.convert(folder, tmp_path / "out.gguf", target=target, vocabulary=None, outtype=outtype)
    return _core.GGUFFile(str(tmp_path / "out.gguf"))


def test_the_layout_of_dflash2(tmp_path: Path, target: Path) -> None:
    file = converted(tmp_path, target)
    told = file.metadata
    assert told["general.architecture"] == "dflash"
    assert told["dflash.target_layers"] == [1, 3]
    assert told["dflash.block_size"] == 8 and told["tokenizer.ggml.mask_token_id"] == 300
    assert told["dflash.rope.freq_base"] == 1e7 and told["dflash.rope.dimension_sections"] == [16, 0, 0, 0]
    assert told["dflash.attention.causal"] is False
    assert told["dflash.attention.sliding_window_pattern"] == [True, True]
    assert told["tokenizer.ggml.tokens"] == _core.GGUFFile(str(target)).metadata["tokenizer.ggml.tokens"]
    assert told[fingerprint.KEY] == fingerprint.fingerprint(_core.GGUFFile(str(target)))
    assert len(file.tensors) == 6 + LAYER_TENSORS[2] * checkpoints.LAYERS
    dims = {tensor.name: tensor.dims for tensor in file.tensors}
    assert dims["fc.weight"] == [512, 256] and dims["blk.1.attn_conv_base"] == [256, 2, 2]
    assert dims["blk.0.ffn_conv_proj.weight"] == [256, 64] and dims["selector_successor.weight"] == [32, 320]


LAYER_TENSORS = {1: 11, 2: 15}


def test_the_layout_of_version_1(tmp_path: Path, target: Path) -> None:
    file = converted(tmp_path, target, version=1)
    told = file.metadata
    assert len(file.tensors) == 3 + LAYER_TENSORS[1] * checkpoints.LAYERS
    assert told["dflash.attention.sliding_window_pattern"] == [True, False]
    assert "dflash.attention.causal" not in told and "dflash.selector_top_k" not in told


@pytest.mark.parametrize("outtype", ["auto", "f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("files", [1, 3])
def test_values_and_types(tmp_path: Path, target: Path, outtype: str, files: int) -> None:
    file = converted(tmp_path, target, outtype=outtype, files=files)
    wanted = "bf16" if outtype == "auto" else outtype
    names = dflash.read_config(tmp_path / "drafter/config.json").shapes
    types = {tensor.name: tensor.type for tensor in file.tensors}
    for theirs, x in checkpoints.values().items():
        ours = names[theirs][0]
        exact = x.ndim == 1 or ours.endswith("_conv_base")
        assert types[ours] == ("f32" if exact else wanted)
        kind = types[ours]
        expected = _core.quantize(kind, x.reshape(-1, x.shape[-1])).reshape(-1)
        assert np.array_equal(file.data(ours), expected), ours


def test_the_engine_loads_it(tmp_path: Path, target: Path) -> None:
    drafter = converted(tmp_path, target, outtype="q8_0", head_dim=32)
    engine = _core.Engine(_core.GGUFFile(str(target)), max_ctx=64, draft=drafter)
    assert engine.draft_block_size == 8


@pytest.mark.parametrize("key", ["block_size", "rope_parameters", "target_layer_ids", "mask_token_id"])
def test_nothing_is_guessed(tmp_path: Path, target: Path, key: str) -> None:
    inner = {k: v for k, v in checkpoints.config()["dflash_config"].items() if k != key}
    with pytest.raises(RequestError, match="rope_theta" if key == "rope_parameters" else key):
        converted(
            tmp_path,
            target,
            dflash_config=inner,
            **({} if key in ("target_layer_ids", "mask_token_id") else {key: None}),
        )
    assert not (tmp_path / "out.gguf").exists()


def test_places_of_a_value(tmp_path: Path, target: Path) -> None:
    inner = checkpoints.config()["dflash_config"] | {"block_size": 4, "rope_theta": 5000.0}
    told = converted(tmp_path, target, dflash_config=inner, rope_parameters=None).metadata
    assert told["dflash.block_size"] == 4 and told["dflash.rope.freq_base"] == 5000
    told = converted(tmp_path, target, rope_parameters=None, rope_theta=7000.0, output_multiplier=0.25).metadata
    assert told["dflash.rope.freq_base"] == 7000 and told["dflash.logit_scale"] == 0.25
    told = converted(tmp_path, target, rope_parameters=None, rope_scaling={"rope_theta": 8000.0}).metadata
    assert told["dflash.rope.freq_base"] == 8000


def test_a_causal_drafter_stays_one(tmp_path: Path, target: Path) -> None:
    drafter = converted(tmp_path, target, is_causal=True, rope_scaling={"rope_type": "default"})
    assert drafter.metadata["dflash.attention.causal"] is True
    _core.Engine(_core.GGUFFile(str(target)), max_ctx=64, draft=drafter)


WIDE = {**checkpoints.config()["dflash_config"], "selector_top_k": 17}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"architectures": ["DSparkModel"]}, UnsupportedModelError, "DFlash2DraftModel"),
        ({"input_embedding_scale": 2.0}, UnsupportedModelError, "input_embedding_scale"),
        ({"block_size": "8"}, RequestError, "block_size"),
        ({"block_size": True}, RequestError, "block_size"),
        ({"block_size": 17}, RequestError, "block_size.*from 2 to 16"),
        ({"dflash_config": WIDE}, RequestError, "selector_top_k.*from 1 to 16"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, UnsupportedModelError, "rope_scaling is 'yarn'"),
        ({"rope_parameters": {"rope_theta": 1e7, "type": "linear"}}, UnsupportedModelError, "'linear'"),
        ({"rms_norm_eps": float("nan")}, RequestError, "rms_norm_eps"),
        ({"layer_types": ["sliding_attention"]}, RequestError, "layer_types"),
        ({"is_causal": "no"}, RequestError, "is_causal"),
        ({"hidden_size": 512}, RequestError, "config.json makes it"),
    ],
)
def test_refused_configurations(
    tmp_path: Path, target: Path, changes: dict[str, Any], error: type[Error], text: str
) -> None:
    with pytest.raises(error, match=text):
        converted(tmp_path, target, **changes)
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"layers": 8, "vocab": 352}, "vocabulary 320.*352"), ({"hidden": 512}, "hidden size 256.*512")],
)
def test_another_target(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    other = checkpoints.write_target(tmp_path / "other.gguf", **changes)
    with pytest.raises(DrafterMismatchError, match=text):
        converted(tmp_path, other)
    inner = checkpoints.config()["dflash_config"] | {"target_layer_ids": [0, 4]}
    with pytest.raises(DrafterMismatchError, match="layer 4.*0 to 3"):
        converted(tmp_path, checkpoints.write_target(tmp_path / "right.gguf"), dflash_config=inner)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda t: t.pop("layers.1.mlp_conv.base_kernel"),
            RequestError,
            "lacks 1 of 36.*layers.1.mlp_conv.base_kernel",
        ),
        (lambda t: t.update({"markov_w1.weight": t["norm.weight"]}), UnsupportedModelError, "markov_w1"),
        (lambda t: t.update({"norm.weight": t["norm.weight"][:-1]}), RequestError, r"norm.weight is \[255\]"),
        (lambda t: t["fc.weight"].__setitem__((3, 4), np.inf), RequestError, "fc.weight holds values"),
    ],
)
def test_refused_tensors(tmp_path: Path, target: Path, change: Any, error: type[Error], text: str) -> None:
    tensors = checkpoints.values()
    change(tensors)
    with pytest.raises(error, match=text):
        converted(tmp_path, target, outtype="q8_0", tensors=tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


def test_other_names_of_the_codebooks(tmp_path: Path, target: Path) -> None:
    tensors = {
        name + ".weight" if "codebook" in name else "model." + name: x for name, x in checkpoints.values().items()
    }
    file = converted(tmp_path, target, tensors=tensors)
    assert "selector_predecessor.weight" in {tensor.name for tensor in file.tensors}


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path, target: Path) -> None:
    folder = checkpoints.write(tmp_path / "drafter")

    def interrupt(done: float) -> None:
        if done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dflash.convert(
            folder, tmp_path / "out.gguf", target=target, vocabulary=None, outtype="auto", progress=interrupt
        )
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]
