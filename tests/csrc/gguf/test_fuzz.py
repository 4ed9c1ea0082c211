"""The reader's fuzz target under address and undefined-behaviour sanitizers: bounded, the same inputs each run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gguf_files import Layout, T
from lucebox.selftest import tiny

ROOT = Path(__file__).parents[3]
RUNS, SECONDS = 20000, 15
MODEL = tiny.TinyModel(
    key_heads=1,
    value_heads=2,
    hidden=32,
    ff=32,
    heads=2,
    kv_heads=1,
    head_dim=32,
    rope_dims=16,
    vocab=272,
    types="q8_0",
)


def seeds(folder: Path) -> list[str]:
    tiny.write(folder / "model.gguf", MODEL)
    mtp = [
        ("qwen35.nextn_predict_layers", "u32", 1),
        ("qwen35.attention.recurrent_layers", "bool[]", [True] * 3 + [False]),
    ]
    tiny.write(folder / "mtp.gguf", MODEL, mtp)
    kinds = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "u64", "i64", "f64"]
    pairs = [(kind, kind, 1) for kind in kinds] + [(kind + "[]", kind + "[]", [1, 0]) for kind in kinds]
    pairs += [("str", "str", "text"), ("str[]", "str[]", ["a", "", "b"]), ("general.alignment", "u32", 8)]
    tensors = [
        T("a", [8], 0, bytes(32)),
        T("b", [32, 2], 2, bytes(36)),
        T("c", [256, 1, 2], 23, bytes(272)),
        T("d", [3], 24, b"abc"),
    ]
    (folder / "kinds.gguf").write_bytes(Layout(pairs=pairs, tensors=tensors, alignment=8).bytes())
    return [str(path) for path in sorted(folder.glob("*.gguf"))]


def run(*command: str, **options) -> str:
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]  # cmake and ninja of the same environment
    found = shutil.which(command[0], path=path)
    assert found, f"{command[0]} is not installed: pip install cmake ninja"
    done = subprocess.run(
        [found, *command[1:]],
        env=os.environ | {"PATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_fuzz(tmp_path):
    build = str(tmp_path / "build")
    options = [
        "-DLUCEBOX_FUZZ=ON",
        "-DLUCEBOX_SANITIZE=ON",
        "-DLUCEBOX_PYTHON=OFF",
        "-DCMAKE_BUILD_TYPE=Fuzz",
        "-DCMAKE_CXX_FLAGS=-O1",
    ]
    run("cmake", "-S", str(ROOT), "-B", build, "-G", "Ninja", *options)
    run("ninja", "-C", build, "-j2", "fuzz_gguf")
    target = f"{build}/tests/fuzz/fuzz_gguf"
    said = run(target, f"-runs={RUNS}", f"-max_total_time={SECONDS}", "-seed=1", *seeds(tmp_path), cwd=tmp_path)
    assert "no fault" in said
