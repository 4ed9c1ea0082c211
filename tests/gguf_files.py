"""GGUF files made byte by byte, apart from lucebox's writer, so that tests can also make malformed ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

VALUE_TYPES = {
    "u8": (0, "<B"),
    "i8": (1, "<b"),
    "u16": (2, "<H"),
    "i16": (3, "<h"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<B"),
    "str": (8, ""),
    "u64": (10, "<Q"),
    "i64": (11, "<q"),
    "f64": (12, "<d"),
}
ARRAY = 9


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def scalar(kind: str, value: Any) -> bytes:
    return string(value) if kind == "str" else struct.pack(VALUE_TYPES[kind][1], value)


def pair(key: str | bytes, kind: str | int, value: Any) -> bytes:
    """A key with its value: kind as in write_gguf, or a type id with the value's raw bytes."""
    if isinstance(kind, int):
        return string(key) + struct.pack("<I", kind) + value
    if not kind.endswith("[]"):
        return string(key) + struct.pack("<I", VALUE_TYPES[kind][0]) + scalar(kind, value)
    element = kind[:-2]
    head = struct.pack("<IIQ", ARRAY, VALUE_TYPES[element][0], len(value))
    return string(key) + head + b"".join(scalar(element, v) for v in value)


@dataclass
class T:
    """A tensor: dims as in the file, type id, data. offset None = where it belongs."""

    name: str | bytes
    dims: Sequence[int]
    type: int = 0
    data: bytes = b""
    offset: int | None = None
    n_dims: int | None = None


@dataclass
class Layout:
    """A whole file; the fields that are None are right by themselves."""

    pairs: Sequence[tuple[str | bytes, str | int, Any]] = ()
    tensors: Sequence[T] = ()
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    tensor_count: int | None = None
    kv_count: int | None = None
    order: str = "<"
    tail: bytes = field(default=b"")

    def header(self) -> bytes:
        out = self.magic + struct.pack(self.order + "I", self.version)
        out += struct.pack("<q", len(self.tensors) if self.tensor_count is None else self.tensor_count)
        out += struct.pack("<q", len(self.pairs) if self.kv_count is None else self.kv_count)
        out += b"".join(pair(*p) for p in self.pairs)
        offset = 0
        for t in self.tensors:
            out += string(t.name) + struct.pack("<I", len(t.dims) if t.n_dims is None else t.n_dims)
            out += struct.pack(f"<{len(t.dims)}Q", *t.dims)
            out += struct.pack("<IQ", t.type, offset if t.offset is None else t.offset)
            offset += len(t.data) + self.pad(len(t.data))
        return out

    def pad(self, n: int) -> int:
        return -n % self.alignment if self.alignment else 0

    def bytes(self) -> bytes:
        out = self.header()
        if self.tensors:
            out += bytes(self.pad(len(out)))
        for i, t in enumerate(self.tensors):
            out += t.data
            if i + 1 < len(self.tensors):
                out += bytes(self.pad(len(t.data)))
        return out + self.tail
