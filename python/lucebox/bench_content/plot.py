"""The chart of a report: bars of tokens a second, with the tokens of a step above them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lucebox.errors import RequestError

ENDINGS = (".svg", ".png")


def check(path: Path) -> None:
    """Before anything is measured. Raises RequestError for another ending and without matplotlib."""
    if path.suffix.lower() not in ENDINGS:
        raise RequestError(f"--plot {path}: a name that ends with {' or '.join(ENDINGS)} is wanted")
    if not path.resolve().parent.is_dir():
        raise RequestError(f"--plot {path}: there is no such folder")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RequestError("--plot needs matplotlib: pip install 'lucebox[plot]'") from None


def draw(report: dict[str, Any], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    classes = list(dict.fromkeys(row["class"] for row in report["results"]))
    modes = list(dict.fromkeys(row["mode"] for row in report["results"]))
    figure = Figure(figsize=(1.6 * len(classes) + 3, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    width = 0.8 / len(modes)
    for i, mode in enumerate(modes):
        rows = {row["class"]: row for row in report["results"] if row["mode"] == mode}
        at = [classes.index(name) + (i - (len(modes) - 1) / 2) * width for name in rows]
        bars = axes.bar(at, [row["tok_per_s"]["median"] for row in rows.values()], width, label=mode)
        axes.bar_label(bars, [f"{row['tokens_per_step']:.1f}" for row in rows.values()], fontsize=7)
    axes.set_xticks(range(len(classes)), classes)
    axes.set_ylabel("tokens/s")
    axes.set_title(f"{report['file']}, {report['device']}; above the bars: tokens a step", fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(path)
