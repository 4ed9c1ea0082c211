"""lucebox doctor: what this machine and this build offer, and what would make it faster."""

from __future__ import annotations

import platform
from typing import Any

from lucebox import _core, devices, machine, settings
from lucebox.cli import common

VARIANTS = {
    "portable": (),
    "avx2": ("avx2", "fma", "f16c"),
    "avx512": ("avx512", "avx512_vnni", "avx512_vbmi"),
}
"""CPU kernels, the slowest first, and the features they need."""

COMPILERS = {
    "hip": "clang 19 or newer (apt install clang-19 lld-19), then pip install --force-reinstall .",
    "cuda": "nvcc 12.8 or newer, then pip install . -C cmake.define.LUCEBOX_CUDA_ARCHITECTURES=90 for an H100 or H200",
}


@common.guarded
def doctor(json: common.JsonOption = False) -> None:
    """Report CPU features, kernels, backends and what would make this machine faster."""
    facts = examine()
    if json:
        common.write_json(facts)
        return
    from rich.table import Table

    out = common.console()
    out.print(f"lucebox {facts['lucebox']}, Python {facts['python']}, {facts['system']}")
    memory = facts["available_memory"]
    out.print(
        f"{facts['cpu'] or 'unknown CPU'}: {facts['cores']} CPUs usable"
        + (f", {common.size(memory)} of memory available" if memory is not None else "")
    )
    features = ", ".join(name for name, there in facts["features"].items() if there)
    out.print(f"CPU features: {features or 'none of those that kernels use'}")
    out.print("\nCPU kernels (all give the same bits)")
    table = Table("kernels", "state", box=None)
    for name, state in facts["variants"].items():
        table.add_row(name, state)
    out.print(table)
    out.print("\nbackends")
    table = Table("backend", "state", box=None)
    for name, state in facts["backends"].items():
        table.add_row(name, state)
    out.print(table)
    out.print("\nfaster:" if facts["advice"] else "\nnothing to make it faster was found")
    for line in facts["advice"]:
        out.print(f"  {line}")


def examine() -> dict[str, Any]:
    import lucebox

    features = _core.cpu_features()
    usable = _core.variants()
    environment = settings.read()
    used = usable[-1] if environment.variant == "auto" else environment.variant
    probes = devices.probes()
    return {
        "lucebox": lucebox.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": machine.cpu_name(),
        "cores": machine.cores(),
        "available_memory": machine.available_memory(),
        "features": features,
        "variants": {name: _state(name, usable, used, features) for name in VARIANTS},
        "backends": _backends(probes),
        "gpus": probes,
        "advice": _advice(features, usable, used) + _gpu_advice(probes),
    }


def _state(name: str, usable: list[str], used: str, features: dict[str, bool]) -> str:
    if name == used:
        return "used" if name in usable else "asked for by LUCEBOX_VARIANT, and not usable here"
    if name in usable:
        return "usable"
    missing = [feature for feature in VARIANTS[name] if not features.get(feature)]
    return f"this CPU lacks {', '.join(missing)}" if missing else "not in this build"


def _advice(features: dict[str, bool], usable: list[str], used: str) -> list[str]:
    lines = []
    if used != usable[-1]:
        lines.append(f"LUCEBOX_VARIANT={used}: unset it, and {usable[-1]} is used")
    names = list(VARIANTS)
    for name, needs in VARIANTS.items():
        if names.index(name) > names.index(usable[-1]) and all(features.get(need) for need in needs):
            lines.append(
                f"this CPU has what the {name} kernels need, but this build lacks them: build on x86-64 with g++ 12 or "
                "newer (Debian, Ubuntu: apt install g++), pip install --force-reinstall"
            )
    governor = machine.governor()
    if governor not in (None, "performance"):
        lines.append(
            f"the CPU's frequency governor is {governor!r}: cpupower frequency-set -g performance "
            "(package linux-cpupower on Debian, linux-tools-generic on Ubuntu)"
        )
    busy = machine.busy_cpus()
    if busy is not None and busy > 0.5:
        lines.append(f"other programs keep {busy:.1f} CPUs busy")
    return lines


def _backends(probes: list[dict[str, Any]]) -> dict[str, str]:
    auto = devices.resolve("auto").partition(":")[0]
    states = {"cpu": "used" if auto == "cpu" else "usable"}
    for probe in probes:
        found = ", ".join(probe["devices"])
        kernels = ", ".join(probe["kernels"]) or "none in this build"
        state = (
            f"{found} by {probe['library']}; kernels: {kernels}" if found else f"{probe['problem']}; kernels: {kernels}"
        )
        states[probe["vendor"]] = ("used: " if probe["vendor"] == auto else "") + state
    return {**states, "emulated": "usable, slow: the GPU kernels on the CPU, for tests"}


def _gpu_advice(probes: list[dict[str, Any]]) -> list[str]:
    """A card that this build has no kernels for."""
    return [
        f"{', '.join(probe['devices'])}: this build has no kernels for it; they need {COMPILERS[probe['vendor']]}"
        for probe in probes
        if probe["devices"] and not probe["kernels"]
    ]
