"""lucebox bench: speed of prefill and decode on this machine."""

from __future__ import annotations

import fcntl
import hashlib
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lucebox import _core, census, devices, machine, settings
from lucebox.cli import bench_content, bench_servers, common
from lucebox.engine import model_path
from lucebox.errors import RequestError
from lucebox.selftest.checks import LAUNCH_MODES


@dataclass(frozen=True)
class Run:
    prefill_s: float
    decode_s: float
    tokens_sha256: str


@common.guarded
def bench(
    model: common.ModelOption = None,
    n_prompt: Annotated[
        int | None, typer.Option("--n-prompt", "-p", min=1, help="Tokens of prefill. Default: 512.")
    ] = None,
    n_gen: Annotated[
        int | None,
        typer.Option("--n-gen", "-n", min=1, help="Tokens of decode. Default: 64; with --url the scenario's."),
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option("--repetitions", "-r", min=1, help="Measured runs of each. Default: 5; with --url 3.")
    ] = None,
    threads: common.ThreadsOption = None,
    kv: common.KvOption = "q8_0",
    variant: common.VariantOption = "auto",
    device: common.DeviceOption = "auto",
    launch: Annotated[
        str,
        typer.Option(
            "--launch", help="How a GPU's steps are launched: auto, graph, split, direct; or all: each is timed."
        ),
    ] = "auto",
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url", help="Measure this OpenAI-compatible server instead; given again, a second one beside it."
        ),
    ] = None,
    api_key: Annotated[str, typer.Option("--api-key", help="For --url.")] = "",
    scenario: Annotated[
        list[str] | None, typer.Option("--scenario", help="With --url, only this one; may be given again.")
    ] = None,
    content: Annotated[
        list[str] | None,
        typer.Option(
            "--content", help="Replies to prompts of a class (code, edit, chat, reasoning, math, prose, json, or all)."
        ),
    ] = None,
    draft: common.DraftOption = None,
    plot: Annotated[str | None, typer.Option("--plot", help="With --content, a chart: FILE.svg or FILE.png.")] = None,
    json: common.JsonOption = False,
) -> None:
    """Time prefill and decode: a discarded warm-up, then medians with their spread. One bench runs at a time.

    With --content what drafting gives on each kind of text: plain, lookup, the drafter's block and one twice as wide.
    With --url the clients' side of a server: prompts of 2K and 8K tokens, chat and code, one client and several.
    """
    if url:
        local = {"--model": model, "--n-prompt": n_prompt, "--threads": threads, "--draft": draft, "--plot": plot}
        local["--content"] = ", ".join(content or []) or None
        changed = (
            (kv, "kv", "q8_0"),
            (variant, "variant", "auto"),
            (device, "device", "auto"),
            (launch, "launch", "auto"),
        )
        local.update({f"--{name}": value for value, name, default in changed if value != default})
        bench_servers.bench(url, api_key, scenario, n_gen, repetitions, local=local, json=json)
        return
    if scenario or api_key:
        raise RequestError("--scenario and --api-key go with --url")
    if content:
        if n_gen == 1:
            raise RequestError("--n-gen 1: --content times the tokens behind a reply's first; 2 or more are wanted")
        if n_prompt is not None:
            raise RequestError("--n-prompt: the prompts of --content have their own lengths")
        chosen = dict(model=model, kv=kv, threads=threads, variant=variant, device=device, launch=launch)
        with _exclusive(settings.read().cache):
            lengths = {"n_gen": n_gen or 128, "repetitions": repetitions or 3}
            bench_content.bench(content, draft=draft, plot=plot, load=chosen, json=json, **lengths)
        return
    if draft is not None or plot is not None:
        raise RequestError("--draft and --plot go with --content")
    n_prompt, n_gen, repetitions = n_prompt or 512, n_gen or 64, repetitions or 5
    file = _core.GGUFFile(model_path(common.model_name(model)))
    if launch == "all" and devices.resolve(device) == "cpu":
        raise RequestError("--launch all: a CPU has no launch modes; name a GPU with --device")
    reports = []
    with _exclusive(settings.read().cache):
        busy = machine.busy_cpus()
        for mode in LAUNCH_MODES if launch == "all" else (launch,):
            options = devices.options(device, variant=variant, launch=mode, threads=threads)
            engine = _core.Engine(file, max_ctx=n_prompt + n_gen, kv=kv, **options)
            runs = [_measure(engine, n_prompt, n_gen) for _ in range(repetitions + 1)][1:]
            reports.append(_report(file, engine, runs, n_prompt, n_gen))
            reports[-1].update(busy_cpus=busy, load_average=machine.load_average())
            del engine  # its memory is the next one's
    if len({report["tokens_sha256"] for report in reports}) != 1:
        raise RequestError("the launch modes gave different tokens: do not trust this card; try `lucebox selftest`")
    if json:
        common.write_json(reports[0] if launch != "all" else {"launch_modes": reports, "fastest": _fastest(reports)})
        return
    for report in reports:
        _print(report)
    if launch == "all":
        common.write(f"fastest decode: --launch {_fastest(reports)}\n")


def _fastest(reports: list[dict[str, Any]]) -> str:
    return str(max(reports, key=lambda report: report["decode"]["tok_per_s"])["launch"])


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Holds a lock that no other bench of this user has: two at once would time each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "bench.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RequestError(f"another bench is running (it holds {lock.name}): wait for it") from None
        yield


def _measure(engine: _core.Engine, n_prompt: int, n_gen: int) -> Run:
    """One prefill and one decode."""
    prompt = [(i * 7919 + 13) % engine.info.vocab for i in range(n_prompt)]
    engine.reset(0)
    start = time.perf_counter()
    token = int(engine.forward([(0, prompt)], "argmax")[0])
    middle = time.perf_counter()
    ids = []
    for _ in range(n_gen):
        ids.append(token)
        token = int(engine.forward([(0, [token])], "argmax")[0])
    end = time.perf_counter()
    return Run(middle - start, end - middle, hashlib.sha256(repr(ids).encode()).hexdigest())


def _report(file: _core.GGUFFile, engine: _core.Engine, runs: list[Run], n_prompt: int, n_gen: int) -> dict[str, Any]:
    import lucebox

    hashes = {run.tokens_sha256 for run in runs}
    if len(hashes) != 1:
        raise RequestError("the runs gave different tokens: do not trust this machine; try `lucebox selftest`")
    streamed = census.streamed_bytes(file)
    report: dict[str, Any] = {
        "lucebox": lucebox.__version__,
        "file": Path(file.path).name,
        "bytes": file.nbytes,
        "cpu": machine.cpu_name(),
        "device": engine.device,
        "variant": engine.variant,
        "launch": engine.launch,
        "threads": engine.threads,
        "kv": engine.kv,
        "repetitions": len(runs),
        "tokens_sha256": hashes.pop(),
        "streamed_bytes_per_token": streamed,
    }
    seconds = {"prefill": [run.prefill_s for run in runs], "decode": [run.decode_s for run in runs]}
    for name, count in (("prefill", n_prompt), ("decode", n_gen)):
        rates = sorted(count / s for s in seconds[name])
        median = statistics.median(rates)
        report[name] = {"tokens": count, "tok_per_s": median, "min": rates[0], "max": rates[-1]}
    if streamed is not None:
        report["decode"]["gb_per_s"] = report["decode"]["tok_per_s"] * streamed / 1e9
    return report


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    out = common.console()
    where = f"{report['cpu'] or 'unknown CPU'}, {report['variant']}, {report['threads']} threads"
    if report["device"] != "cpu":
        where = f"{report['device']}, launch {report['launch']}"
    out.print(f"{report['file']} on {where}, KV {report['kv']}; {report['repetitions']} runs after a warm-up\n")
    table = Table("", "tokens", "tok/s (median)", "min", "max", "weights read", box=None)
    for name in ("prefill", "decode"):
        part = report[name]
        read = f"{part['gb_per_s']:.2f} GB/s" if "gb_per_s" in part else ""
        rates = [f"{part[key]:.1f}" for key in ("tok_per_s", "min", "max")]
        table.add_row(name, str(part["tokens"]), *rates, read)
    out.print(table)
    out.print(f"\ntokens' SHA-256: {report['tokens_sha256'][:16]}…")
    busy = report["busy_cpus"]
    if busy is not None:
        warning = ": the figures are too low" if busy > 0.2 else ""
        out.print(f"competing load before the run: {busy:.2f} CPUs busy{warning}")
