"""Content classes: every mode gives plain decoding's tokens, and what is counted adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lucebox
import pytest
from lucebox.bench_content import plot, run
from lucebox.bench_content.run import Mode, measure, with_drafter, without_drafter
from lucebox.cli.app import app
from lucebox.engine import Engine
from lucebox.errors import RequestError
from typer.testing import CliRunner


@pytest.fixture(scope="module")
def engine() -> Engine:
    return lucebox.load("nano", draft="nano", max_ctx=512, device="cpu")


def test_classes_have_prompts() -> None:
    assert run.CLASSES == ("code", "edit", "chat", "reasoning", "math", "prose", "json")
    for prompts in run.PROMPTS.values():
        assert len(prompts) == 2 and all(("text" in prompt) != ("messages" in prompt) for prompt in prompts)
    assert run.names(["json", "code", "json"]) == ["code", "json"]
    assert run.names(["all"]) == list(run.CLASSES)
    with pytest.raises(RequestError, match="poems"):
        run.names(["poems"])


def test_rows(engine: Engine) -> None:
    modes = [*without_drafter(), *with_drafter(engine.draft_block_size)]
    assert [mode.name for mode in modes] == ["plain", "lookup", "block 8", "block 16", "default"]
    done: list[float] = []
    known: dict[tuple[str, int], tuple[int, ...]] = {}
    rows = measure(engine, modes, ["edit", "json"], n_gen=24, repetitions=2, known=known, progress=done.append)
    assert [(row["class"], row["mode"]) for row in rows] == [
        (name, mode.name) for name in ("edit", "json") for mode in modes
    ]
    assert done == sorted(done) and len(done) == 3 * 2 * 5 and len(known) == 4
    for row in rows:
        rate = row["tok_per_s"]
        assert 0 < rate["min"] <= rate["median"] <= rate["max"]
        assert row["tokens"] == sum(len(ids) - 1 for (name, _), ids in known.items() if name == row["class"])
        assert row["accepted"] <= row["drafted"]
    plain, block = rows[5], rows[7]
    assert plain["tokens_per_step"] == 1 and plain["drafted"] == 0
    assert block["mode"] == "block 8" and block["tokens_per_step"] > 1.5 and block["drafted"] > 0


def test_other_tokens_are_an_error(engine: Engine) -> None:
    modes = [Mode("plain", {"speculative": "off"}), Mode("wrong", {"logit_bias": {5: 1000.0}})]
    with pytest.raises(RequestError, match="wrong gave other tokens than plain decoding for code, prompt 0"):
        measure(engine, modes, ["code"], n_gen=4, repetitions=1, known={})


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["bench", "--device", "cpu", "-r", "1", "-n", "4", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))


def test_the_command(tmp_path: Path) -> None:
    result = command("--content", "code", "--draft", "nano", "--plot", tmp_path / "chart.svg", "--json")
    report = json.loads(result.stdout)
    assert [row["mode"] for row in report["results"]] == ["plain", "lookup", "block 8", "block 16", "default"]
    assert (report["draft"], report["device"], report["n_gen"]) == ("nano", "cpu", 4)
    assert (tmp_path / "chart.svg").read_text().count("block 16") > 0
    result = command("--content", "prose")
    assert result.exit_code == 0 and "lookup" in result.stdout and "block" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--content", "poems"], "poems"),
        (["--content", "code", "-p", "4"], "--n-prompt"),
        (["--draft", "nano"], "go with --content"),
        (["--plot", "a.svg"], "go with --content"),
        (["--content", "code", "--plot", "a.pdf"], ".svg or .png"),
        (["--content", "code", "--plot", "/nowhere/a.svg"], "no such folder"),
    ],
)
def test_mistakes(arguments: list[str], text: str) -> None:
    result = command(*arguments)
    assert result.exit_code == 1 and text in result.stderr and result.stderr.count("\n") == 1


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(RequestError, match=r"pip install 'lucebox\[plot\]'"):
        plot.check(tmp_path / "chart.svg")


def test_a_png(tmp_path: Path) -> None:
    row = {"class": "code", "mode": "plain", "tok_per_s": {"median": 3.0}, "tokens_per_step": 1.0}
    plot.draw({"file": "a.gguf", "device": "cpu", "results": [row]}, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
