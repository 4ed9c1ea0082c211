"""Compiled kernels as a model of time needs them: instructions by loop, matrix work, registers. Read from an AMD code object (LLVM 19's
tools) or from an NVIDIA cubin (nvdisasm, in the CUDA toolkit or the package nvidia-cuda-nvdisasm)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import check_isa  # noqa: E402

Loop = frozenset[int]  # the instructions of a natural loop
Branches = dict[
    int, tuple[int | None, bool]
]  # of an instruction: where it goes, if anywhere, and whether it may be passed


@dataclass(frozen=True)
class Code:
    name: str
    registers: int
    shared: int  # bytes of workgroup memory that the launch does not give
    instructions: list[str]
    branches: Branches

    def inside(self, loop: Loop) -> list[str]:
        return [self.instructions[i] for i in sorted(loop)]

    @cached_property
    def loops(self) -> list[Loop]:
        return natural_loops(len(self.instructions), self.branches)


def natural_loops(count: int, branches: Branches) -> list[Loop]:
    """A loop is closed by a branch to an instruction without which it is not reached; those with one head are one."""
    targets = {to for to, _ in branches.values() if to is not None}
    starts = sorted({0, *targets, *(at + 1 for at in branches if at + 1 < count)})
    block_of = {start: i for i, start in enumerate(starts)}
    ends = [*starts[1:], count]
    after: list[list[int]] = []
    for i, end in enumerate(ends):
        to, passed = branches.get(end - 1, (None, True))
        after.append(([] if to is None else [block_of[to]]) + ([i + 1] if passed and end < count else []))
    before: list[list[int]] = [[] for _ in starts]
    for i, following in enumerate(after):
        for j in following:
            before[j].append(i)
    reach = dominators(after, before)
    bodies: dict[int, set[int]] = {}
    for i, following in enumerate(after):
        for head in following:
            if head in reach.get(i, ()):
                body, open_blocks = bodies.setdefault(head, {head}), [i]
                while open_blocks:
                    block = open_blocks.pop()
                    if block not in body:
                        body.add(block)
                        open_blocks += before[block]
    return [frozenset(n for block in body for n in range(starts[block], ends[block])) for body in bodies.values()]


def dominators(after: list[list[int]], before: list[list[int]]) -> dict[int, set[int]]:
    """Of each block that is reached from the first: the blocks that every way to it passes."""
    reached, open_blocks = {0}, [0]
    while open_blocks:
        for j in after[open_blocks.pop()]:
            if j not in reached:
                reached.add(j)
                open_blocks.append(j)
    found = {i: set(reached) for i in reached}
    found[0] = {0}
    changed = True
    while changed:
        changed = False
        for i in sorted(reached - {0}):
            own = set.intersection(*(found[j] for j in before[i] if j in reached)) | {i}
            changed = changed or own != found[i]
            found[i] = own
    return found


# Multiply-adds of one instruction of a wave, of 8-bit integers. A dot instruction does four a lane.
MATRIX_MACS = {r"v_wmma_i32_16x16x16": 4096, r"IMMA\.16832": 4096, r"IMMA\.16816": 2048}
DOT = r"v_dot4|IDP\.4A"


def macs(instructions: list[str], lanes: int) -> int:
    total = sum(4 * lanes for line in instructions if re.match(DOT, line))
    for pattern, each in MATRIX_MACS.items():
        total += sum(each for line in instructions if re.match(pattern, line))
    return total


def hot_loop(code: Code) -> Loop | None:
    """The smallest loop with half the multiply-adds of the one that has most of them; without any, the longest of the innermost."""
    most = max((macs(code.inside(loop), 32) for loop in code.loops), default=0)
    if most:
        return min((loop for loop in code.loops if 2 * macs(code.inside(loop), 32) >= most), key=len)
    return max((a for a in code.loops if not any(b < a for b in code.loops)), key=len, default=None)


def read_amd(path: Path) -> dict[str, Code]:
    notes, found = check_isa.notes(str(path)), {}
    for name, (start, lines) in check_isa.code(str(path)).items():
        if name not in notes:
            continue
        index = {at: i for i, (at, _) in enumerate(lines)}
        branches: Branches = {}
        for i, (_, line) in enumerate(lines):
            target = check_isa.branch_target(name, line)
            if line.startswith("s_endpgm"):
                branches[i] = None, False
            elif target is not None and start + target in index:
                branches[i] = index[start + target], not line.startswith("s_branch")
        note = notes[name]
        found[name] = Code(
            name, note["vgpr_count"], note["group_segment_fixed_size"], [line for _, line in lines], branches
        )
    return found


def argument_bytes(path: Path) -> dict[str, int]:
    """Bytes of each kernel's argument, from an AMD code object."""
    text = check_isa.run("llvm-readelf", "--notes", str(path))
    return {name: int(size) for size, name in re.findall(r"\.size:\s+(\d+)\n.*?\.symbol:\s+'?([\w.]+)\.kd", text, re.S)}


def nvdisasm() -> str:
    packaged = list(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/nvdisasm"))
    tool = shutil.which("nvdisasm") or (str(packaged[0]) if packaged else None)
    if tool is None:
        raise SystemExit("nvdisasm is missing: it comes with the CUDA toolkit, or pip install nvidia-cuda-nvdisasm")
    return tool


def read_nvidia(path: Path) -> dict[str, Code]:
    return parse_nvidia(subprocess.run([nvdisasm(), str(path)], capture_output=True, text=True, check=True).stdout)


def parse_nvidia(text: str) -> dict[str, Code]:
    """Kernels of nvdisasm's listing."""
    found = {}
    registers = {
        name: int(count, 16)
        for name, count in re.findall(r"EIATTR_REGCOUNT\n.*?index@\((\w+)\)\n.*?\.word\s+(0x[0-9a-f]+)", text, re.S)
    }
    shared = {m[1]: int(m[2]) for m in re.finditer(r"^\.nv\.shared\.(\w+):\n\s+\.zero\s+(\d+)", text, re.M)}
    for part in re.split(r"^\t\.section\t\.text\.", text, flags=re.M)[1:]:
        name = re.match(r"\w+", part)[0]  # type: ignore[index]
        lines: list[str] = []
        labels: dict[str, int] = {}
        jumps: list[tuple[int, str | None, bool]] = []
        for line in part.splitlines():
            label = re.match(r"(\.L_\w+):", line)
            if label:
                labels[label[1]] = len(lines)
            code = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
            if code:
                jump = re.search(r"(?:BRA.*`\((\.L_\w+)\)|EXIT|RET)", code[1])
                if jump:
                    jumps.append((len(lines), jump[1], not re.match(r"BRA `|EXIT|RET", code[1])))
                lines.append(re.sub(r"^@!?U?P\w+\s+", "", code[1]))
            elif re.match(r"\s+\.section", line):
                break
        labels = {label: at for label, at in labels.items() if at < len(lines)}
        known: Branches = {at: (labels.get(to or ""), passed) for at, to, passed in jumps}
        found[name] = Code(name, registers[name], shared.get(name, 0), lines, known)
    return found


# What an instruction of a wave occupies: (pattern, unit, cycles of a SIMD); the first that fits. Integers run at half the rate of floats on
# NVIDIA (64 of 128 lanes), conversions and memory at the rates of the vendor's tables; a gfx9 wave of 64 takes four cycles of 16 lanes.
UNITS = {
    "nvidia": [
        (r"IMMA", "matrix", 4.0),
        (r"FFMA|FADD|FMUL", "float", 1.0),
        (r"IMAD|IDP|IMUL", "float", 2.0),
        (r"MUFU|I2F\b|F2F|F2I|FRND|POPC|FLO", "special", 8.0),
        (r"LDG|STG|LDS|STS|SHFL|LD\b|ST\b", "memory", 4.0),
        (r"U[A-Z]|BRA|BSSY|BSYNC|BAR|NOP|LDC|S2|EXIT|WARPSYNC|CS2R|DEPBAR", "other", 1.0),
        (r"", "integer", 2.0),
    ],
    "rdna": [
        (r"s_(wait|delay_alu|clause|nop|set)", "none", 0.0),
        (r"s_", "scalar", 1.0),
        (r"v_wmma", "vector", 8.0),
        (r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", "special", 4.0),
        (r"v_(mul_lo|mul_hi|mad_u64|mad_i64|mad_co_u64|mad_co_i64)", "vector", 4.0),
        (r"v_", "vector", 1.0),
        (r"ds_", "local", 2.0),
        (r"", "memory", 4.0),
    ],
    "gcn": [
        (r"s_(wait|nop|set)", "none", 0.0),
        (r"s_", "scalar", 1.0),
        (r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_", "vector", 16.0),
        (r"v_(mul_lo|mul_hi|mad_u64|mad_i64)", "vector", 16.0),
        (r"v_", "vector", 4.0),
        (r"ds_", "local", 8.0),
        (r"", "memory", 16.0),
    ],
}  # fmt: skip


def occupied(instructions: list[str], family: str) -> dict[str, float]:
    """Cycles by unit, and "issue": one for each instruction that takes a slot."""
    cycles: dict[str, float] = {"issue": 0.0}
    for line in instructions:
        unit, each = next((u, c) for pattern, u, c in UNITS[family] if re.match(pattern, line))
        if unit == "none":
            continue
        cycles["issue"] += 1
        cycles[unit] = cycles.get(unit, 0.0) + each
    return cycles


def wave_ns(
    instructions: list[str],
    family: str,
    step_ns: float,
    latency_ns: float,
    passes: int = 1,
    cached_ns: float | None = None,
) -> float:
    """A pass of a lone wave through the instructions: step_ns each, and the time that it stands still for loads.

    A load takes latency_ns; the wave stands still where its code waits for it, which is later than where it was sent. Loads that NVIDIA's
    code does not mark as streamed take cached_ns. passes: of a loop, the mean of those behind the first.
    """
    cached = latency_ns if cached_ns is None else cached_ns
    wave = _NvidiaWave(latency_ns, cached) if family == "nvidia" else _AmdWave(latency_ns)
    first = 0.0
    for turn in range(passes):
        for line in instructions:
            wave.now += step_ns
            wave.run(line)
        if turn == 0:
            first = wave.now
    return (wave.now - first) / (passes - 1) if passes > 1 else first


class _AmdWave:
    """Loads come back in order; a wait names how many may still be out."""

    def __init__(self, latency_ns: float) -> None:
        self.now, self._latency, self._ready = 0.0, latency_ns, list[float]()

    def run(self, line: str) -> None:
        if re.match(r"(global|flat)_load", line):
            self._ready.append(self.now + self._latency)
        elif line.startswith("s_wait"):
            out = _loads_out(line)
            while out is not None and len(self._ready) > out:
                self.now = max(self.now, self._ready.pop(0))


def _loads_out(line: str) -> int | None:
    wait = re.match(r"s_waitcnt.*vmcnt\((\d+)\)|s_wait_loadcnt (0x[0-9a-f]+)|s_wait_loadcnt_dscnt (0x[0-9a-f]+)", line)
    if wait is None:
        return None
    return int(wait[1]) if wait[1] else int(wait[2], 16) if wait[2] else int(wait[3], 16) >> 8


class _NvidiaWave:
    """A load's registers wait for it; copies to workgroup memory come in groups, and a wait names how many of these may still be out."""

    def __init__(self, latency_ns: float, cached_ns: float) -> None:
        self.now, self._latency, self._cached = 0.0, latency_ns, cached_ns
        self._registers, self._groups = dict[int, float](), list[float]()

    def run(self, line: str) -> None:
        name, _, operands = line.partition(" ")
        used = [int(n) for n in re.findall(r"\bR(\d+)", operands)]
        for register in used:
            self.now = max(self.now, self._registers.pop(register, 0.0))
        if name.startswith("LDGDEPBAR"):
            self._groups.append(self.now + self._latency)
        elif name.startswith("DEPBAR"):
            out = re.search(r"SB0, (0x[0-9a-f]+)", operands)
            while out and len(self._groups) > int(out[1], 16):
                self.now = max(self.now, self._groups.pop(0))
        elif name.startswith("LDG.") and used:
            width = 4 if ".128" in name else 2 if ".64" in name else 1
            ready = self.now + (self._latency if ".NA." in name else self._cached)
            self._registers.update(dict.fromkeys(range(used[0], used[0] + width), ready))
