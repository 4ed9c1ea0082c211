"""The command as a process: Ctrl-C, closed pipes, locales."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lucebox.engine import model_path

COMMAND = [sys.executable, "-c", "from lucebox.cli.app import main; main()"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "LUCEBOX_THREADS": "1", "LUCEBOX_CACHE": str(tmp_path)}


def start(environment: dict[str, str], *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """As a terminal starts it: tests that run in the background inherit a Ctrl-C that is ignored."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=stdin,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_ends_a_reply_with_130(environment: dict[str, str]) -> None:
    process = start(environment, "generate", "import os\n", "-n", "-1", "--ignore-eos", "--variant", "portable")
    assert process.stdout is not None
    process.stdout.read(1)  # it generates by now
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.decode().strip() == "interrupted"


def test_ctrl_c_at_the_prompt_of_a_chat(environment: dict[str, str]) -> None:
    process = start(environment, "chat", "-n", "2", "--no-thinking", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"Hi\n")
    process.stdin.flush()
    process.stdout.readline()  # the first reply is done, the next line is awaited
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors.decode() and "interrupted" in errors.decode()


def test_ctrl_c_while_quantising_leaves_no_file(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = str(folder / "out.gguf")
    process = start(environment, "quantize", model_path("nano"), out, "Q4_K", "--allow-requantize")
    while not any(folder.iterdir()):  # the temporary file
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.decode().strip() == "interrupted"
    assert list(folder.iterdir()) == []


def test_a_closed_pipe_is_no_traceback(environment: dict[str, str]) -> None:
    process = start(environment, "generate", "import os\n", "-n", "-1", "--ignore-eos")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert b"Traceback" not in process.stderr.read()


def test_output_is_utf8_in_any_locale(environment: dict[str, str]) -> None:
    environment.update(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    process = start(environment, "generate", "über 🎉 ", "-n", "2", "--echo")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.decode("utf-8").startswith("über 🎉 ")
