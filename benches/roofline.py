"""What a step should take on a card that is not at hand. PREDICTIONS: from the compiled kernels' instructions, the launches that the engine
makes, the bytes they read and a card's data sheet (roofline.json). The same model is first held against steps measured on an NVIDIA card.

    python benches/roofline.py --kernels FOLDER [--profile FILE] [--mix iq4_xs|ud] [--contexts 0 16384] [--launches] [--json]

FOLDER holds <chip>.hsaco and <chip>.cubin (docs/kernels.md, "Compiling by hand"); gfx1201.hsaco must be there, a card without its
file is left out. Its steps are those of the commit that roofline.json names; --profile takes those that bench_gpu_kernels.py printed on
an H200 in their place, and compares kernel by kernel. Three bounds of a launch are joined (JOIN), and a gap to the next launch added:
  bytes    what it reads, at the card's read bandwidth
  issue    the busiest unit's waves, each as many cycles as the unit that it occupies most (roofline_code.UNITS)
  latency  rounds of workgroups, each as long as one wave alone: its instructions, and where its code waits for a load the rest of that
The share of the card's latency that a load really takes is the one number that is fitted, to the measured steps; all else is counted, from
a data sheet, or named as assumed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import launch_record
import roofline_code
import roofline_profile
import sparse_model
from lucebox import _core
from roofline_code import Code, Loop

FACTS = Path(__file__).with_suffix(".json")
UD = {
    "ssm_alpha": "q8_0", "ssm_beta": "q8_0", "attn_k": "q5_K", "attn_v": "q6_K", "attn_qkv": "q5_K", "ssm_out": "q5_K", "ffn_down": "q4_K",
    "output": "q6_K", "token_embd": "q6_K",
}  # fmt: skip
LAYERS, VALUE_HEADS, KV_BYTES = 64, 48, 34816 // 16  # KV_BYTES: of a token in one layer
BITS = {name: 8 * nbytes / block for _, name, block, nbytes, _ in _core.tensor_types()}
WITHIN = 0.15
DEEP, DEEP_ROWS = 8192, 8  # so many rows are verified behind so many tokens (csrc/spec/policy.h)
JOIN = 1.5  # of the three bounds: they hide behind each other in part only. 1 would add them, infinity take the longest


@dataclass(frozen=True)
class Work:
    """A launch on a card."""

    bytes_us: float
    issue_us: float
    rounds: float
    parts: tuple[tuple[tuple[str, ...], float], ...]  # instructions of a wave, and how often they run
    latency_ns: float  # of a load
    cached_ns: float  # of one that a cache answers

    def us(self, card: dict[str, Any], exposed: float) -> float:
        bounds = (self.bytes_us, self.issue_us, self.latency_us(card, exposed))
        return sum(bound**JOIN for bound in bounds) ** (1 / JOIN) + card["launch_us"]

    def latency_us(self, card: dict[str, Any], exposed: float) -> float:
        step_ns = card["dependent"] / card["clock_ghz"]
        wave = wave_us(self.parts, card["family"], step_ns, self.latency_ns * exposed, self.cached_ns * exposed)
        return self.rounds * wave


@cache
def wave_us(
    parts: tuple[tuple[tuple[str, ...], float], ...], family: str, step_ns: float, latency_ns: float, cached_ns: float
) -> float:
    """A wave alone: the first part is run once, the others are loops in which it has come to its pace."""
    (code, often), *loops = parts
    total = often * roofline_code.wave_ns(list(code), family, step_ns, latency_ns, cached_ns=cached_ns)
    for lines, more in loops:
        if more:
            total += more * roofline_code.wave_ns(list(lines), family, step_ns, latency_ns, 9, cached_ns)
    return total * 1e-3


def tile_rows(code: Code, rows: int) -> int:
    """Rows that the matrix instructions work on: NVIDIA's take eight, AMD's sixteen; without them a tile is sixteen all the same."""
    if rows <= 4 or any(line.startswith("IMMA") for line in code.instructions):
        return rows
    return max(rows, 16)


def turns(launch: launch_record.Launch, code: Code, lanes: int, rows: int, context: int) -> list[tuple[Loop, float]]:
    """Loops whose turns are known, each with the turns of a wave beyond the first."""
    waves = math.ceil(launch.threads / lanes)
    loop = roofline_code.hot_loop(code)
    matmul = re.fullmatch(r"luce_matmul_(\w+?)_r(\d+)", launch.kernel)
    if loop is None:
        return []
    if matmul and launch.weights:
        each = roofline_code.macs(code.inside(loop), lanes)
        needed = launch.weights * 8 / BITS[matmul[1]] * tile_rows(code, int(matmul[2]))
        return [(loop, needed / each / (launch.groups * waves) - 1)] if each else []
    if "deltanet_step" in launch.kernel:
        inner = [a for a in code.loops if not any(b < a for b in code.loops)]
        # The convolution's loop: 320 values a row, 256 at a time.
        loads = [a for a in inner if any(re.match("LDG|global_load|flat_load", line) for line in code.inside(a))]
        token = max((a for a in inner if a not in loads), key=len)
        return [(token, rows - 1), *((a, math.ceil(rows * 1.25) - 1) for a in loads)]
    if "draft_part" in launch.kernel:
        # The longest inner loops are eight dimensions of a page's scores, then eight of its keys' values; a page a workgroup, or several.
        inner = sorted((a for a in code.loops if not any(b < a for b in code.loops)), key=len)[-2:]
        return list(zip(inner, (31, 15), strict=False))
    if re.search("attention_(tile|part)", launch.kernel):
        tiles = max(1, math.ceil((context + rows) / 32))
        segments = max(1.0, min(16 if launch.kernel.endswith("_group") else 1, tiles / 8))
        inner = min((a for a in code.loops if roofline_code.macs(code.inside(a), lanes)), key=len)
        outer = max(code.loops, key=len)
        return [(inner, (min(8, tiles) - 1) * segments), (outer, segments - 1)]
    return []


def read_bytes(launch: launch_record.Launch, context: int) -> int:
    """Weights, and the state or the K/V that no cache holds."""
    if "deltanet_step" in launch.kernel:
        return 2 * VALUE_HEADS * 128 * 128 * 4
    if re.search("attention_(tile|part)", launch.kernel):
        return context * KV_BYTES
    return launch.weights


def work(launch: launch_record.Launch, code: Code, card: dict[str, Any], rows: int, context: int) -> Work:
    waves = math.ceil(launch.threads / card["lanes"])
    family = card["family"]
    cycles: dict[str, float] = defaultdict(float)
    loops = turns(launch, code, card["lanes"], rows, context)
    parts = [(code.instructions, 1.0), *((code.inside(loop), more) for loop, more in loops)]
    for lines, often in parts:
        for unit, count in roofline_code.occupied(lines, family).items():
            cycles[unit] += count * often
    registers = max(1, code.registers) * waves * card["lanes"]
    memory = max(1, launch.shared + code.shared)
    resident = max(
        1, min(card["groups"], card["waves"] // waves, card["registers"] // registers, card["shared"] // memory)
    )
    busiest = math.ceil(launch.groups / card["units"])
    issue = busiest * waves * max(cycles.values()) / card["simds"] / card["clock_ghz"] * 1e-3
    return Work(
        bytes_us=read_bytes(launch, context) / card["read_gb_s"] * 1e-3,
        issue_us=issue,
        rounds=max(1.0, busiest / resident),
        parts=tuple((tuple(lines), often) for lines, often in parts),
        latency_ns=card["memory_latency_ns" if launch.weights else "cache_latency_ns"],
        cached_ns=card["cache_latency_ns"],
    )


class Step:
    def __init__(
        self,
        card: dict[str, Any],
        codes: dict[str, Code],
        launches: list[launch_record.Launch],
        rows: int,
        context: int,
    ):
        self.card, self.launches = card, launches
        kinds = {launch: work(launch, codes[launch.kernel], card, rows, context) for launch in set(launches)}
        self.works = [kinds[launch] for launch in launches]
        self.weights = sum(launch.weights for launch in launches)

    def ms(self, exposed: float) -> float:
        return sum(w.us(self.card, exposed) for w in self.works) / 1e3

    def table(self, exposed: float) -> list[str]:
        """A line for each kind of launch, the longest in all first."""
        kinds: dict[tuple[str, int, int], list[Work]] = defaultdict(list)
        for launch, w in zip(self.launches, self.works, strict=True):
            kinds[launch.kernel, launch.groups, launch.weights].append(w)
        rows = []
        for (kernel, groups, weights), found in kinds.items():
            w, us = found[0], found[0].us(self.card, exposed)
            parts = f"bytes {w.bytes_us:.1f}, issue {w.issue_us:.1f}, latency {w.latency_us(self.card, exposed):.1f}"
            line = f"  {kernel:42} {groups:5} x {len(found):3}  {weights / 1e6:6.1f} MB  {us:7.1f} us  ({parts})"
            rows.append((us * len(found), line))
        return [line for _, line in sorted(rows, reverse=True)]


@dataclass(frozen=True)
class Drafted:
    """A step of rows that a drafter's block was walked for."""

    block: Step  # and its walk
    verify: Step
    ring: Step

    def ms(self, exposed: float) -> float:
        return self.verify.ms(exposed) + self.draft_ms(exposed)

    def draft_ms(self, exposed: float) -> float:
        return self.block.ms(exposed) + self.ring.ms(exposed)


class Model:
    def __init__(self, kernels: Path, folder: Path):
        self.facts = json.loads(FACTS.read_text())
        self.arguments = roofline_code.argument_bytes(kernels / "gfx1201.hsaco")
        self.codes: dict[str, dict[str, Code]] = {}
        for name, card in self.facts["cards"].items():
            path = kernels / f"{card['chip']}.{'cubin' if card['vendor'] == 'cuda' else 'hsaco'}"
            if path.exists():
                self.codes[name] = (roofline_code.read_nvidia if card["vendor"] == "cuda" else roofline_code.read_amd)(
                    path
                )
        self.folder = folder
        self.steps: dict[tuple[str, str, int, int, int], Step] = {}

    def file(self, mix: str) -> Path:
        path = self.folder / f"{mix}.gguf"
        if not path.exists():
            types = UD if mix == "ud" else {}
            of = lambda name: types.get(name.removesuffix(".weight").split(".")[-1], "iq4_xs")  # noqa: E731
            sparse_model.write(path, of, layers=launch_record.RECORDED, tied=True)
        return path

    def drafter(self) -> Path:
        path = self.folder / "drafter.gguf"
        if not path.exists():
            layers = launch_record.DRAFT_LAYERS
            taps = tuple(range(len(sparse_model.DRAFTER.taps)))
            window = sparse_model.DRAFTER.window[:layers]
            sparse_model.write_drafter(path, replace(sparse_model.DRAFTER, layers=layers, taps=taps, window=window))
        return path

    def drafted_step(self, name: str, mix: str, rows: int, context: int) -> Drafted:
        card = self.facts["cards"][name]
        place = (card["vendor"], card["chip"], self.arguments)
        found = launch_record.record(self.file(mix), *place, rows, context, draft=self.drafter())
        block, target, ring = launch_record.parts(found)
        times = (sparse_model.DRAFTER.layers, LAYERS // launch_record.PERIOD, sparse_model.DRAFTER.layers)
        # Taps lie behind some layers only: they would hide that the layers are alike.
        taps = [launch for launch in target if launch.kernel == "luce_tap"]
        target = [launch for launch in target if launch.kernel != "luce_tap"]
        launches = [launch_record.stretch(part, n) for part, n in zip((block, target, ring), times, strict=True)]
        launches[1] += taps
        # What the drafter sees of the context is its window.
        seen = (min(context, max(sparse_model.DRAFTER.window)), context, 0)
        steps = tuple(Step(card, self.codes[name], part, rows, c) for part, c in zip(launches, seen, strict=True))
        for what, step in zip(("draft", "verify", "ring"), steps, strict=True):
            self.steps[name, f"{mix}, {what}", rows, context, LAYERS] = step
        return Drafted(*steps)

    def step(self, name: str, mix: str, rows: int, context: int, layers: int = LAYERS) -> Step:
        key = (name, mix, rows, context, layers)
        if key not in self.steps:
            card = self.facts["cards"][name]
            found = launch_record.record(self.file(mix), card["vendor"], card["chip"], self.arguments, rows, context)
            self.steps[key] = Step(
                card, self.codes[name], launch_record.stretch(found, layers // launch_record.PERIOD), rows, context
            )
        return self.steps[key]

    def measured(self, profiles: list[roofline_profile.Profile]) -> list[tuple[dict[str, Any], Step | Drafted]]:
        rows = self.facts["measured"]
        if profiles:
            place = {"card": "h200", "commit": "profile"}
            rows = [
                {**place, "mix": p.mix, "context": p.context, "rows": p.rows, "ms": p.ms, "layers": p.layers}
                for p in profiles
            ]
        found: list[tuple[dict[str, Any], Step | Drafted]] = []
        for row in rows:
            if row["card"] in self.codes:
                place = (row["card"], row["mix"], row["rows"], row["context"])
                drafted = row.get("drafted", False)
                found.append(
                    (row, self.drafted_step(*place) if drafted else self.step(*place, row.get("layers", LAYERS)))
                )
        return found


def fit(measured: list[tuple[dict[str, Any], Step | Drafted]]) -> float:
    """The share of a latency with the least squared error of the logarithm."""

    def error(exposed: float) -> float:
        return sum(math.log(step.ms(exposed) / row["ms"]) ** 2 for row, step in measured)

    coarse = min((e / 10 for e in range(1, 21)), key=error)
    return min((coarse + e / 100 for e in range(-9, 10)), key=error)


def compare(measured: list[tuple[dict[str, Any], Step | Drafted]], exposed: float) -> list[dict[str, Any]]:
    return [{**row, "model_ms": step.ms(exposed), "ratio": step.ms(exposed) / row["ms"]} for row, step in measured]


def predict(model: Model, name: str, mix: str, context: int, exposed: float) -> list[dict[str, Any]]:
    """Plain decode, and steps of the two blocks with their drafts in one go."""
    out = []
    blocks = [(int(w), e) for w, e in model.facts["tokens_a_step"].items() if w.isdigit()]
    for rows, tokens in ((1, 1.0), *blocks):
        if context > DEEP and rows > DEEP_ROWS:
            continue
        if rows == 1:
            step, draft = model.step(name, mix, rows, context), 0.0
        else:
            whole = model.drafted_step(name, mix, rows, context)
            step, draft = whole.verify, whole.draft_ms(exposed)
        verify = step.ms(exposed)
        row = {"card": name, "mix": mix, "context": context, "rows": rows, "tokens_a_step": tokens, "step_ms": verify}
        row["bytes_ms"] = step.weights / model.facts["cards"][name]["read_gb_s"] / 1e6
        out.append({**row, "draft_ms": draft, "tokens_per_s": tokens / (verify + draft) * 1e3})
    return out


def print_measured(checked: list[dict[str, Any]], exposed: float) -> None:
    print(f"Fitted: a load takes {exposed:.2f} of the card's latency. Measured steps against the model:")
    for row in checked:
        near = "" if abs(row["ratio"] - 1) <= WITHIN else f"  MORE THAN {WITHIN:.0%} OFF"
        place = f"{row['card']} {row['commit']} {row['mix']} context {row['context']:6} rows {row['rows']:3}"
        place += " and their draft" if row.get("drafted") else ""
        print(
            f"  {place}: measured {row['ms']:6.2f} ms, model {row['model_ms']:6.2f} ms, ratio {row['ratio']:.2f}{near}"
        )


def print_predictions(card: dict[str, Any], mix: str, found: list[dict[str, Any]]) -> None:
    published = ", ".join(f"{what} {rate}" for what, rate in card["published"])
    print(f"\nPREDICTION, {card['name']} ({card['chip']}), {mix}; published tokens/s: {published}")
    for p in found:
        step = f"step {p['step_ms']:6.1f} ms (bytes alone {p['bytes_ms']:.1f}), draft {p['draft_ms']:4.1f} ms"
        rate = f"{p['tokens_a_step']} tokens a step: {p['tokens_per_s']:6.1f} tokens/s"
        print(f"  context {p['context']:6} rows {p['rows']:2}: {step}, {rate}", flush=True)


def print_kernels(profile: roofline_profile.Profile, step: Step, exposed: float) -> None:
    """Kernels that take 2 % of the step, the model's time beside the profile's."""
    places = {}
    for before, launch, w in zip([None, *step.launches], step.launches, step.works, strict=False):
        place = (launch.kernel, launch.groups, before.kernel if before else "")
        places.setdefault(place, w.us(step.card, exposed))
    print(f"  {profile.mix}, context {profile.context}, {profile.rows} rows:")
    for k in profile.kernels:
        us = places.get((f"luce_{k.name}", k.groups, f"luce_{k.before}"))
        if us is not None and k.us * k.times > 0.02 * profile.ms * 1e3:
            print(
                f"    {k.name:36} {k.groups:5} after {k.before:20} {k.us:7.1f} us, model {us:7.1f}, ratio {us / k.us:.2f}"
            )


def report(model: Model, args: argparse.Namespace) -> dict[str, Any]:
    profiles = [p for path in args.profile for p in roofline_profile.parse(path.read_text())]
    measured = model.measured(profiles)
    if not measured:
        raise SystemExit("no card with measured steps has its code in the folder: an unchecked model predicts nothing")
    exposed = fit(measured)
    checked = compare(measured, exposed)
    print_measured(checked, exposed)
    for profile in profiles:
        print_kernels(profile, model.step("h200", profile.mix, profile.rows, profile.context, profile.layers), exposed)
    predictions = []
    for name in model.codes:
        if any(row["card"] == name for row in model.facts["measured"]):
            continue
        found = [p for context in args.contexts for p in predict(model, name, args.mix, context, exposed)]
        print_predictions(model.facts["cards"][name], args.mix, found)
        predictions += found
    if args.launches:
        for (name, mix, rows, context, layers), step in model.steps.items():
            print(f"\n{name} {mix}, {layers} layers, context {context} rows {rows}: {len(step.launches)} launches")
            print("\n".join(step.table(exposed)))
    return {"exposed": exposed, "measured": checked, "predictions": predictions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, required=True)
    parser.add_argument("--profile", type=Path, nargs="*", default=[])
    parser.add_argument("--mix", choices=["iq4_xs", "ud"], default="iq4_xs")
    parser.add_argument("--contexts", type=int, nargs="*", default=[0, 16384])
    parser.add_argument("--launches", action="store_true", help="every kind of launch of every step")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = report(Model(args.kernels, Path(folder)), args)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
