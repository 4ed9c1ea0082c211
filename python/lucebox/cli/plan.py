"""lucebox plan: the memory that a model would take."""

from __future__ import annotations

from typing import Annotated

import typer

from lucebox import _core, devices
from lucebox.cli import common
from lucebox.engine import default_max_ctx, draft_path, model_path
from lucebox.machine import available_memory


@common.guarded
def plan(
    file: Annotated[str, typer.Argument(help='GGUF file, or "nano".')],
    max_ctx: common.CtxOption = None,
    draft: common.DraftOption = None,
    kv: common.KvOption = "q8_0",
    threads: common.ThreadsOption = None,
    variant: common.VariantOption = "auto",
    device: common.DeviceOption = "auto",
    json: common.JsonOption = False,
) -> None:
    """List every buffer that the engine would take, before anything is allocated."""
    opened = _core.GGUFFile(model_path(file))
    ctx = default_max_ctx(_core.ModelInfo(opened).context_length) if max_ctx is None else max_ctx
    options = devices.options(device, variant=variant, threads=threads)
    entries = _core.plan(
        opened,
        max_ctx=ctx,
        kv=kv,
        draft=None if draft is None else _core.GGUFFile(draft_path(draft)),
        **options,
    )
    totals = {kind: sum(entry.nbytes for entry in entries if entry.kind == kind) for kind in ("allocated", "mapped")}
    free = available_memory()
    if json:
        rows = [{"name": entry.name, "bytes": entry.nbytes, "kind": entry.kind} for entry in entries]
        common.write_json({"max_ctx": ctx, "kv": kv, "entries": rows, **totals, "available": free})
        return
    from rich.table import Table

    table = Table("buffer", "kind", title=f"context {ctx} tokens, KV {kv}", title_justify="left", box=None)
    table.add_column("bytes", justify="right")
    table.add_column("", justify="right")
    for entry in entries:
        table.add_row(entry.name, entry.kind, f"{entry.nbytes:,}", common.size(entry.nbytes))
    table.add_section()
    for kind, nbytes in totals.items():
        table.add_row(f"all {kind}", kind, f"{nbytes:,}", common.size(nbytes))
    out = common.console()
    out.print(table)
    if free is not None:
        # Mapped weights can be read again from the file, but decoding is only fast while they stay in memory.
        needed = sum(totals.values())
        verdict = "fits" if needed <= free else "does not fit"
        out.print(f"\n{common.size(needed)} of {common.size(free)} available memory: {verdict}")
