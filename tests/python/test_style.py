"""The rules of the Python half: sizes, ruff, mypy --strict."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "python/lucebox").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("path", [*PACKAGE, *SCRIPTS, *TESTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    """Files up to 500 lines (scripts 300), functions of the package up to 60 lines of statements."""
    text = path.read_text()
    assert len(text.splitlines()) <= (300 if path in SCRIPTS else 500)
    if path in PACKAGE:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
                assert node.end_lineno is not None
                assert node.end_lineno - node.body[0].lineno < 60, f"{node.name}, line {node.lineno}"


@pytest.mark.parametrize("command", [["ruff", "check", "."], ["mypy"]], ids=lambda command: command[0])
def test_tools_find_nothing(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
