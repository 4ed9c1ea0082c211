"""Rewrites python/lucebox/selftest/golden.json from the portable kernels. Run by whoever changes the numerics contract.

    python scripts/make_golden.py [--check]

The token ids are kept; the hashes are made anew, and every one that moves is named. A change here is a change of the
contract: its commit says why. nano's hashes came from the contract's reference program (an independent one), so that
with an unchanged contract this script must change nothing. --check writes nothing and exits with 1 if it would.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from lucebox import _core
from lucebox.engine import KV_TYPES
from lucebox.selftest import checks, tiny

TINY_LENGTHS = (5, 33, 64, 150, 290)  # around a tile, a page and a call's rows
DEEP_LENGTHS = (4, 9)


def random_ids(name: str) -> dict[str, list[int]]:
    model = checks.RANDOM[name]
    random = tiny.Random(model.seed + 99)
    lengths = DEEP_LENGTHS if name in checks.DEEP else TINY_LENGTHS
    return {f"{n} ids": [int(bits % model.vocab) for bits in random.bits(n)] for n in lengths}


def hashes_of(name: str, ids: dict[str, list[int]], folder: Path) -> dict:
    """Hashes by KV type and prompt: of each row for nano, of all rows together for random models."""
    file = _core.GGUFFile(str(checks.model_file(name, folder)))
    found: dict = {}
    kinds = {"nano": ("q8_0", "f32"), **dict.fromkeys(checks.DEEP, ("q8_0",))}
    for kv in kinds.get(name, KV_TYPES):
        engine = _core.Engine(file, max_ctx=max(map(len, ids.values())), kv=kv, slots=len(ids), variant="portable")
        rows = dict(zip(ids, checks.logits(engine, list(ids.values()), "all"), strict=True))
        one = checks.hashes if name == "nano" else checks.whole_hash
        found[kv] = {prompt: one(logits) for prompt, logits in rows.items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a hash would change")
    check = parser.parse_args().check
    old = json.loads(checks.GOLDEN.read_text())
    new = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("nano", *checks.RANDOM):
            ids = old["nano"]["ids"] if name == "nano" else random_ids(name)
            new[name] = {"ids": ids, **hashes_of(name, ids, Path(folder))}
    moved = [
        f"{name}, {kv}, {prompt}"
        for name in new
        for kv in KV_TYPES
        for prompt, value in new[name].get(kv, {}).items()
        if old.get(name, {}).get(kv, {}).get(prompt) != value
    ]
    print("\n".join(f"changed: {line}" for line in moved) or "nothing changed")
    if not check:
        checks.GOLDEN.write_text(json.dumps(new, separators=(",", ":")) + "\n")
    return 1 if check and moved else 0


if __name__ == "__main__":
    sys.exit(main())
