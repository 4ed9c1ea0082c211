"""Devices by name: what is there, and which one "auto" means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lucebox import _core, settings
from lucebox.errors import RequestError

KERNELS = Path(__file__).parent / "kernels"
"""Code objects of this build: gfx….hsaco for AMD cards, lucebox.fatbin for NVIDIA cards."""

_ENDINGS = {"hip": ".hsaco", "cuda": ".fatbin"}


def images(vendor: str) -> list[str]:
    """File names of the build's kernels for "hip" or "cuda"."""
    return sorted(path.name for path in KERNELS.glob(f"*{_ENDINGS[vendor]}"))


def resolve(device: str) -> str:
    """The device's full name. "auto" is the first AMD card, then the first NVIDIA card, with kernels in this build; else the CPU.

    Raises RequestError for a name that is none.
    """
    if device == "auto":
        usable = (probe["vendor"] for probe in probes() if probe["devices"] and probe["kernels"])
        vendor = next(usable, None)
        return "cpu" if vendor is None else f"{vendor}:0"
    if re.fullmatch(r"hip|cuda", device):
        return device + ":0"
    if re.fullmatch(r"cpu|emulated|(hip|cuda):\d+", device):
        return device
    raise RequestError(f"device: {device!r}; known are auto, cpu, hip:N, cuda:N, emulated")


def probes() -> list[dict[str, Any]]:
    """For AMD and NVIDIA: vendor, library, devices (names), problem (text, empty if none), kernels (file names)."""
    return [{**probe, "kernels": images(probe["vendor"])} for probe in _core.gpu_probes()]


def options(device: str, *, variant: str = "auto", launch: str = "auto", threads: int | None = None) -> dict[str, Any]:
    """Arguments of `_core.Engine` and `_core.plan`, with what the environment says in place of defaults. Raises RequestError."""
    environment = settings.read()
    device = resolve(device)
    return {
        "device": device,
        "kernels": str(KERNELS),
        "variant": environment.variant if variant == "auto" and device == "cpu" else variant,
        "launch": launch,
        "threads": environment.threads if threads is None else threads,
    }
