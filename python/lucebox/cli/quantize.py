"""lucebox quantize: a model or a drafter in smaller tensor types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lucebox import machine
from lucebox.cli import common
from lucebox.errors import RequestError


@common.guarded
def quantize(
    source: Annotated[str, typer.Argument(help="GGUF file to read; best f16, bf16 or f32.")],
    output: Annotated[str, typer.Argument(help="GGUF file to write.")],
    type: Annotated[
        str, typer.Argument(help="Type of most matrices: Q8_0, Q4_0, Q4_K or IQ4_XS; also Q6_K, F16, BF16, F32.")
    ],
    pure: Annotated[bool, typer.Option("--pure", help="This type for all matrices, in place of a mixture.")] = False,
    imatrix: Annotated[
        str | None,
        typer.Option("--imatrix", help="Importance matrix of llama.cpp, as a GGUF file or in the older binary form."),
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor-type",
            help="NAME=TYPE: a type for tensors whose name matches a regular expression; may be given again.",
        ),
    ] = None,
    output_tensor_type: Annotated[
        str | None, typer.Option("--output-tensor-type", help="Type of the output head.")
    ] = None,
    token_embedding_type: Annotated[
        str | None, typer.Option("--token-embedding-type", help="Type of the embedding table.")
    ] = None,
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Take matrices that are quantised already, which loses quality.")
    ] = False,
    threads: common.ThreadsOption = None,
    json: common.JsonOption = False,
) -> None:
    """Write a GGUF file in other tensor types; norms and the kernels of convolutions stay F32."""
    from dataclasses import asdict

    from lucebox.convert import imatrix as importances
    from lucebox.convert import mixture
    from lucebox.convert.quantize import quantize as run

    wishes = mixture.Wishes(
        base=mixture.type_named(type),
        pure=pure,
        overrides=[_override(text) for text in tensor_type or []],
        output=None if output_tensor_type is None else mixture.type_named(output_tensor_type),
        embedding=None if token_embedding_type is None else mixture.type_named(token_embedding_type),
    )
    importance = None if imatrix is None else importances.read(Path(imatrix))
    with common.progress_bar("quantising") as progress:
        done = run(
            Path(source),
            Path(output),
            wishes,
            importance=importance,
            threads=threads or machine.cores(),
            allow_requantize=allow_requantize,
            progress=progress,
        )
    nbytes = Path(output).stat().st_size
    if json:
        common.write_json({**asdict(done), "bytes": nbytes})
        return
    counts = ", ".join(f"{count} {name}" for name, count in sorted(done.types.items(), key=lambda item: -item[1]))
    common.note(f"wrote {output}, {common.size(nbytes)}: {counts}")
    if importance is not None:
        common.note(f"importances for {done.weighted} of {done.matrices} matrices")
    if done.fallbacks:
        common.note(
            f"{len(done.fallbacks)} matrices got a larger type, since their rows do not fit its blocks: {', '.join(done.fallbacks[:4])}"
        )


def _override(text: str) -> tuple[str, str]:
    from lucebox.convert import mixture

    name, equals, type = text.rpartition("=")
    if not equals or not name:
        raise RequestError(f"--tensor-type {text}: NAME=TYPE is wanted")
    return name, mixture.type_named(type)
