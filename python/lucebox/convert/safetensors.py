"""Checkpoints in safetensors files, mapped and read as they lie there.

The `safetensors` package has no bfloat16 without torch, and its raw form copies the whole file; the layout is a length, a JSON header and
the data. The input is untrusted: every offset is checked before it is used.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lucebox import _core
from lucebox.errors import RequestError

TYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
"""Types that weights may have, as GGUF names them."""
_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "U16": 2, "U32": 4, "U64": 8, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip
_MOST_HEADER = 100 << 20


@dataclass(frozen=True)
class Tensor:
    name: str
    type: str  # as the file names it: BF16
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]  # mapped

    def values(self) -> npt.NDArray[np.float32]:
        """Flat. Raises RequestError for a type that is no float."""
        if self.type not in TYPES:
            raise RequestError(f"{self.name} has values of type {self.type}; weights are {', '.join(TYPES)}")
        return _core.dequantize(TYPES[self.type], self.data)


def read(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint's folder, in one file or several. Raises RequestError."""
    index = folder / "model.safetensors.index.json"
    files = _indexed(index) if index.exists() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise RequestError(f"{folder}: there is no .safetensors file in this folder")
    found: dict[str, Tensor] = {}
    for path in files:
        for tensor in _read_file(path):
            if tensor.name in found:
                raise RequestError(f"{path}: tensor {tensor.name} is in another file of the folder, too")
            found[tensor.name] = tensor
    return found


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: is no JSON file ({error})") from None
    if not isinstance(value, dict):
        raise RequestError(f"{path}: holds no JSON object")
    return value


def _indexed(index: Path) -> list[Path]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise RequestError(f"{index}: has no weight_map from tensors to files")
    if any(Path(name).name != name for name in names.values()):
        raise RequestError(f"{index}: names a file outside of its folder")
    return [index.parent / name for name in sorted(set(names.values()))]


def _read_file(path: Path) -> list[Tensor]:
    def fail(text: str) -> RequestError:
        return RequestError(f"{path}: is no safetensors file: {text}")

    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
            if not 2 <= length <= min(size - 8, _MOST_HEADER):
                raise fail(f"its header has {length} of {size} bytes")
            header = json.loads(file.read(length))
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise fail(f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise fail("its header is no JSON object")
    header.pop("__metadata__", None)
    data: npt.NDArray[np.uint8] = (
        np.memmap(path, np.uint8, mode="r", offset=8 + length) if size > 8 + length else np.empty(0, np.uint8)
    )
    return [_tensor(name, entry, data, fail) for name, entry in header.items()]


def _tensor(name: str, entry: Any, data: npt.NDArray[np.uint8], fail: Callable[[str], RequestError]) -> Tensor:
    type, shape, offsets = "", [-1], [-1]
    if isinstance(entry, dict):
        type = entry.get("dtype", "")
        shape, offsets = (
            value if isinstance(value, list) else [-1] for value in map(entry.get, ("shape", "data_offsets"))
        )
    whole = all(n.__class__ is int and n >= 0 for n in (*shape, *offsets))
    if not isinstance(type, str) or type not in _BYTES or not whole or len(offsets) != 2:
        raise fail(f"tensor {name!r} has the entry {str(entry)[:200]}")
    first, last = offsets
    if not first <= last <= data.size or last - first != math.prod(shape) * _BYTES[type]:
        raise fail(f"tensor {name!r} of {shape} {type} has bytes {first} to {last} of {data.size}")
    return Tensor(name, type, tuple(shape), data[first:last])
