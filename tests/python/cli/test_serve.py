"""lucebox serve: what its options refuse, and the server that a script starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lucebox.cli.app import app
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cache-type-k", "q8_0", "--cache-type-v", "f16"], "K and V have one type here"),
        (["-ctk", "q4_0"], "kv: 'q4_0'; known are q8_0, f16, f32"),
        (["--api-key", "a,,b"], "a key is empty"),
        (["--api-key-file", "nowhere"], "--api-key-file nowhere: No such file"),
        (["--host", "256.0.0.1", "--max-ctx", "64", "--threads", "1"], "cannot listen on 256.0.0.1"),
        (["--speculative", "maybe"], "known are match, reject, off"),
        (["nowhere.gguf"], "nowhere.gguf"),
    ],
)
def test_what_is_refused(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(app, ["serve", *arguments])
    assert done.exit_code == 1 and text in done.output, done.output


def test_an_empty_key_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("\n \n")
    done = CliRunner().invoke(app, ["serve", "--api-key-file", str(file)])
    assert done.exit_code == 1 and "there is no key in it" in done.output


def test_a_server_from_python() -> None:
    """`lucebox.serve` warns when it listens widely without a key, and returns 0 at SIGTERM; the engine is free again."""
    script = """
import os, signal, threading, time, urllib.request, lucebox
engine = lucebox.load("nano", slots=2, max_ctx=256, threads=1)

def use():
    while True:
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=30)
            break
        except OSError:
            time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

import socket
with socket.socket() as one:
    one.bind(("127.0.0.1", 0))
    port = one.getsockname()[1]
threading.Thread(target=use).start()
code = lucebox.serve(engine, host="0.0.0.0", port=port)
print(code, len(list(engine.generate("x", max_tokens=2))) > 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.stdout == "0 True\n", done.stderr
    assert "without an API key" in done.stderr
