"""Importance matrices of llama.cpp: how much each column of a matrix is used. Read from GGUF files and from the older binary form.

The files are untrusted: every number is checked before it is used.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from lucebox import _core
from lucebox.errors import RequestError

_MOST_ENTRIES, _MOST_NAME, _MOST_VALUES, _MOST_CHUNKS = 1 << 20, 1 << 12, 1 << 24, (1 << 31) - 1


@dataclass(frozen=True)
class Importance:
    file: str
    values: dict[str, npt.NDArray[np.float32]]
    """Of each tensor a weight a column."""
    datasets: list[str]
    chunks: int


def read(path: Path) -> Importance:
    """Raises RequestError or GGUFError."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            found = _read_gguf(path) if magic == b"GGUF" else _read_binary(path, file)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    for name, values in found.values.items():
        if not np.isfinite(values).all() or (values < 0).any():
            raise RequestError(f"{path}: the importance of {name} holds values that are negative or no finite numbers")
    return found


def _read_gguf(path: Path) -> Importance:
    file = _core.GGUFFile(str(path))
    told = file.metadata
    if told.get("general.type") != "imatrix":
        raise RequestError(
            f"{path}: is a GGUF file, but no importance matrix (general.type is {told.get('general.type')!r})"
        )
    tensors = {tensor.name: tensor for tensor in file.tensors}
    values = {}
    for name, sums in tensors.items():
        if not name.endswith(".in_sum2"):
            continue
        own = name.removesuffix(".in_sum2")
        counts = tensors.get(own + ".counts")
        if (
            counts is None
            or sums.type != "f32"
            or counts.type != "f32"
            or counts.nbytes != 4
            or len(sums.dims) > 1
            and sums.dims[1] != 1
        ):
            raise RequestError(
                f"{path}: {name} {sums.dims} has no single count beside it; matrices of experts are not supported"
            )
        count = float(file.data(counts.name).view(np.float32)[0])
        if count > 0:  # a tensor that no token went through says nothing
            values[own] = file.data(name).view(np.float32) / np.float32(count)
    datasets = told.get("imatrix.datasets", [])
    chunks = told.get("imatrix.chunk_count", 0)
    return Importance(
        str(path),
        values,
        [str(d) for d in datasets] if isinstance(datasets, list) else [],
        min(max(chunks, 0), _MOST_CHUNKS) if isinstance(chunks, int) else 0,
    )


def _read_binary(path: Path, file: BinaryIO) -> Importance:
    """Number of tensors; of each: length and name, calls, number of values, values times calls.

    Then, in newer files: chunks, length and name of the dataset.
    """

    def integer(what: str, least: int, most: int) -> int:
        data = file.read(4)
        value = struct.unpack("<i", data)[0] if len(data) == 4 else None
        if value is None or not least <= value <= most:
            raise RequestError(
                f"{path}: is no importance matrix: at byte {file.tell() - len(data)} {what} is {value}; {least} to {most} are possible"
            )
        return int(value)

    def text(what: str) -> str:
        return file.read(integer(f"the length of {what}", 0, _MOST_NAME)).decode("utf-8", "surrogateescape")

    values = {}
    for i in range(integer("the number of tensors", 1, _MOST_ENTRIES)):
        name = text(f"the name of tensor {i}")
        calls = integer(f"the calls of {name}", 0, _MOST_CHUNKS)
        count = integer(f"the values of {name}", 1, _MOST_VALUES)
        data = file.read(4 * count)
        if len(data) != 4 * count:
            raise RequestError(f"{path}: ends within the {count} values of {name}")
        values[name] = np.frombuffer(data, "<f4") / np.float32(max(calls, 1))
    if not file.read(1):
        return Importance(str(path), values, [], 0)
    file.seek(-1, 1)
    chunks = integer("the number of chunks", 0, _MOST_CHUNKS)
    return Importance(str(path), values, [text("the dataset")], chunks)
