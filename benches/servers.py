"""Servers that a bench starts and ends."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def serving(command: Sequence[Any], url: str) -> Iterator[str]:
    """Runs the command while its /health answers at the url, which is given back."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"the server of {url} ended with exit code {process.returncode}")
        try:
            urllib.request.urlopen(url + "/health").read()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    sys.exit(f"{url} does not answer")
