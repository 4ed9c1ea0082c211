"""Sixteen clients for a few seconds (scripts/serve_load.py runs longer): nothing is lost, mixed, cut or left over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "serve_load.py"


def test_many_clients() -> None:
    command = [sys.executable, str(SCRIPT), "--seconds", "6", "--clients", "16"]
    options = ["--", "--draft", "nano", "--threads", "1", "--slots", "8"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == [] and report["seen"]["answer 200"] > 10
