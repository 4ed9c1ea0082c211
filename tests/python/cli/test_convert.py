"""`lucebox convert` as a command: what it says, and what is left when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import checkpoints
import pytest
from lucebox import _core
from lucebox.cli.app import app
from typer.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.write(tmp_path / "drafter")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return checkpoints.write_target(tmp_path / "target.gguf")


def test_with_the_target(tmp_path: Path, folder: Path, target: Path) -> None:
    result = run(folder, tmp_path / "out.gguf", "--target", target, "--outtype", "q8_0", "--name", "mine")
    assert result.exit_code == 0 and "wrote" in result.stderr
    file = _core.GGUFFile(str(tmp_path / "out.gguf"))
    assert file.metadata["general.name"] == "mine" and file.metadata["general.file_type"] == 7


def test_with_a_tokenizer(tmp_path: Path, folder: Path, target: Path) -> None:
    words = _core.GGUFFile(str(target)).metadata
    texts, kinds = words["tokenizer.ggml.tokens"], words["tokenizer.ggml.token_type"]
    added = [{"id": i, "content": texts[i], "special": kind == 3} for i, kind in enumerate(kinds) if kind in (3, 4)]
    vocab = {text: i for i, (text, kind) in enumerate(zip(texts, kinds, strict=True)) if kind == 1}
    data = {"model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], "c d"]}, "added_tokens": added}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    assert run(folder, tmp_path / "out.gguf", "--tokenizer", tmp_path).exit_code == 0
    told = _core.GGUFFile(str(tmp_path / "out.gguf")).metadata
    assert told["tokenizer.ggml.merges"] == ["a b", "c d"] and "lucebox.target.fingerprint" not in told
    known = [i for i, kind in enumerate(kinds) if kind != 5]
    assert [told["tokenizer.ggml.tokens"][i] for i in known] == [texts[i] for i in known]
    assert told["tokenizer.ggml.token_type"] == kinds
    (tmp_path / "tokenizer.json").write_text(json.dumps({**data, "added_tokens": [{"id": 320, "content": "x"}]}))
    assert "id 320" in run(folder, tmp_path / "out.gguf", "--tokenizer", tmp_path).stderr


def test_mistakes_are_one_line(tmp_path: Path, folder: Path, target: Path) -> None:
    out = tmp_path / "out.gguf"
    for arguments, text in (
        ((folder, out), "give --target or --tokenizer"),
        ((folder, out, "--target", target, "--tokenizer", tmp_path), "give --target or --tokenizer"),
        ((folder, out, "--target", target, "--outtype", "q9_0"), "q9_0"),
        ((tmp_path / "none", out, "--target", target), "config.json"),
        ((folder, tmp_path / "none/out.gguf", "--target", target), "cannot be created"),
        ((folder, out, "--target", folder / "model.safetensors"), "model.safetensors"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1 and result.stderr.count("\n") == 1, result.stderr
        assert text in result.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["drafter", "target.gguf"]
