"""lucebox bench --content: tokens a second and a step on each kind of text, plain and with drafts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucebox import census, machine
from lucebox.cli import common

if TYPE_CHECKING:
    from lucebox.engine import Engine


def bench(
    content: Sequence[str],
    *,
    draft: str | None,
    plot: str | None,
    n_gen: int,
    repetitions: int,
    json: bool,
    load: dict[str, Any],
) -> None:
    """load: arguments of `common.load` but the drafter. Drafts run on an engine of their own, the one before being freed."""
    from lucebox.bench_content import plot as charts
    from lucebox.bench_content import run

    classes = run.names(content)
    if plot is not None:
        charts.check(Path(plot))
    known: dict[tuple[str, int], tuple[int, ...]] = {}
    report: dict[str, Any] = {
        "busy_cpus": machine.busy_cpus(),
        "n_gen": n_gen,
        "repetitions": repetitions,
        "results": [],
    }
    for drafter in (None, draft) if draft is not None else (None,):
        with common.load(draft=drafter, **load) as engine:
            modes = run.without_drafter() if drafter is None else run.with_drafter(engine.draft_block_size)
            with common.progress_bar("measuring") as progress:
                report["results"] += run.measure(
                    engine, modes, classes, n_gen=n_gen, repetitions=repetitions, known=known, progress=progress
                )
            report.update(_facts(engine), draft=None if drafter is None else Path(drafter).name)
    report["results"].sort(key=lambda row: classes.index(row["class"]))
    if plot is not None:
        charts.draw(report, Path(plot))
    if json:
        common.write_json(report)
    else:
        _print(report)


def _facts(engine: Engine) -> dict[str, Any]:
    from lucebox import _core

    return {
        "file": Path(engine.path).name,
        "cpu": machine.cpu_name(),
        "device": engine.device,
        "variant": engine.variant,
        "launch": engine.launch,
        "threads": engine.threads,
        "kv": engine.kv,
        "streamed_bytes_per_token": census.streamed_bytes(_core.GGUFFile(engine.path)),
    }


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from lucebox.bench_content.run import PLAIN

    out = common.console()
    where = (
        f"{report['variant']}, {report['threads']} threads"
        if report["device"] == "cpu"
        else f"launch {report['launch']}"
    )
    out.print(
        f"{report['file']} on {report['device']}, {where}, KV {report['kv']}, drafter {report['draft'] or 'none'}; replies of up to "
        f"{report['n_gen']} tokens, greedy, {report['repetitions']} runs after a warm-up; every mode gave plain decoding's tokens\n"
    )
    table = Table(
        "content", "mode", "tokens", "tok/s (median)", "min", "max", "to plain", "a step", "drafts accepted", box=None
    )
    plain = {row["class"]: row["tok_per_s"]["median"] for row in report["results"] if row["mode"] == PLAIN}
    for row in report["results"]:
        rate = row["tok_per_s"]
        drafts = f"{row['accepted']} of {row['drafted']}" if row["drafted"] else ""
        table.add_row(
            row["class"] if row["mode"] == PLAIN else "",
            row["mode"],
            str(row["tokens"]),
            *(f"{rate[key]:.1f}" for key in ("median", "min", "max")),
            f"{rate['median'] / plain[row['class']]:.2f}" if plain[row["class"]] else "",
            f"{row['tokens_per_step']:.2f}",
            drafts,
        )
    out.print(table)
    busy = report["busy_cpus"]
    if busy is not None and busy > 0.2:
        out.print(f"\ncompeting load before the run: {busy:.2f} CPUs busy: the figures are too low")
