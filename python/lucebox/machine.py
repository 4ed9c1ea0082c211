"""What the machine offers, as far as Linux tells; None where it does not."""

from __future__ import annotations

import os
import time
from pathlib import Path


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def cpu_name() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def available_memory() -> int | None:
    """Bytes that can be taken without swapping."""
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def cores() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def governor() -> str | None:
    return _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def load_average() -> float:
    """Runnable threads over the last minute."""
    return os.getloadavg()[0]


def busy_cpus(seconds: float = 0.3) -> float | None:
    """CPUs that are busy while this process sleeps."""
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1]) * (os.cpu_count() or 1)


def _cpu_ticks() -> tuple[int, int] | None:
    """(busy, all) ticks of all CPUs since boot."""
    fields = (_read("/proc/stat") or "").split("\n", 1)[0].split()[1:]
    if len(fields) < 5:
        return None
    ticks = list(map(int, fields))
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
