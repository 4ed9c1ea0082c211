"""The report for people: a table, ratios to the first server, and a chart."""

from __future__ import annotations

from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

CHART = ("decode_tok_per_s", "total_tok_per_s")
LABELS = {"ttft_s": "TTFT (ms)", "decode_tok_per_s": "decode tok/s", "total_tok_per_s": "total tok/s"}


def show(report: dict[str, Any], out: Console) -> None:
    servers = [server["url"] for server in report["servers"]]
    for i, server in enumerate(report["servers"]):
        out.print(f"{_letter(i)}  {server['url']}  {server['model']}")
    out.print()
    out.print(_table(report, servers))
    for name in CHART:
        out.print(f"\n{LABELS[name]}")
        out.print(_chart(report, servers, name))


def _table(report: dict[str, Any], servers: list[str]) -> Table:
    compared = len(servers) > 1
    columns = ["", "server", "prompt", "reply", *LABELS.values()]
    table = Table(*columns, *(["decode ratio", "total ratio"] if compared else []), box=None)
    first: dict[str, dict[str, Any]] = {}
    for result in report["results"]:
        name, letter = result["scenario"], _letter(servers.index(result["url"]))
        if "refused" in result:
            table.add_row(name, letter, "refused")
            continue
        reference = first.setdefault(name, result)
        row = [name, letter, str(result["prompt_tokens"]), str(result["tokens"])]
        row += [_spread(result["ttft_s"], 1e3), *(_spread(result[figure], 1) for figure in CHART)]
        if compared:
            row += [_ratio(result, reference, figure) for figure in CHART]
        table.add_row(*row)
    return table


def _chart(report: dict[str, Any], servers: list[str], name: str) -> Table:
    shown = [result for result in report["results"] if "refused" not in result]
    most = max((result[name]["median"] for result in shown), default=0.0)
    table = Table.grid(padding=(0, 1))
    for result in shown:
        value = result[name]["median"]
        letter = _letter(servers.index(result["url"]))
        table.add_row(result["scenario"], letter, Bar(most or 1.0, 0.0, value, width=50), f"{value:.1f}")
    return table


def _letter(i: int) -> str:
    return chr(ord("A") + i)


def _spread(figure: dict[str, float], scale: float) -> str:
    return f"{figure['median'] * scale:.1f} ({figure['min'] * scale:.1f}-{figure['max'] * scale:.1f})"


def _ratio(result: dict[str, Any], reference: dict[str, Any], name: str) -> str:
    base = reference[name]["median"]
    return f"{result[name]['median'] / base:.2f}" if base else ""
