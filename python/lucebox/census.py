"""What a GGUF file holds, told without loading it; any architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lucebox import _core


@dataclass(frozen=True)
class TypeCount:
    type: str
    tensors: int
    values: int
    nbytes: int


def by_type(file: _core.GGUFFile) -> list[TypeCount]:
    """Tensor types of the file, the one with most bytes first."""
    found: dict[str, list[_core.TensorInfo]] = {}
    for tensor in file.tensors:
        found.setdefault(tensor.type, []).append(tensor)
    counts = [
        TypeCount(type, len(tensors), sum(map(values, tensors)), sum(tensor.nbytes for tensor in tensors))
        for type, tensors in found.items()
    ]
    return sorted(counts, key=lambda count: (-count.nbytes, count.type))


def values(tensor: _core.TensorInfo) -> int:
    product = 1
    for dim in tensor.dims:
        product *= dim
    return product


def streamed_bytes(file: _core.GGUFFile) -> int | None:
    """Bytes of weights that one decoded token reads, None where experts make that depend on the token.

    All tensors of the trunk; of an embedding that is no head as well, one row.
    """
    names = {tensor.name for tensor in file.tensors}
    if any("_exps." in name for name in names):
        return None
    total = 0
    first_extra = _trunk_layers(file.metadata)
    for tensor in file.tensors:
        block = re.match(r"blk\.(\d+)\.", tensor.name)
        if block and first_extra is not None and int(block.group(1)) >= first_extra:
            continue
        if tensor.name == "token_embd.weight" and "output.weight" in names:
            total += tensor.nbytes // max(tensor.dims[-1], 1)
        else:
            total += tensor.nbytes
    return total


def _trunk_layers(metadata: Mapping[str, Any]) -> int | None:
    """The number of layers without prediction blocks, where the file has such blocks."""
    architecture = metadata.get("general.architecture")
    blocks = metadata.get(f"{architecture}.block_count")
    extra = metadata.get(f"{architecture}.nextn_predict_layers", 0)
    if not isinstance(blocks, int) or not isinstance(extra, int) or extra <= 0:
        return None
    return blocks - extra


def short(value: Any, limit: int = 72) -> str:
    """A metadata value on one line of printable characters."""
    if isinstance(value, list):
        head = ", ".join(short(item, 16) for item in value[:6])
        return f"[{head}]" if len(value) <= 6 else f"[{head}, …] ({len(value)} items)"
    if isinstance(value, float):
        return f"{value:.7g}"
    text = str(value) if not isinstance(value, str) else value.split("\n", 1)[0]
    clean = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[: limit + 1])
    cut = len(clean) > limit or (isinstance(value, str) and "\n" in value)
    return f"{clean[:limit]}… ({len(value)} characters)" if cut and isinstance(value, str) else clean[:limit]
