"""Table of a code object's kernels, and a gate on the hot ones. Run by tests/csrc/hip/test_isa.py and by hand while tuning.

    python scripts/check_isa.py OBJECT.hsaco [PATTERN]

Columns: registers, spilled registers, scratch bytes, workgroup memory, waves a SIMD, instructions, those of the longest loop, matrix
and dot instructions, 16-byte loads. A kernel fails on spills or scratch, and where LIMITS asks more of it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass

LLVM = "19"


@dataclass
class Limit:
    pattern: str
    vgpr: int  # at most
    wmma: int = 0  # at least
    dot: int = 0  # at least


# Matmuls of up to 16 rows keep 8 waves a SIMD (192 registers of wave32) with much room; a chip without matrix units uses dot instructions.
LIMITS = [
    Limit(r"luce_matmul_\w+_r[124]$", vgpr=144, dot=8),
    Limit(r"luce_matmul_\w+_r(8|16)$", vgpr=144, wmma=2),
    Limit(r"luce_matmul_\w+_r(32|64)$", vgpr=256, wmma=2),
    Limit(r"luce_attention_part_q8_0\w*$", vgpr=192, dot=1),
    Limit(r"luce_deltanet_step$", vgpr=128),
    Limit(r"luce_draft_part_d\d+_segment$", vgpr=144),  # ten waves a SIMD
]
NOTE_FIELDS = (
    "symbol",
    "vgpr_count",
    "vgpr_spill_count",
    "sgpr_spill_count",
    "private_segment_fixed_size",
    "group_segment_fixed_size",
)


@dataclass
class Kernel:
    name: str
    vgpr: int
    spills: int
    scratch: int
    shared: int
    waves: int
    instructions: int
    loop: int
    wmma: int
    dot: int
    wide_loads: int


def run(tool: str, *args: str) -> str:
    return subprocess.run([f"{tool}-{LLVM}", *args], capture_output=True, text=True, check=True).stdout


def notes(path: str) -> dict[str, dict[str, int]]:
    kernels = {}
    for part in re.split(r"\n\s*- \.a(?:gpr_count|rgs)", run("llvm-readelf", "--notes", path))[1:]:
        fields = dict(re.findall(rf"\.({'|'.join(NOTE_FIELDS)}):\s+'?([\w.@]+)", part))
        name = fields.pop("symbol").removesuffix(".kd")
        kernels[name] = {field: int(value) for field, value in fields.items()}
    return kernels


def code(path: str) -> dict[str, tuple[int, list[tuple[int, str]]]]:
    """Each kernel's address and its instructions with theirs, a branch with its target."""
    found = {}
    text = run("llvm-objdump", "-d", "--no-show-raw-insn", path)
    for start, name, body in re.findall(r"^([0-9a-f]+) <([^>]+)>:\n(.*?)(?=^[0-9a-f]+ <|\Z)", text, re.S | re.M):
        lines = re.findall(r"^\s+(.*?)\s*// ([0-9A-F]{8,16}):[^<\n]*(<.*>)?", body, re.M)
        found[name] = int(start, 16), [(int(at, 16), f"{line} {target}".rstrip()) for line, at, target in lines]
    return found


def branch_target(name: str, line: str) -> int | None:
    """Offset in the kernel to which a line branches."""
    target = re.match(rf"s_c?branch\S*\s.*<{re.escape(name)}(?:\+0x([0-9a-f]+))?>", line)
    return int(target[1] or "0", 16) if target else None


def longest_loop(name: str, start: int, lines: list[tuple[int, str]]) -> int:
    best = 0
    for at, line in lines:
        target = branch_target(name, line)
        if target is not None and start + target < at:
            best = max(best, sum(start + target <= a <= at for a, _ in lines))
    return best


def waves_a_simd(vgpr: int, wave64: bool) -> int:
    """gfx11 and gfx12: 1,536 registers a lane in wave32, in steps of 24, at most 16 waves; gfx906: 256 in steps of 4, at most 10."""
    step, total, most = (4, 256, 10) if wave64 else (24, 1536, 16)
    return min(most, total // (-(-max(vgpr, 1) // step) * step))


def is_wave64(path: str) -> bool:
    return re.search(r"wavefront_size:\s+64", run("llvm-readelf", "--notes", path)) is not None


def read(path: str, wave64: bool) -> list[Kernel]:
    bodies, kernels = code(path), []
    for name, n in sorted(notes(path).items()):
        start, lines = bodies[name]
        count = lambda pattern, lines=lines: sum(bool(re.match(pattern, line)) for _, line in lines)  # noqa: E731
        kernels.append(
            Kernel(
                name, n["vgpr_count"], n["vgpr_spill_count"] + n["sgpr_spill_count"], n["private_segment_fixed_size"],
                n["group_segment_fixed_size"], waves_a_simd(n["vgpr_count"], wave64), len(lines), longest_loop(name, start, lines),
                count("v_wmma"), count("v_dot4"), count("global_load_(b128|dwordx4)|flat_load_(b128|dwordx4)"),
            )
        )  # fmt: skip
    return kernels


def problems(kernel: Kernel, wave64: bool) -> list[str]:
    found = []
    if kernel.spills or kernel.scratch:
        found.append(f"{kernel.spills} registers spilled, {kernel.scratch} bytes of scratch")
    for limit in LIMITS:
        if not re.match(limit.pattern, kernel.name):
            continue
        if kernel.vgpr > limit.vgpr and not wave64:
            found.append(f"{kernel.vgpr} registers; at most {limit.vgpr}")
        wmma, dot = (0, limit.dot + limit.wmma) if wave64 else (limit.wmma, limit.dot)
        if kernel.wmma < wmma or (kernel.dot < dot and kernel.wmma == 0):
            found.append(f"{kernel.wmma} matrix and {kernel.dot} dot instructions; at least {wmma} and {dot}")
    return found


def table(kernels: list[Kernel], wave64: bool) -> tuple[str, int]:
    head = f"{'kernel':34} vgpr spill scratch   lds waves  insts  loop wmma dot4 ld128"
    rows, failed = [head], 0
    for k in kernels:
        bad = problems(k, wave64)
        failed += bool(bad)
        rows.append(
            f"{k.name:34} {k.vgpr:4} {k.spills:5} {k.scratch:7} {k.shared:5} {k.waves:5} {k.instructions:6} {k.loop:5} {k.wmma:4} "
            f"{k.dot:4} {k.wide_loads:5}{'  FAIL: ' if bad else ''}{'; '.join(bad)}"
        )
    return "\n".join(rows), failed


def main() -> int:
    path, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    wave64 = is_wave64(path)
    text, failed = table([k for k in read(path, wave64) if re.search(pattern, k.name)], wave64)
    print(text)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
