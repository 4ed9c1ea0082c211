"""Importance matrices: both forms of llama.cpp give the same values, and malformed files are refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lucebox import _core
from lucebox.convert import imatrix
from lucebox.errors import GGUFError, RequestError

VALUES = {"blk.0.ffn_up.weight": [1.0, 2.0, 0.0], "output.weight": [4.0, 5.0]}
CALLS = 3


def as_gguf(path: Path, counts: float = CALLS, type: str = "imatrix", **changes: Any) -> Path:
    tensors = []
    for name, values in VALUES.items():
        sums = np.array(values, np.float32) * np.float32(CALLS)
        tensors.append((f"{name}.in_sum2", "f32", [len(values), 1], sums.view(np.uint8)))
        tensors.append((f"{name}.counts", "f32", [1, 1], np.array([counts], np.float32).view(np.uint8)))
    keys = [("general.type", "str", type), ("imatrix.datasets", "str[]", ["a.txt"]), ("imatrix.chunk_count", "u32", 7)]
    _core.write_gguf(str(path), keys, changes.get("tensors", tensors))
    return path


def as_binary(values: dict[str, list[float]] = VALUES, tail: bytes = b"") -> bytes:
    out = struct.pack("<i", len(values))
    for name, row in values.items():
        out += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", CALLS, len(row))
        out += (np.array(row, np.float32) * np.float32(CALLS)).tobytes()
    return out + tail


def test_both_forms(tmp_path: Path) -> None:
    (tmp_path / "old.dat").write_bytes(as_binary(tail=struct.pack("<ii", 7, 5) + b"a.txt"))
    for path in (as_gguf(tmp_path / "new.gguf"), tmp_path / "old.dat"):
        found = imatrix.read(path)
        assert {name: values.tolist() for name, values in found.values.items()} == VALUES
        assert (found.chunks, found.datasets) == (7, ["a.txt"])
    (tmp_path / "older.dat").write_bytes(as_binary())
    assert imatrix.read(tmp_path / "older.dat").chunks == 0


def test_a_tensor_without_tokens_says_nothing(tmp_path: Path) -> None:
    assert imatrix.read(as_gguf(tmp_path / "new.gguf", counts=0)).values == {}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0", struct.pack("<i", 0), struct.pack("<i", -1), struct.pack("<i", 1 << 30), struct.pack("<ii", 1, -5),
        struct.pack("<ii", 1, 1 << 30), as_binary()[:-1], as_binary()[:20], as_binary(tail=b"\1"),
        as_binary(tail=struct.pack("<ii", 1, -1)),
        struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, 1 << 30),
    ],
)  # fmt: skip
def test_malformed_binary_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.dat").write_bytes(data)
    with pytest.raises(RequestError, match="bad.dat"):
        imatrix.read(tmp_path / "bad.dat")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_values_that_cannot_be(tmp_path: Path, bad: float) -> None:
    (tmp_path / "bad.dat").write_bytes(as_binary({"a": [1.0, bad]}))
    with pytest.raises(RequestError, match="importance of a holds values"):
        imatrix.read(tmp_path / "bad.dat")


def test_other_gguf_files(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no importance matrix"):
        imatrix.read(as_gguf(tmp_path / "model.gguf", type="model"))
    lone = [("a.in_sum2", "f32", [2], np.zeros(8, np.uint8))]
    with pytest.raises(RequestError, match="a.in_sum2"):
        imatrix.read(as_gguf(tmp_path / "lone.gguf", tensors=lone))
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\3\0")
    with pytest.raises(GGUFError):
        imatrix.read(tmp_path / "cut.gguf")
    with pytest.raises(RequestError, match="none.dat"):
        imatrix.read(tmp_path / "none.dat")
