"""selftest finds no difference here, and finds one that is planted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from lucebox import _core
from lucebox.cli.app import app
from lucebox.selftest import checks, tiny
from typer.testing import CliRunner

ONE = checks.Case("tiny, 4 value heads", "q8_0", "portable", 1, "mixed", ("5 ids", "33 ids"))


@pytest.mark.parametrize("variant", _core.variants())
def test_the_recorded_bits_are_computed(variant: str) -> None:
    result = CliRunner().invoke(app, ["selftest", "--variant", variant, "--json"])
    report = json.loads(result.stdout)
    assert [found for found in report["results"] if found["wrong"]] == []
    assert report["passed"] and result.exit_code == 0
    assert {found["case"]["variant"] for found in report["results"]} == {variant}


def test_the_recorded_models_have_every_type_and_geometry() -> None:
    types = {type for model in checks.TINY.values() for _, type, _, _ in tiny.tensors(model)}
    assert types >= {name for _, name, _, usable in usable_types() if usable}
    assert [model.value_heads // model.key_heads for model in checks.TINY.values()] == [1, 2, 3]


def usable_types() -> list[tuple[int, str, int, bool]]:
    return [(id, name, block, usable) for id, name, block, _, usable in _core.tensor_types()]


def test_all_combinations_are_listed() -> None:
    found = checks.cases(full=True, variants=["portable", "avx2"], threads=2)
    assert len(found) == len(set(found)) == 2 * 2 * (2 + 3 * 3) * len(checks.CUTS)
    assert {case.kv for case in found} == {"q8_0", "f16", "f32"}


@pytest.mark.parametrize(
    ("model", "prompt", "text"),
    [("tiny, 4 value heads", "33 ids", "33 ids: other bits"), ("nano", "p0", "p0: other bits from row 3 on")],
)
def test_a_difference_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, prompt: str, text: str
) -> None:
    changed: dict[str, Any] = copy.deepcopy(checks.golden())
    if model == "nano":
        changed[model]["q8_0"][prompt][3] = "0" * 64
    else:
        changed[model]["q8_0"][prompt] = "0" * 64
    monkeypatch.setattr(checks, "golden", lambda: changed)
    case = checks.Case(model, "q8_0", _core.variants()[-1], 1, "all", (prompt,))
    assert [result.wrong for result in checks.run([case], tmp_path)] == [text]


def test_a_difference_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = copy.deepcopy(checks.golden())
    changed[ONE.model]["q8_0"]["5 ids"] = "0" * 64
    monkeypatch.setattr(checks, "golden", lambda: changed)
    monkeypatch.setattr(checks, "cases", lambda **_: [ONE])
    result = CliRunner().invoke(app, ["selftest"])
    assert result.exit_code == 1
    assert "WRONG" in result.stdout and "5 ids: other bits" in result.stdout
