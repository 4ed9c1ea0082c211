"""The same model in other tensor types, written with the `gguf` package so that other engines' key types survive."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize

NANO = Path(__file__).parents[2] / "python/lucebox/models/nano/nano-IQ4_XS.gguf"

Encode = Callable[[np.ndarray, GGMLQuantizationType], np.ndarray]  # f32 [rows, columns] -> bytes [rows, row_bytes]


def ggml_encode(x: np.ndarray, type: GGMLQuantizationType) -> np.ndarray:
    """llama.cpp's own quantiser, exported by the xllamacpp wheel's library. Without importance weights."""
    import xllamacpp

    if type in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
        return x.astype(np.float32 if type == GGMLQuantizationType.F32 else np.float16).view(np.uint8)
    libraries = [p for p in Path(xllamacpp.__file__).parent.parent.rglob("*xllamacpp*.so*") if p.is_file()]
    lib = ctypes.CDLL(str(next(p for p in libraries if b"ggml_quantize_chunk" in p.read_bytes())))
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    ]
    from gguf.constants import GGML_QUANT_SIZES

    block, nbytes = GGML_QUANT_SIZES[type]
    out = np.zeros((x.shape[0], x.shape[1] // block * nbytes), np.uint8)
    x = np.ascontiguousarray(x, np.float32)
    lib.ggml_quantize_chunk(int(type), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], None)
    return out


def rewrite(source: Path, target: Path, type_of: Callable[[str], str], encode: Encode = ggml_encode) -> None:
    """Copies a model; each matrix gets the type that type_of(name) says."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(
            field.name, field.contents(), kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None
        )
    for t in reader.tensors:
        shape = [int(n) for n in t.shape[::-1]]
        if len(shape) == 1 or t.tensor_type == GGMLQuantizationType.F32 and "conv1d" in t.name:
            writer.add_tensor(t.name, np.ascontiguousarray(t.data).reshape(shape))
            continue
        type = GGMLQuantizationType[type_of(t.name)]
        values = dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)
        writer.add_tensor(t.name, encode(values, type), raw_shape=None, raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
