"""lucebox inspect: what a GGUF file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lucebox import _core, census
from lucebox.cli import common
from lucebox.engine import model_path
from lucebox.errors import GGUFError, UnsupportedModelError

CHECKED_VALUES = 1 << 22
"""Values that --check decodes at a time: a few dozen MB."""


@common.guarded
def inspect(
    file: Annotated[str, typer.Argument(help='GGUF file of any architecture, or "nano".')],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read all weights and report values that are no numbers.")
    ] = False,
    json: common.JsonOption = False,
) -> None:
    """Print a GGUF file's metadata, its tensor types and what a token costs to read; nothing is loaded.

    With --check, exit code 1 means that weights are damaged.
    """
    opened = _core.GGUFFile(model_path(file))
    facts = describe(opened)
    damaged = damaged_tensors(opened) if check else None
    if json:
        rows = [_tensor(t) for t in opened.tensors]
        common.write_json({**facts, "damaged": damaged, "metadata": opened.metadata, "tensors": rows})
    else:
        _print(opened, facts, tensors)
        if damaged is not None:
            common.write(f"check: {len(damaged)} damaged tensors\n" if damaged else "check: all weights are numbers\n")
        for name, count in (damaged or {}).items():
            common.write(f"  {census.short(name)}: {count:,} values are NaN or infinite\n")
    if damaged:
        raise typer.Exit(1)


def damaged_tensors(file: _core.GGUFFile) -> dict[str, int]:
    """Values that are NaN or infinite, by tensor; tensors of types that are no weights are left out."""
    blocks = {name: (block, nbytes) for _, name, block, nbytes, matrix in _core.tensor_types() if matrix}
    found = {}
    for tensor in file.tensors:
        if tensor.type not in blocks:
            continue
        block, nbytes = blocks[tensor.type]
        part = max(1, CHECKED_VALUES // block) * nbytes
        data = file.data(tensor.name)
        counts = (
            np.count_nonzero(~np.isfinite(_core.dequantize(tensor.type, data[at : at + part])))
            for at in range(0, len(data), part)
        )
        if total := int(sum(counts)):
            found[tensor.name] = total
    return found


def describe(file: _core.GGUFFile) -> dict[str, Any]:
    """The file in numbers, for people and programs."""
    facts: dict[str, Any] = {
        "file": file.path,
        "parts": len(file.parts),
        "version": file.version,
        "alignment": file.alignment,
        "bytes": file.nbytes,
        "architecture": file.metadata.get("general.architecture"),
        "tensor_count": len(file.tensors),
        "parameters": sum(map(census.values, file.tensors)),
        "types": [vars(count) for count in census.by_type(file)],
        "streamed_bytes_per_token": census.streamed_bytes(file),
    }
    try:
        info = _core.ModelInfo(file)
        facts.update(supported=True, why=None, layers=info.layers, mtp=info.mtp, context_length=info.context_length)
    except (UnsupportedModelError, GGUFError) as error:
        facts.update(supported=False, why=str(error), mtp=None)
    return facts


def _tensor(tensor: _core.TensorInfo) -> dict[str, Any]:
    names = ("name", "type", "dims", "offset", "nbytes", "part")
    return {name: getattr(tensor, name) for name in names}


def _print(file: _core.GGUFFile, facts: dict[str, Any], tensors: bool) -> None:
    from rich.table import Table

    out = common.console()
    parts = f", {facts['parts']} parts" if facts["parts"] > 1 else ""
    out.print(f"{census.short(file.path, 200)}: GGUF {file.version}, {common.size(file.nbytes)}{parts}\n")
    metadata = Table("key", "value", title="metadata", title_justify="left", box=None, pad_edge=False)
    for key, value in file.metadata.items():
        metadata.add_row(census.short(key), census.short(value))
    out.print(metadata)
    types = Table("type", "tensors", "values", "bytes", "share", title="\ntensor types", title_justify="left", box=None)
    total = sum(count["nbytes"] for count in facts["types"]) or 1
    for count in facts["types"]:
        share = f"{count['nbytes'] / total:.1%}"
        types.add_row(count["type"], str(count["tensors"]), f"{count['values']:,}", common.size(count["nbytes"]), share)
    out.print(types)
    streamed = facts["streamed_bytes_per_token"]
    out.print(f"\nparameters: {facts['parameters']:,}")
    if streamed is None:
        out.print("weights read per token: depends on the experts chosen")
    else:
        out.print(f"weights read per token: {streamed:,} bytes ({common.size(streamed)})")
    if facts["mtp"] is not None:
        out.print(f"MTP layer: {facts['mtp']}")
    out.print("lucebox runs this model" if facts["supported"] else f"lucebox does not run this model: {facts['why']}")
    if tensors:
        table = Table("tensor", "type", "dims", "offset", "bytes", title="\ntensors", title_justify="left", box=None)
        for tensor in file.tensors:
            dims = " × ".join(map(str, tensor.dims))
            table.add_row(census.short(tensor.name), tensor.type, dims, f"{tensor.offset:,}", f"{tensor.nbytes:,}")
        out.print(table)
    name = file.metadata.get("general.name")
    if facts["supported"] and isinstance(name, str):
        out.print(f'try: lucebox generate -m {Path(file.path).name} "…"')
