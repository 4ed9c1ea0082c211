"""lucebox convert: a drafter's checkpoint as a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lucebox.cli import common
from lucebox.errors import RequestError


@common.guarded
def convert(
    folder: Annotated[
        str, typer.Argument(help="Folder of a DFlash or DFlash2 drafter: config.json and .safetensors files.")
    ],
    output: Annotated[str, typer.Argument(help="GGUF file to write.")],
    target: Annotated[
        str | None,
        typer.Option(
            "--target", help="GGUF file of the model that it drafts for: gives the tokenizer and a fingerprint."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", help="That model's tokenizer.json, in place of --target; nothing is checked then."),
    ] = None,
    outtype: Annotated[
        str,
        typer.Option("--outtype", help="Type of the matrices: auto (as in the checkpoint), f32, f16, bf16 or q8_0."),
    ] = "auto",
    name: Annotated[
        str | None, typer.Option("--name", help="general.name of the file. Default: the folder's name.")
    ] = None,
) -> None:
    """Convert a drafter from safetensors to GGUF, in llama.cpp's layout."""
    from lucebox.convert import dflash

    if (target is None) == (tokenizer is None):
        raise RequestError("give --target or --tokenizer, one of them")
    with common.progress_bar("converting") as progress:
        dflash.convert(
            Path(folder),
            Path(output),
            target=None if target is None else Path(target),
            vocabulary=None if tokenizer is None else Path(tokenizer),
            outtype=outtype,
            name=name,
            progress=progress,
        )
    common.note(f"wrote {output}, {common.size(Path(output).stat().st_size)}")
