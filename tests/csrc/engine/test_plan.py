"""The plan of the real model on a 32 GB card, from a header alone: a sparse file as long as the weights, of which nothing is read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lucebox import _core

sys.path.insert(0, str(Path(__file__).parents[3] / "benches"))
import sparse_model  # noqa: E402

GIB = 1 << 30
DRAFTER_BYTES = 2_050_000_000  # of the 5-layer drafter in Q8_0, and 42 MB for its ring
# A UD-IQ4_XS mixture, by role.
UD = {
    "ssm_alpha": "q8_0",
    "ssm_beta": "q8_0",
    "attn_k": "q5_K",
    "attn_v": "q6_K",
    "attn_qkv": "q5_K",
    "output": "q6_K",
    "token_embd": "q4_K",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> _core.GGUFFile:
    path = tmp_path_factory.mktemp("plan") / "27b.gguf"
    sparse_model.write(path, lambda name: UD.get(name.removesuffix(".weight").split(".")[-1], "iq4_xs"))
    return _core.GGUFFile(str(path))


@pytest.mark.parametrize("max_ctx", [131072, 262144])
def test_the_27b_fits_a_32_gb_card(file: _core.GGUFFile, max_ctx: int) -> None:
    entries = _core.plan(file, max_ctx=max_ctx, device="hip:0")
    taken = sum(e.nbytes for e in entries if e.kind == "allocated")
    kv = next(e.nbytes for e in entries if e.name == "KV pages")
    assert kv == max_ctx * 34816  # q8_0, 16 layers of 4 heads of 256
    assert taken + DRAFTER_BYTES <= 31 * GIB
    assert taken >= sum(t.nbytes for t in file.tensors) * 0.98 + kv
