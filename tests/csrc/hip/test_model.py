"""The bundled model over the HIP backend on the emulator: logits equal the portable engine's, however the rows are cut and launched."""

from __future__ import annotations

from pathlib import Path

import lucebox
import numpy as np
import pytest
from cases import CHIPS, assert_same
from lucebox._core import Engine, GGUFFile, testing

NANO = Path(lucebox.__file__).parent / "models/nano/nano-IQ4_XS.gguf"
IDS = [int(i) for i in np.random.default_rng(1).integers(0, 500, 24)]


def portable(kv: str) -> np.ndarray:
    return Engine(GGUFFile(str(NANO)), max_ctx=256, variant="portable", kv=kv).forward([(0, IDS)], "all")


@pytest.mark.parametrize(
    ("kv", "cuts", "launch"),
    [
        ("q8_0", [24], "direct"),
        ("q8_0", [1, 2, 5, 16], "graph"),
        ("f16", [8, 8, 8], "split"),
        ("f32", [3, 8, 13], "direct"),
    ],
)
def test_cuts(kv, cuts, launch):
    assert_same(testing.hip.forward(GGUFFile(str(NANO)), IDS, cuts, kv=kv, launch=launch), portable(kv))


@pytest.mark.parametrize("chip", CHIPS[1:])
def test_chips(chip):
    ids = IDS[:9]
    got = testing.hip.forward(GGUFFile(str(NANO)), ids, [1, 8], device=f"emulated:{chip}", order="shuffled")
    assert_same(got, portable("q8_0")[:9])
