"""lucebox selftest: whether this machine computes the recorded bits."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lucebox import _core, devices, machine
from lucebox.cli import common
from lucebox.errors import RequestError

if TYPE_CHECKING:
    from lucebox.selftest.checks import Case, Result
    from lucebox.selftest.drafts import DraftResult


@common.guarded
def selftest(
    full: Annotated[bool, typer.Option("--full", help="All combinations: minutes in place of seconds.")] = False,
    variant: Annotated[
        str | None, typer.Option("--variant", help="Only these CPU kernels. Default: all usable.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="A GPU (hip:N, cuda:N) or emulated, in every launch mode, in place of the CPU's kernels."
        ),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Compare hashes of logits with the recorded ones, for every kernel, thread count, KV type and way to cut a prompt,
    and drafted texts with those of plain decoding.

    Exit code 1 means that this machine, or this build, computes something else.
    """
    from lucebox.selftest import checks, drafts

    usable = _core.variants()
    if variant is not None and variant not in usable:
        raise RequestError(f"--variant {variant}: usable here are {', '.join(usable)}")
    target = "cpu" if device is None else devices.resolve(device)
    if target == "cpu":
        variants = usable if variant is None else [variant]
        planned = checks.cases(full=full, variants=variants, threads=machine.cores())
    elif variant is not None:
        raise RequestError("--variant: names the CPU's kernels; leave it out with --device")
    else:
        planned = checks.device_cases(target, full=full)
    results = []
    drafted: list[DraftResult] = []
    with tempfile.TemporaryDirectory(prefix="lucebox-selftest-") as folder:
        for result in checks.run(planned, Path(folder)):
            results.append(result)
            if sys.stderr.isatty():
                print(f"\r{len(results)} of {len(planned)} checks", end="", file=sys.stderr, flush=True)
        for name in usable if target == "cpu" and variant is None else [variant or "auto"]:
            # The portable kernels are slow; blocks of one width show them.
            widths = drafts.WIDTHS if full else (8,) if name == "portable" or target == "emulated" else (2, 8, 16)
            model, drafter, prompts = drafts.pair(Path(folder), target)
            core = drafts.open_engine(model, drafter, device=target, variant=name)
            count = 24 if full else 4 if name == "portable" or target == "emulated" else 16
            drafted += drafts.check(core, prompts if full else prompts[:3], drafts.ways(widths), count)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    wrong = [result for result in results if result.wrong is not None]
    changed = [result for result in drafted if result.wrong is not None]
    if json:
        common.write_json(
            {
                "passed": not wrong and not changed,
                "results": [asdict(result) for result in results],
                "drafts": [asdict(result) for result in drafted],
            }
        )
    else:
        _print(results)
        rows = sum(result.rows for result in results)
        verdict = f"{len(wrong)} WRONG" if wrong else "all as recorded"
        common.write(f"\n{len(results)} checks, {rows:,} rows of logits: {verdict}\n")
        for text in changed:
            common.write(f"drafts, {text.drafting}, prompt {text.prompt}: {text.wrong}\n")
        verdict = f"{len(changed)} WRONG" if changed else "all as without drafts"
        common.write(f"{len(drafted)} drafted texts: {verdict}\n")
    if wrong or changed:
        raise typer.Exit(1)


def _print(results: list[Result]) -> None:
    """One line for a model, KV type, kernel and thread count; the cuts side by side."""
    from rich.table import Table

    from lucebox.selftest import checks

    table = Table("model", "kv", "kernels", "threads", "rows", *checks.CUTS, "seconds", box=None)
    groups: dict[tuple[str, str, str, int], dict[str, Result]] = {}
    for result in results:
        case = result.case
        groups.setdefault((case.model, case.kv, _kernels(case), case.threads), {})[case.cut] = result
    for (model, kv, kernels, threads), found in groups.items():
        cells = [("ok" if found[cut].wrong is None else "WRONG") if cut in found else "" for cut in checks.CUTS]
        rows = sum(result.rows for result in found.values())
        seconds = sum(result.seconds for result in found.values())
        table.add_row(model, kv, kernels, str(threads), f"{rows:,}", *cells, f"{seconds:.1f}")
    common.console().print(table)
    for result in results:
        if result.wrong is not None:
            case = result.case
            common.write(f"{case.model}, kv {case.kv}, {_kernels(case)}, {case.threads} threads, cut {case.cut}: ")
            common.write(f"{result.wrong}\n")


def _kernels(case: Case) -> str:
    return case.variant if case.device == "cpu" else f"{case.device} {case.launch}"
