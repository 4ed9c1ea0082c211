"""The output of bench_gpu_kernels.py as figures: the time of each step, and of each kernel by its place in the step."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kernel:
    name: str
    groups: int
    before: str  # the kernel in front of it, which tells places apart
    times: float  # a step
    us: float


@dataclass(frozen=True)
class Profile:
    mix: str
    context: int
    rows: int
    ms: float
    kernels: tuple[Kernel, ...]

    @property
    def layers(self) -> int:
        """Three of four layers are DeltaNet layers."""
        steps = sum(kernel.times for kernel in self.kernels if kernel.name.startswith("deltanet_step"))
        return round(steps / 3 * 4)


_STEP = re.compile(r"== (\w+), context (\d+), (\d+) rows: a step ([\d.]+) ms")
_KERNEL = re.compile(r"(\w+)\s+(\d+)x(\d+)x(\d+) \(\d+\) after (\S+)\s+([\d.]+) a step\s+([\d.]+) us")


def parse(text: str) -> list[Profile]:
    found: list[tuple[re.Match[str], list[Kernel]]] = []
    for line in text.splitlines():
        step, kernel = _STEP.match(line), _KERNEL.match(line)
        if step:
            found.append((step, []))
        elif kernel and found:
            name, x, y, z, before, times, us = kernel.groups()
            found[-1][1].append(Kernel(name, int(x) * int(y) * int(z), before, float(times), float(us)))
    return [Profile(m[1], int(m[2]), int(m[3]), float(m[4]), tuple(kernels)) for m, kernels in found]
