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
DRAFT_LAYERS = 2  # of a drafter, recorded likewise


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
drafter = {"draft": _core.GGUFFile(asked["draft"]), "draft_block_size": asked["rows"]} if asked["draft"] else {}
engine = _core.Engine(_core.GGUFFile(asked["model"]), device=asked["device"], kernels=asked["kernels"], launch="direct", slots=1, kv="q8_0",
                      variant="auto", threads=1, max_ctx=asked["context"] + asked["rows"] + 1, **drafter)
if drafter:
    prompt = [0] * max(1, asked["context"])
    engine.begin(0, _core.SequenceParams(lookup=False, adaptive=False), prompt)
    for start in range(0, len(prompt), engine.max_rows):
        part = prompt[start : start + engine.max_rows]
        engine.step([_core.StepWork(0, part, emit=start + len(part) == len(prompt))])
    result = engine.step([_core.StepWork(0, limit=asked["rows"])])[0]
    assert result.drafted == asked["rows"] - 1 and result.draft_ms == 0, "not in one go"
else:
    for start in range(0, asked["context"], 4096):
        engine.forward([(0, [0] * min(4096, asked["context"] - start))], "none")
    engine.forward([(0, [0] * asked["rows"])], "argmax")
"""


def record(
    model: Path,
    vendor: str,
    chip: str,
    argument_bytes: dict[str, int],
    rows: int,
    context: int,
    draft: Path | None = None,
) -> list[Launch]:
    """Launches of one step of `rows` rows after `context` tokens; with a drafter its block, and the ring's rows, are of the step.
    chip: gfx1201 ..., for its plans; vendor: hip or cuda.
    """
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
        asked["draft"] = str(draft) if draft else ""
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
        return parse((folder / "record").read_text(), draft is not None)


def parse(text: str, drafted: bool = False) -> list[Launch]:
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
    # What was uploaded and is pointed at is a tensor; the middles of large ones were uploaded too, but nothing points at them.
    words_of = [{w for w in words if w in uploads} for _, _, words in calls]
    length: dict[int, int] = {}
    for start, size in spans:
        places = sorted({w for words in words_of for w in words if start <= w < start + size} | {start + size})
        length |= {a: b - a for a, b in zip(places, places[1:], strict=False)}
    # A step begins with an embedding; the selector's codebooks are looked up by one, too.
    begins = [
        i
        for i, call in enumerate(calls)
        if "embed" in call[0] and not (i and ("lattice" in calls[i - 1][0] or "embed" in calls[i - 1][0]))
    ]
    last = begins[-2 if drafted else -1]
    return [
        Launch(name, x * y * z, threads, shared, sum(length[w] for w in words) if "matmul" in name else 0)
        for (name, (x, y, z, threads, shared), _), words in zip(calls[last:], words_of[last:], strict=True)
    ]


def stretch(launches: list[Launch], times: int) -> list[Launch]:
    """A record of two periods of layers as one of `times`: the part that comes twice in a row is repeated."""

    def shape(launch: Launch) -> Launch:  # the last tensor's padding differs
        return replace(launch, weights=0)

    for length in range(len(launches) // 2, 0, -1):
        for first in range(len(launches) - 2 * length + 1):
            one, other = launches[first : first + length], launches[first + length : first + 2 * length]
            if list(map(shape, one)) == list(map(shape, other)):
                return launches[:first] + one * times + launches[first + 2 * length :]
    raise ValueError(f"{len(launches)} launches without a repeated part; were two periods of layers recorded?")


def parts(launches: list[Launch]) -> tuple[list[Launch], list[Launch], list[Launch]]:
    """Of a step with a drafter: the block and its walk, the target's rows, and what the ring takes of them."""
    walk = next(i for i, launch in enumerate(launches) if launch.kernel == "luce_walk") + 1
    best = max(i for i, launch in enumerate(launches) if launch.kernel == "luce_argmax_join") + 1
    return launches[:walk], launches[walk:best], launches[best:]
