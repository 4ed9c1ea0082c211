"""`lucebox quantize` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lucebox import _core
from lucebox.cli.app import app
from lucebox.selftest import tiny
from typer.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["quantize", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tiny.write(tmp_path / "source.gguf", tiny.TinyModel(types="f16", ff=288))
    return tmp_path / "source.gguf"


def test_options(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out.gguf"
    result = run(source, out, "IQ4_XS", "--tensor-type", "attn_q=q8_0", "--tensor-type", "ffn_up=Q4_K", "--output-tensor-type", "q8_0",
                 "--token-embedding-type", "q6_k", "-t", 2, "--json")  # fmt: skip
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["bytes"] == out.stat().st_size
    kinds = {tensor.name: tensor.type for tensor in _core.GGUFFile(str(out)).tensors}
    assert kinds["blk.3.attn_q.weight"] == kinds["blk.0.attn_qkv.weight"] == kinds["output.weight"] == "q8_0"
    assert kinds["blk.0.ffn_up.weight"] == "q4_K" and kinds["token_embd.weight"] == "q6_K"
    result = run(source, out, "q4_0", "--pure")
    assert result.exit_code == 0 and "33 q4_0" in result.stderr
    assert "got a larger type" in run(source, out, "q4_K").stderr


def test_mistakes_are_one_line(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out.gguf"
    (tmp_path / "bad.dat").write_bytes(b"\xff" * 8)
    for arguments, text in (
        ((source, out, "q3_K"), "q3_K"),
        ((source, out, "q8_0", "--tensor-type", "q4_0"), "NAME=TYPE"),
        ((source, out, "q8_0", "--tensor-type", "x=q4_0"), "no matrix"),
        ((source, out, "q8_0", "--imatrix", tmp_path / "bad.dat"), "bad.dat"),
        ((tmp_path / "none.gguf", out, "q8_0"), "none.gguf"),
        ((source, tmp_path / "no/out.gguf", "q8_0"), "cannot be created"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and result.stderr.count("\n") == 1 and text in result.stderr, result.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.dat", "source.gguf"]
