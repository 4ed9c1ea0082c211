"""Devices by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lucebox import _core, devices
from lucebox.errors import RequestError


def probes(hip: list[str], cuda: list[str]) -> list[dict[str, Any]]:
    return [{"vendor": v, "library": "x", "devices": d, "problem": ""} for v, d in (("hip", hip), ("cuda", cuda))]


@pytest.mark.parametrize(
    ("name", "full"),
    [("cpu", "cpu"), ("emulated", "emulated"), ("hip", "hip:0"), ("cuda", "cuda:0"), ("hip:3", "hip:3")],
)
def test_names(name: str, full: str) -> None:
    assert devices.resolve(name) == full


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "hip:x", "cpu:0", "emulated:gfx12", "cuda:-1"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(RequestError, match="known are auto, cpu"):
        devices.resolve(name)


@pytest.mark.parametrize(
    ("hip", "cuda", "kernels", "chosen"),
    [
        ([], [], ["gfx1201.hsaco", "lucebox.fatbin"], "cpu"),
        (["R9700"], ["H200"], ["gfx1201.hsaco", "lucebox.fatbin"], "hip:0"),
        (["R9700"], ["H200"], ["lucebox.fatbin"], "cuda:0"),
        (["R9700"], ["H200"], [], "cpu"),
    ],
)
def test_auto(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hip: list[str], cuda: list[str], kernels: list[str], chosen: str
) -> None:
    """The first card that this build has kernels for, AMD before NVIDIA, else the CPU."""
    for name in kernels:
        (tmp_path / name).touch()
    monkeypatch.setattr(devices, "KERNELS", tmp_path)
    monkeypatch.setattr(_core, "gpu_probes", lambda: probes(hip, cuda))
    assert devices.resolve("auto") == chosen


def test_options_follow_the_environment_on_the_cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_VARIANT", "portable")
    monkeypatch.setenv("LUCEBOX_THREADS", "3")
    assert devices.options("cpu") | {"kernels": ""} == {
        "device": "cpu",
        "kernels": "",
        "variant": "portable",
        "launch": "auto",
        "threads": 3,
    }
    assert devices.options("cuda:0")["variant"] == "auto"
    assert devices.options("cpu", variant="avx2", threads=1)["variant"] == "avx2"
