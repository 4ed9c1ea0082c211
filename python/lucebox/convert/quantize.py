"""A GGUF file in other tensor types, tensor by tensor: no more than one of them is held at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lucebox import _core
from lucebox.convert import mixture
from lucebox.convert.imatrix import Importance
from lucebox.convert.mixture import Choice, Wishes
from lucebox.errors import GGUFError, RequestError

_CHUNK = 1 << 21  # values that a thread holds as f32
_FLOATS = ("f32", "f16", "bf16")
# Their encoders search for a scale only where there are importances; equal ones lower the KL by a tenth (docs/results.md).
_SEARCHED = ("q4_0", "iq4_xs")


@dataclass(frozen=True)
class Summary:
    types: dict[str, int]
    """Tensors of each type."""
    fallbacks: list[str]
    """Matrices whose rows are no multiple of the block of the type that was meant."""
    weighted: int
    """Matrices quantised with importances."""
    matrices: int


def quantize(
    source: Path,
    out: Path,
    wishes: Wishes,
    *,
    importance: Importance | None = None,
    threads: int = 1,
    allow_requantize: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Summary:
    """Writes the file, whole or not at all. Raises GGUFError, RequestError, UnsupportedModelError."""
    file = _core.GGUFFile(str(source))
    if out.exists() and any(out.samefile(part) for part in file.parts):
        raise RequestError(f"{out}: is the file that is read; name another one")
    _check_names(file)
    choices = mixture.choose(file, wishes)
    changed = [choice for choice in choices if choice.type != choice.tensor.type]
    again = next((choice for choice in changed if choice.tensor.type not in _FLOATS), None)
    if again is not None and not allow_requantize:
        raise RequestError(f"{again.tensor.name} is already of type {again.tensor.type}; quantising again loses more: start from an "
                           "f16, bf16 or f32 file, or say --allow-requantize")  # fmt: skip
    weights = _matching(importance, choices)
    infos = [(choice.tensor.name, choice.type, choice.tensor.dims) for choice in choices]
    total, done = sum(choice.tensor.nbytes for choice in choices), 0
    with (
        ThreadPoolExecutor(max(1, threads)) as pool,
        _core.GGUFWriter(str(out), _metadata(file, wishes, importance), infos) as writer,
    ):
        try:
            for choice in choices:
                if progress:
                    progress(done / total)
                writer.add(_encoded(file, choice, weights.get(choice.tensor.name), pool))
                done += choice.tensor.nbytes
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        writer.finish()
    types: dict[str, int] = {}
    for choice in choices:
        types[choice.type] = types.get(choice.type, 0) + 1
    matrices = [choice for choice in choices if mixture.is_matrix(choice.tensor)]
    return Summary(types, [choice.tensor.name for choice in choices if choice.fallback], len(weights), len(matrices))


def _check_names(file: _core.GGUFFile) -> None:
    """A file may be read whose names are no text; written they have to be."""
    for name in (*file.metadata, *(tensor.name for tensor in file.tensors)):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise GGUFError(f"{file.path}: the name {name!r} is not UTF-8; no file is written with it") from None


def _metadata(file: _core.GGUFFile, wishes: Wishes, importance: Importance | None) -> list[tuple[str, str, object]]:
    dropped = ("general.file_type", "general.quantization_version", "general.alignment", "quantize.", "split.")
    keys: list[tuple[str, str, object]] = [
        (key, file.value_types[key], value) for key, value in file.metadata.items() if not key.startswith(dropped)
    ]
    keys.append(("general.quantization_version", "u32", 2))
    keys.append(("general.file_type", "u32", mixture.FILE_TYPES[wishes.base]))
    if importance is not None:
        keys.append(("quantize.imatrix.file", "str", Path(importance.file).name))
        keys += [("quantize.imatrix.dataset", "str", dataset) for dataset in importance.datasets[:1]]
        keys.append(("quantize.imatrix.entries_count", "i32", len(importance.values)))
        keys.append(("quantize.imatrix.chunks_count", "i32", importance.chunks))
    return keys


def _matching(importance: Importance | None, choices: list[Choice]) -> dict[str, npt.NDArray[np.float32]]:
    """Importances of the matrices that are quantised. Raises RequestError where they are another model's."""
    if importance is None:
        return {}
    found = {}
    for choice in choices:
        values = importance.values.get(choice.tensor.name)
        if values is None or not mixture.is_matrix(choice.tensor) or choice.type in (*_FLOATS, choice.tensor.type):
            continue
        if values.size != choice.tensor.dims[0]:
            name, columns = choice.tensor.name, choice.tensor.dims[0]
            raise RequestError(
                f"{importance.file}: has {values.size} importances for the {columns} columns of {name}; it is another model's"
            )
        found[choice.tensor.name] = values
    if not found:
        raise RequestError(f"{importance.file}: names none of the matrices that are quantised; it is another model's")
    return found


def _encoded(
    file: _core.GGUFFile, choice: Choice, weights: npt.NDArray[np.float32] | None, pool: ThreadPoolExecutor
) -> npt.NDArray[np.uint8]:
    tensor, data = choice.tensor, file.data(choice.tensor.name)
    if tensor.type == choice.type:
        return data
    columns = tensor.dims[0]
    rows = data.reshape(-1, tensor.nbytes * columns // _values(tensor))
    if weights is None and choice.type in _SEARCHED:
        weights = np.ones(columns, np.float32)

    def part(first: int, last: int) -> npt.NDArray[np.uint8]:
        x = _core.dequantize(tensor.type, rows[first:last].reshape(-1)).reshape(-1, columns)
        if choice.type == "f16" and np.abs(x).max() > 65504:
            raise RequestError(f"{tensor.name} holds values beyond the range of f16")
        try:
            return _core.quantize(choice.type, x, weights).reshape(-1)
        except RequestError as error:
            raise RequestError(f"{tensor.name}, rows {first} to {last - 1}: {error}") from None

    return np.concatenate(list(pool.map(lambda bounds: part(*bounds), _chunks(len(rows), max(1, _CHUNK // columns)))))


def _chunks(rows: int, each: int) -> Iterator[tuple[int, int]]:
    for first in range(0, rows, each):
        yield first, min(rows, first + each)


def _values(tensor: _core.TensorInfo) -> int:
    return int(np.prod(tensor.dims, dtype=np.int64))
