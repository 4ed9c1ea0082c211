"""Files in other tensor types: bytes of the encoders, metadata, importances, and that a failure leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
from lucebox import _core
from lucebox.convert import dflash
from lucebox.convert.imatrix import Importance
from lucebox.convert.mixture import Wishes, is_matrix
from lucebox.convert.quantize import quantize
from lucebox.errors import GGUFError, RequestError
from lucebox.selftest import tiny


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "source.gguf"
    tiny.write(
        path,
        tiny.TinyModel(types="bf16"),
        [("general.file_type", "u32", 32), ("made.by", "i64", -3), ("split.no", "u16", 0)],
    )
    return path


def values(file: _core.GGUFFile, tensor: _core.TensorInfo) -> np.ndarray:
    return _core.dequantize(tensor.type, file.data(tensor.name)).reshape(-1, tensor.dims[0])


def importance(file: _core.GGUFFile, seed: int = 1) -> Importance:
    random = np.random.RandomState(seed)
    held = {t.name: random.rand(t.dims[0]).astype(np.float32) for t in file.tensors if is_matrix(t)}
    return Importance("some.dat", held, ["text.txt"], 5)


@pytest.mark.parametrize("type", ["q8_0", "q4_0", "q4_K", "iq4_xs", "f16"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bytes(tmp_path: Path, source: Path, type: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.convert.quantize._CHUNK", 5 * 256)  # rows of a tensor come in several parts
    before = _core.GGUFFile(str(source))
    known = importance(before) if weighted and type != "f16" else None
    done = quantize(source, tmp_path / "out.gguf", Wishes(type, pure=True), importance=known, threads=3)
    after = _core.GGUFFile(str(tmp_path / "out.gguf"))
    assert done.types == {type: done.matrices, "f32": len(after.tensors) - done.matrices} and done.fallbacks == []
    assert done.weighted == (done.matrices if known else 0)
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (old.name, old.dims) == (new.name, new.dims)
        if not is_matrix(old):
            assert new.type == "f32" and np.array_equal(after.data(new.name), before.data(old.name))
            continue
        weights = (
            known.values[old.name]
            if known
            else np.ones(old.dims[0], np.float32)
            if type in ("q4_0", "iq4_xs")
            else None
        )
        assert new.type == type
        assert np.array_equal(after.data(new.name), _core.quantize(type, values(before, old), weights).reshape(-1))


def test_metadata(tmp_path: Path, source: Path) -> None:
    quantize(source, tmp_path / "out.gguf", Wishes("q4_K"), importance=importance(_core.GGUFFile(str(source))))
    before, after = _core.GGUFFile(str(source)), _core.GGUFFile(str(tmp_path / "out.gguf"))
    told = after.metadata
    assert (told["general.file_type"], told["general.quantization_version"]) == (15, 2)
    assert told["made.by"] == -3 and after.value_types["made.by"] == "i64" and "split.no" not in told
    assert (told["quantize.imatrix.file"], told["quantize.imatrix.dataset"]) == ("some.dat", "text.txt")
    assert (told["quantize.imatrix.entries_count"], told["quantize.imatrix.chunks_count"]) == (33, 5)
    assert told["tokenizer.ggml.tokens"] == before.metadata["tokenizer.ggml.tokens"]


def test_the_engine_runs_it(tmp_path: Path, source: Path) -> None:
    quantize(source, tmp_path / "out.gguf", Wishes("q8_0"))
    rows = []
    for path in (source, tmp_path / "out.gguf"):
        engine = _core.Engine(_core.GGUFFile(str(path)), max_ctx=16)
        rows.append(engine.forward([(0, [1, 2, 3, 4])], "all"))
    assert np.abs(rows[0] - rows[1]).max() < 0.1 * np.abs(rows[0]).max()


def test_a_drafter(tmp_path: Path) -> None:
    target = checkpoints.write_target(tmp_path / "target.gguf")
    folder = checkpoints.write(tmp_path / "drafter", hidden_size=256)
    dflash.convert(folder, tmp_path / "drafter.gguf", target=target, vocabulary=None, outtype="auto")
    done = quantize(tmp_path / "drafter.gguf", tmp_path / "out.gguf", Wishes("q4_K"))
    file = _core.GGUFFile(str(tmp_path / "out.gguf"))
    kinds = {tensor.name: tensor.type for tensor in file.tensors}
    assert kinds["blk.0.attn_conv_proj.weight"] == kinds["selector_hidden.weight"] == "q8_0"
    assert kinds["blk.0.attn_conv_base"] == kinds["enc.output_norm.weight"] == "f32"
    assert kinds["blk.0.ffn_gate.weight"] == "q4_K" and kinds["blk.0.attn_output.weight"] == "q8_0"  # rows of 128
    assert "selector_successor.weight" in done.fallbacks
    told = _core.GGUFFile(str(tmp_path / "drafter.gguf")).metadata
    assert file.metadata["lucebox.target.fingerprint"] == told["lucebox.target.fingerprint"]
    assert _core.Engine(_core.GGUFFile(str(target)), max_ctx=64, draft=file).draft_block_size == 8


def test_quantised_files_are_taken_on_demand_only(tmp_path: Path, source: Path) -> None:
    quantize(source, tmp_path / "q8.gguf", Wishes("q8_0"))
    with pytest.raises(RequestError, match="already of type q8_0.*--allow-requantize"):
        quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", Wishes("q4_0"))
    quantize(tmp_path / "q8.gguf", tmp_path / "same.gguf", Wishes("q8_0"))  # nothing changes
    quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", Wishes("q4_0"), allow_requantize=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q4.gguf", "q8.gguf", "same.gguf"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda held: held.update({"blk.0.ffn_up.weight": np.ones(7, np.float32)}), "7 importances.*blk.0.ffn_up"),
        (lambda held: held.clear(), "names none"),
    ],
)
def test_importances_of_another_model(tmp_path: Path, source: Path, change: Any, text: str) -> None:
    known = importance(_core.GGUFFile(str(source)))
    change(known.values)
    with pytest.raises(RequestError, match=text):
        quantize(source, tmp_path / "out.gguf", Wishes("q4_K"), importance=known)
    assert list(tmp_path.iterdir()) == []


def test_failures_leave_nothing(tmp_path: Path, source: Path) -> None:
    def interrupt(done: float) -> None:
        if done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "out.gguf", Wishes("q8_0"), progress=interrupt, threads=2)
    model = tiny.TinyModel(types="f32")
    tensors = tiny.tensors(model)
    at = next(i for i, tensor in enumerate(tensors) if tensor[0] == "blk.2.ffn_up.weight")
    tensors[at][3][4 * 300 : 4 * 301] = np.array([np.inf], np.float32).view(np.uint8)
    _core.write_gguf(str(tmp_path / "inf.gguf"), tiny.metadata(model), tensors)
    with pytest.raises(RequestError, match="blk.2.ffn_up.weight, rows 0 to .*not finite"):
        quantize(tmp_path / "inf.gguf", tmp_path / "out.gguf", Wishes("q8_0"))
    with pytest.raises(RequestError, match="is the file that is read"):
        quantize(tmp_path / "inf.gguf", tmp_path / "inf.gguf", Wishes("q8_0"))
    assert [path.name for path in tmp_path.iterdir()] == ["inf.gguf"]


@pytest.mark.parametrize("name", [b"output_norm.weight", b"made.by"])
def test_names_that_are_no_text(tmp_path: Path, source: Path, name: bytes) -> None:
    data = source.read_bytes()
    assert data.count(name) == 1
    (tmp_path / "odd.gguf").write_bytes(data.replace(name, b"\xff" + name[1:]))
    with pytest.raises(GGUFError, match="udcff.*not UTF-8"):
        quantize(tmp_path / "odd.gguf", tmp_path / "out.gguf", Wishes("q8_0"))
    assert not (tmp_path / "out.gguf").exists()
