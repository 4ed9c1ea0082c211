"""The launches of a step as the engine makes them, without a GPU: it is run on the tests' recording driver (tests/csrc/hip/fake_driver.c).

Nothing here knows the kernels: names, grids and the weights that a launch reads come from the engine's own calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNITS = {"sm_90": 132, "gfx1151": 40, "gfx906": 60}  # multiprocessors or compute units, where not 64
PERIOD, RECORDED = 4, 8  # layers: three DeltaNet and one attention; two periods are recorded


@dataclass(frozen=True)
class Launch:
    kernel: str
    groups: int  # workgroups
    threads: int  # of a workgroup
    shared: int  # bytes of workgroup memory given by the launch
    weights: int  # bytes of weights read


_ENGINE = """
import json, sys
from lucebox import _core
asked = json.loads(sys.argv[1])
engine = _core.Engine(_core.GGUFFile(asked["model"]), device=asked["device"], kernels=asked["kernels"], launch="direct", slots=1, kv="q8_0",
                      variant="auto", threads=1, max_ctx=asked["context"] + asked["rows"])
for start in range(0, asked["context"], 4096):
    engine.forward([(0, [0] * min(4096, asked["context"] - start))], "none")
engine.forward([(0, [0] * asked["rows"])], "argmax")
"""


def record(
    model: Path, vendor: str, chip: str, argument_bytes: dict[str, int], rows: int, context: int
) -> list[Launch]:
    """Launches of one step of `rows` rows after `context` tokens. chip: gfx1201 ..., for its plans; vendor: hip or cuda."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cuda = ["-DFAKE_CUDA"] if vendor == "cuda" else []
        source = ROOT / "tests/csrc/hip/fake_driver.c"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", *cuda, str(source), "-o", str(folder / "driver.so")], check=True
        )
        (folder / ("lucebox.fatbin" if vendor == "cuda" else f"{chip}.hsaco")).write_bytes(b"code")
        (folder / "kernels").write_text("".join(f"{kernel} {size}\n" for kernel, size in argument_bytes.items()))
        asked = {"model": str(model), "device": f"{vendor}:0", "kernels": name, "rows": rows, "context": context}
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            f"LUCEBOX_{vendor.upper()}_LIBRARY": str(folder / "driver.so"),
            "FAKE_RECORD": str(folder / "record"),
            "FAKE_KERNELS": str(folder / "kernels"),
            "FAKE_BYTES": str(1 << 40),
            "FAKE_UNITS": str(UNITS.get(chip, 64)),
        }
        subprocess.run([sys.executable, "-c", _ENGINE, json.dumps(asked)], env=env, check=True)
        return parse((folder / "record").read_text())


def parse(text: str) -> list[Launch]:
    """The last step of a record. A launch reads the tensors at which its argument points, up to where the next tensor begins."""
    spans, uploads, calls = [], set(), []
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind == "allocate":
            spans.append((int(fields[0], 16), int(fields[1])))
        elif kind == "upload":
            uploads.add(int(fields[0], 16))
        else:
            calls.append((fields[0], [int(f) for f in fields[1:6]], [int(f, 16) for f in fields[6:]]))
    # The weights are one allocation, the one with most uploads.
    start, size = max(spans, key=lambda span: sum(span[0] <= at < span[0] + span[1] for at in uploads))
    tensors = {
        at for at in uploads if start <= at < start + size
    }  # and the middles of large ones, at which nothing points
    places = sorted({word for _, _, words in calls for word in words if word in tensors} | {start + size})
    length = {a: b - a for a, b in zip(places, places[1:], strict=False)}
    last = max(i for i, call in enumerate(calls) if "embed" in call[0])
    return [
        Launch(name, x * y * z, threads, shared, 0 if "embed" in name else sum(length.get(w, 0) for w in set(words)))
        for name, (x, y, z, threads, shared), words in calls[last:]
    ]


def stretch(launches: list[Launch], layers: int) -> list[Launch]:
    """A record of two periods of layers as one of `layers`: the part that comes twice in a row is repeated."""

    def shape(launch: Launch) -> Launch:  # the last tensor's padding differs
        return replace(launch, weights=0)

    for length in range(len(launches) // 2, 0, -1):
        for first in range(len(launches) - 2 * length + 1):
            one, other = launches[first : first + length], launches[first + length : first + 2 * length]
            if list(map(shape, one)) == list(map(shape, other)):
                return launches[:first] + one * (layers // PERIOD) + launches[first + 2 * length :]
    raise ValueError(f"{len(launches)} launches without a repeated part; were two periods of layers recorded?")
