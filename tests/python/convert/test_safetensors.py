"""Safetensors files as they are read: equal to what the package reads, and malformed ones refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import checkpoints
import numpy as np
import pytest
from lucebox.convert import safetensors
from lucebox.errors import RequestError


def test_values(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    held = {
        "a": ("F32", [2, 3], x.tobytes()), "b": ("F16", [6], x.astype(np.float16).tobytes()),
        "c": ("BF16", [3, 2], checkpoints.as_bf16(x)), "d": ("I64", [1], b"\0" * 8), "e": ("F32", [0, 4], b""),
        "f": ("F32", [], b"\0\0\x80?"),
    }  # fmt: skip
    checkpoints.write_safetensors(tmp_path / "model.safetensors", held)
    found = safetensors.read(tmp_path)
    assert [found[n].shape for n in "abcef"] == [(2, 3), (6,), (3, 2), (0, 4), ()]
    for name in "abc":
        assert np.array_equal(found[name].values(), x.reshape(-1))
    assert found["f"].values().tolist() == [1.0]
    with pytest.raises(RequestError, match="d has values of type I64"):
        found["d"].values()


def header(entry: object, data: bytes = b"\0" * 16) -> bytes:
    text = json.dumps({"t": entry}).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff" * 8, b"\xff" * 64, struct.pack("<Q", 1 << 40) + b"{}", struct.pack("<Q", 4) + b"{}[]", struct.pack("<Q", 2) + b"[]",
        header([]), header({**GOOD, "dtype": "F31"}), header({**GOOD, "shape": [2, 3]}), header({**GOOD, "shape": [-2, -2]}),
        header({**GOOD, "shape": [2.0, 2]}), header({**GOOD, "shape": None}), header({**GOOD, "data_offsets": [0, 17]}),
        header({**GOOD, "data_offsets": [4, 20]}), header({**GOOD, "data_offsets": [16, 0]}), header({**GOOD, "data_offsets": [16]}),
        header({**GOOD, "shape": [1 << 62, 1 << 62]}), header({**GOOD, "dtype": ["F32"]}), header({**GOOD, "shape": [True, 4]}),
    ],
)  # fmt: skip
def test_malformed_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(RequestError, match="model.safetensors: is no safetensors file"):
        safetensors.read(tmp_path)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no .safetensors file"):
        safetensors.read(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')
    with pytest.raises(RequestError, match="outside of its folder"):
        safetensors.read(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(RequestError, match="no weight_map"):
        safetensors.read(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[" * 100000)
    with pytest.raises(RequestError, match="is no JSON file"):
        safetensors.read(tmp_path)
