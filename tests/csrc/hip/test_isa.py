"""The kernels compiled for AMD's chips, and the compiled code held to its limits (scripts/check_isa.py); the table is printed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import check_isa  # noqa: E402

COMPILE = [
    "-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-std=c++20", "-O3", "-ffp-contract=off",
    "-fno-fast-math",
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("chip", ["gfx1201", "gfx1151", "gfx1100", "gfx906"])
def test_compiled_code(chip, tmp_path, capsys):
    clang = shutil.which("clang++-19")
    assert clang, "apt-get install -y --no-install-recommends clang-19 lld-19 llvm-19"
    image = tmp_path / f"{chip}.hsaco"
    source = [f"--offload-arch={chip}", f"-I{ROOT}/csrc", str(ROOT / "csrc/hip/kernels.hip"), "-o", str(image)]
    done = subprocess.run([clang, *COMPILE, *source], capture_output=True, text=True)
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    wave64 = check_isa.is_wave64(str(image))
    assert wave64 == (chip == "gfx906")
    kernels = check_isa.read(str(image), wave64)
    text, failed = check_isa.table(kernels, wave64)
    with capsys.disabled():
        print(f"\n{chip}\n{text}")
    assert failed == 0
    hot = [k for k in kernels if k.name.startswith("luce_matmul_") and k.name.endswith(("_r1", "_r16")) and not wave64]
    assert wave64 or (len(hot) == 40 and min(k.waves for k in hot) >= 8)
