"""GPU drivers by dlopen, with a driver that is none (fake_driver.c): what is missing is said, faults free what was taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lucebox.selftest import tiny

SOURCE = Path(__file__).parent / "fake_driver.c"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of the fakes: hip, cuda, and hip without graphs."""
    folder = tmp_path_factory.mktemp("drivers")
    flags = {"hip": [], "cuda": ["-DFAKE_CUDA"], "old": ["-DWITHOUT_GRAPHS"]}
    for name, extra in flags.items():
        subprocess.run(["cc", "-shared", "-fPIC", *extra, str(SOURCE), "-o", str(folder / f"{name}.so")], check=True)
    return {name: str(folder / f"{name}.so") for name in flags}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny.write(folder / "tiny.gguf", tiny.TinyModel(types="q8_0"))
    (folder / "kernels").mkdir()
    (folder / "kernels/gfx1201.hsaco").write_bytes(b"code")
    (folder / "kernels/lucebox.fatbin").write_bytes(b"code")
    return folder / "tiny.gguf"


def run(script: str, **environment: str) -> dict:
    """Runs Python in a process of its own (a driver stays open for a process's life); its last line is JSON."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LUCEBOX_", "FAKE_"))}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", script], env={**env, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


PROBE = "import json; from lucebox import _core; print(json.dumps({p['vendor']: p for p in _core.gpu_probes()}))"


def probe(**environment: str) -> dict:
    return run(PROBE, **environment)


def test_no_library() -> None:
    found = probe(LUCEBOX_HIP_LIBRARY="/nowhere/libamdhip64.so", LUCEBOX_CUDA_LIBRARY="/nowhere/libcuda.so")
    assert found["hip"]["devices"] == [] and "hip-runtime-amd" in found["hip"]["problem"]
    assert found["cuda"]["devices"] == [] and "NVIDIA" in found["cuda"]["problem"]


def test_devices(libraries: dict[str, str]) -> None:
    found = probe(LUCEBOX_HIP_LIBRARY=libraries["hip"], LUCEBOX_CUDA_LIBRARY=libraries["cuda"], FAKE_DEVICES="2")
    assert found["hip"]["devices"] == found["cuda"]["devices"] == ["Fake 0", "Fake 1"]
    assert found["hip"]["problem"] == found["cuda"]["problem"] == ""


def test_a_symbol_is_missing(libraries: dict[str, str]) -> None:
    found = probe(LUCEBOX_HIP_LIBRARY=libraries["old"], LUCEBOX_CUDA_LIBRARY=libraries["cuda"])
    assert "hipGraphLaunch" in found["hip"]["problem"] and found["hip"]["devices"] == []
    assert found["cuda"]["devices"] == ["Fake 0"]


def test_no_device(libraries: dict[str, str]) -> None:
    found = probe(LUCEBOX_HIP_LIBRARY=libraries["hip"], LUCEBOX_CUDA_LIBRARY=libraries["cuda"], FAKE_DEVICES="0")
    assert "reports no device" in found["hip"]["problem"] and "reports no device" in found["cuda"]["problem"]


LOAD = """
import ctypes, json, os, sys
from lucebox import _core
from lucebox.errors import Error
file = _core.GGUFFile({model!r})
options = dict(max_ctx=256, device={device!r}, kernels={kernels!r}, launch={launch!r})
held = ctypes.CDLL({library!r}).fake_held
out = []
for turn in range(2):
    try:
        engine = _core.Engine(file, **options)
        engine.forward([(0, [1, 2, 3])], "argmax")
        engine.forward([(0, [4])], "argmax")
        out.append("ok")
    except Error as error:
        out.append([type(error).__name__, str(error)])
    engine = None
    out.append(held())
print(json.dumps(out))
"""


@pytest.mark.parametrize("vendor,device", [("hip", "hip:0"), ("cuda", "cuda:0")])
@pytest.mark.parametrize("launch", ["direct", "graph", "split"])
def test_a_load_runs_and_frees(libraries: dict[str, str], model: Path, vendor: str, device: str, launch: str) -> None:
    script = LOAD.format(
        model=str(model), device=device, kernels=str(model.parent / "kernels"), launch=launch, library=libraries[vendor]
    )
    variable = f"LUCEBOX_{vendor.upper()}_LIBRARY"
    assert run(script, **{variable: libraries[vendor]}) == ["ok", 0, "ok", 0]


@pytest.mark.parametrize(
    "fault,kind",
    [
        ("hipMalloc:1", "OutOfMemoryError"),
        ("hipMalloc:5", "OutOfMemoryError"),
        ("hipMemcpyHtoDAsync:3", "DeviceError"),
        ("hipStreamCreateWithFlags:1", "DeviceError"),
        ("hipModuleLoadData:1", "DeviceError"),
        ("hipModuleLaunchKernel:2", "DeviceError"),
        ("hipModuleLaunchKernel:9", "DeviceError"),
        ("hipStreamSynchronize:2", "DeviceError"),
        ("hipGraphInstantiateWithFlags:1", "DeviceError"),
        ("hipGraphLaunch:1", "DeviceError"),
    ],
)
def test_an_injected_fault(libraries: dict[str, str], model: Path, fault: str, kind: str) -> None:
    """The error has its kind, everything taken is free again, and the next load works."""
    script = LOAD.format(
        model=str(model),
        device="hip:0",
        kernels=str(model.parent / "kernels"),
        launch="graph",
        library=libraries["hip"],
    )
    first, held, second, again = run(script, LUCEBOX_HIP_LIBRARY=libraries["hip"], FAKE_FAIL=fault)
    assert first[0] == kind, first
    assert (held, second, again) == (0, "ok", 0)


def test_a_model_larger_than_memory(libraries: dict[str, str], model: Path) -> None:
    """Refused with the table before anything is allocated."""
    script = LOAD.format(
        model=str(model),
        device="hip:0",
        kernels=str(model.parent / "kernels"),
        launch="graph",
        library=libraries["hip"],
    )
    first, held, *_ = run(script, LUCEBOX_HIP_LIBRARY=libraries["hip"], FAKE_BYTES="1000000")
    assert first[0] == "OutOfMemoryError" and "KV pages" in first[1]
    assert held == 0


def test_no_kernels_for_the_card(libraries: dict[str, str], model: Path, tmp_path: Path) -> None:
    script = LOAD.format(
        model=str(model), device="hip:0", kernels=str(tmp_path), launch="graph", library=libraries["hip"]
    )
    first, *_ = run(script, LUCEBOX_HIP_LIBRARY=libraries["hip"])
    assert first[0] == "DeviceError" and "docs/amd.md" in first[1]
