"""The commands as users call them: output, exit codes, and no traceback for a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucebox
import numpy as np
import pytest
from lucebox import _core
from lucebox.cli.app import app
from lucebox.selftest import tiny
from typer.testing import CliRunner

Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """run(arguments, input) -> the runner's result (exit_code, stdout, stderr)."""
    monkeypatch.setenv("LUCEBOX_THREADS", "1")
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, input: str | bytes | None = None) -> Any:
        return CliRunner().invoke(app, list(arguments), input=input)

    return call


def test_no_arguments_show_the_help(run: Run) -> None:
    result = run()
    assert result.exit_code == 0
    for command in ("generate", "chat", "inspect", "plan", "doctor", "selftest", "bench"):
        assert command in result.stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"lucebox {lucebox.__version__}\n"


@pytest.mark.parametrize("command", ["generate", "chat", "inspect", "plan", "doctor", "selftest", "bench"])
def test_every_command_has_help(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0 and "--help" in result.stdout


def test_generate_streams_the_reply_and_tells_the_speed(run: Run) -> None:
    result = run("generate", "def fibonacci(n):", "-n", "8")
    assert result.exit_code == 0
    with lucebox.load("nano", threads=1, max_ctx=64) as engine:
        wanted = "".join(piece.text for piece in engine.generate("def fibonacci(n):", max_tokens=8))
    assert result.stdout == wanted
    assert "8 tokens" in result.stderr and "tok/s" in result.stderr and "'max_tokens'" in result.stderr
    echoed = run("generate", "def fibonacci(n):", "--n-predict", "8", "--echo")
    assert echoed.stdout == "def fibonacci(n):" + wanted


def test_generate_reads_standard_input_and_files(run: Run, tmp_path: Path) -> None:
    wanted = run("generate", "def fibonacci(n):", "-n", "4").stdout
    (tmp_path / "prompt.txt").write_text("def fibonacci(n):")
    assert run("generate", "-", "-n", "4", input="def fibonacci(n):").stdout == wanted
    assert run("generate", "-f", str(tmp_path / "prompt.txt"), "-n", "4").stdout == wanted


def test_generate_for_programs(run: Run) -> None:
    result = run("generate", "import os\n", "-n", "5", "--json", "--temp", "1", "--top-k", "9", "-s", "3")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["finish_reason"] for line in lines] == [None] * (len(lines) - 1) + ["length"]
    assert sum(len(line["token_ids"]) for line in lines) == 5
    assert lines[-1]["timings"]["generated_tokens"] == 5


def test_generate_options_reach_the_engine(run: Run) -> None:
    marked = [json.loads(run("generate", "<think>", "-n", "1", "--json", *more).stdout) for more in ([], ["--plain"])]
    assert marked[0]["timings"]["prompt_tokens"] == 1 < marked[1]["timings"]["prompt_tokens"]
    stopped = run("generate", "def fibonacci(n):", "-n", "40", "--stop", "return", "--json").stdout.splitlines()
    assert json.loads(stopped[-1])["stopped_by"] == "return"
    full = run(
        "generate", "def f(", "-n", "-1", "-c", "16", "--ignore-eos", "--json", "--kv", "f32"
    ).stdout.splitlines()
    assert json.loads(full[-1])["stopped_by"] == "max_ctx"


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate"],
        ["generate", "x", "--nope"],
        ["generate", "x", "-n", "many"],
        ["generate", "x", "--temp", "-1"],
        ["generate", "x", "--file", "y"],
        ["inspect"],
        ["nope"],
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["generate", "x", "-m", "absent.gguf"], "absent.gguf"),
        (["generate", ""], "the prompt is empty"),
        (["generate", "x", "--top-p", "0"], "top_p: 0"),
        (["generate", "x", "--device", "tpu"], "device: 'tpu'; known are auto, cpu"),
        (["generate", "x" * 400, "-c", "16"], "the context holds 16"),
        (["generate", "x", "--kv", "q4"], "kv: 'q4'"),
        (["generate", "-f", "absent.txt"], "--file absent.txt: No such file"),
        (["inspect", "absent.gguf"], "absent.gguf"),
        (["plan", "absent.gguf"], "absent.gguf"),
        (["plan", "nano", "--ctx", "99999999"], "99999999"),
        (["bench", "-m", "absent.gguf"], "absent.gguf"),
        (["bench", "--scenario", "chat"], "go with --url"),
        (["bench", "--content", "code", "--api-key", "x"], "go with --url"),
        (["bench", "--content", "code", "-n", "1"], "--n-gen 1"),
        (["selftest", "--variant", "sse"], "--variant sse: usable here are portable"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_1(run: Run, arguments: list[str], text: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert text in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output


def test_a_wrong_environment_variable_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_THREADS", "many")
    result = run("generate", "x")
    assert result.exit_code == 1 and "LUCEBOX_THREADS=many" in result.stderr


def test_inspect_tells_what_the_file_holds(run: Run) -> None:
    result = run("inspect", "nano", "--tensors")
    assert result.exit_code == 0
    for text in ("qwen35", "iq4_xs", "93", "28,206,704 bytes", "MTP layer: none", "lucebox runs this", "blk.0.ssm_a"):
        assert text in result.stdout, text
    facts = json.loads(run("inspect", "nano", "--json").stdout)
    assert facts["parameters"] == 49_268_972
    assert len(facts["tensors"]) == 161 and facts["metadata"]["general.name"] == "nano"


def test_inspect_reads_other_architectures(run: Run, tmp_path: Path) -> None:
    data = _core.quantize("q8_0", np.ones((2, 32), np.float32)).reshape(-1)
    metadata = [("general.architecture", "str", "llama"), ("evil", "str", "\x1b[2J[bold]\n")]
    _core.write_gguf(str(tmp_path / "llama.gguf"), metadata, [("output.weight", "q8_0", [32, 2], data)])
    result = run("inspect", str(tmp_path / "llama.gguf"))
    assert result.exit_code == 0
    assert "does not run this model" in result.stdout and "qwen35" in result.stdout
    assert "\x1b" not in result.stdout and "\\x1b[2J[bold]" in result.stdout


def test_inspect_checks_the_weights(run: Run, tmp_path: Path) -> None:
    assert "all weights are numbers" in run("inspect", "nano", "--check").stdout
    data = _core.quantize("q8_0", np.ones((2, 64), np.float32)).reshape(-1)
    data[34:36] = np.frombuffer(np.float16("nan").tobytes(), np.uint8)
    path = str(tmp_path / "damaged.gguf")
    _core.write_gguf(path, [("general.architecture", "str", "llama")], [("output.weight", "q8_0", [64, 2], data)])
    result = run("inspect", path, "--check")
    assert result.exit_code == 1 and "output.weight: 32 values are NaN" in result.stdout
    assert json.loads(run("inspect", path, "--check", "--json").stdout)["damaged"] == {"output.weight": 32}


def test_plan_adds_up(run: Run) -> None:
    table = run("plan", "nano", "--ctx", "4096")
    assert table.exit_code == 0 and "KV pages" in table.stdout and "all allocated" in table.stdout
    facts = json.loads(run("plan", "nano", "--ctx", "4096", "--kv", "f32", "--json").stdout)
    assert facts["max_ctx"] == 4096
    for kind in ("allocated", "mapped"):
        assert facts[kind] == sum(entry["bytes"] for entry in facts["entries"] if entry["kind"] == kind)


def test_doctor_tells_the_state_of_every_kernel_and_backend(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    facts = json.loads(run("doctor", "--json").stdout)
    assert list(facts["variants"].values()).count("used") == 1
    assert {name for name, state in facts["variants"].items() if state in ("used", "usable")} == set(_core.variants())
    assert facts["backends"]["cpu"] == "used" and set(facts["backends"]) == {"cpu", "hip", "cuda", "emulated"}


def test_doctor_sees_a_slower_choice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_VARIANT", "portable")
    facts = json.loads(run("doctor", "--json").stdout)
    assert facts["variants"]["portable"] == "used"
    slower = len(_core.variants()) > 1
    assert any("LUCEBOX_VARIANT=portable: unset it" in line for line in facts["advice"]) == slower


def test_bench_reports_medians_with_their_spread(run: Run) -> None:
    result = run("bench", "-p", "16", "-n", "4", "-r", "2", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    for name, tokens in (("prefill", 16), ("decode", 4)):
        part = report[name]
        assert part["tokens"] == tokens and 0 < part["min"] <= part["tok_per_s"] <= part["max"]
    assert report["decode"]["gb_per_s"] > 0 and len(report["tokens_sha256"]) == 64
    assert run("bench", "-p", "4", "-n", "2", "-r", "1").exit_code == 0


def test_bench_times_the_launch_modes(run: Run) -> None:
    sizes = ("-p", "2", "-n", "2", "-r", "1")
    result = run("bench", *sizes, "--device", "emulated", "--launch", "all", "--json")
    report = json.loads(result.stdout)
    assert [mode["launch"] for mode in report["launch_modes"]] == ["graph", "split", "direct"]
    assert report["fastest"] in ("graph", "split", "direct")
    assert len({mode["tokens_sha256"] for mode in report["launch_modes"]}) == 1
    result = run("bench", *sizes, "--device", "cpu", "--launch", "all")
    assert result.exit_code == 1 and "a CPU has no launch modes" in result.stderr


def test_two_benches_do_not_run_at_once(run: Run, tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "cache").mkdir()
    with open(tmp_path / "cache" / "bench.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run("bench", "-p", "4", "-n", "2", "-r", "1")
    assert result.exit_code == 1 and "another bench is running" in result.stderr


def test_chat_remembers_clears_and_ends(run: Run) -> None:
    lines = "Hello\n/help\n/nope\nAnd again\n/clear\n/exit\nnot read\n"
    result = run("chat", "--no-thinking", "-n", "6", "--seed", "1", "--system", "Be short.", input=lines)
    assert result.exit_code == 0
    assert result.stderr.count("tok/s") // 2 == 2  # two replies, a line each
    for text in ("/clear forgets", "/nope is no command", "cleared"):
        assert text in result.stderr
    prompts = [int(line.split("prompt ")[1].split()[0]) for line in result.stderr.splitlines() if "prompt " in line]
    assert prompts[1] > prompts[0]  # the first turn is in the second prompt
    again = run("chat", "--no-thinking", "-n", "6", "--seed", "1", "--system", "Be short.", input=lines)
    assert again.stdout == result.stdout


def test_chat_with_a_full_context_goes_on(run: Run) -> None:
    result = run("chat", "-c", "32", "-n", "4", "--temp", "0", input="x" * 200 + "\nHi\n")
    assert result.exit_code == 0
    assert (
        "shorten the prompt" in result.stderr and "/clear" not in result.stderr
    )  # nothing was said that could be forgotten
    assert result.stderr.count("tok/s") > 0
    result = run("chat", "-c", "32", "-n", "4", "--temp", "0", input="Hi\n" + "x" * 200 + "\n")
    assert "/clear makes room" in result.stderr


def test_chat_names_sampling_keys_that_it_cannot_use(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny.write(path, tiny.TinyModel(types="q8_0"), [("general.sampling.penalty_repeat", "f32", 1.1)])
    result = run("chat", "-m", str(path), "-n", "2", input="Hi\n")
    assert "general.sampling.penalty_repeat has no counterpart here" in result.stderr
    assert "the file has no chat template; using ChatML instead" in result.stderr
    assert result.exit_code == 0
