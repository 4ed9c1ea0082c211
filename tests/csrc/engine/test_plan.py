"""The plan of the real model on a 32 GB card, from a header alone: a sparse file as long as the weights, of which nothing is read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lucebox import _core

sys.path.insert(0, str(Path(__file__).parents[3] / "benches"))
import sparse_model  # noqa: E402

GIB = 1 << 30
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
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, _core.GGUFFile]:
    folder = tmp_path_factory.mktemp("plan")
    sparse_model.write(folder / "27b.gguf", lambda name: UD.get(name.removesuffix(".weight").split(".")[-1], "iq4_xs"))
    sparse_model.write_drafter(folder / "drafter.gguf")
    return {"file": _core.GGUFFile(str(folder / "27b.gguf")), "draft": _core.GGUFFile(str(folder / "drafter.gguf"))}


@pytest.mark.parametrize("max_ctx", [131072, 262144])
def test_the_27b_and_its_drafter_fit_a_32_gb_card(files: dict[str, _core.GGUFFile], max_ctx: int) -> None:
    entries = _core.plan(**files, max_ctx=max_ctx, device="hip:0")
    taken = sum(e.nbytes for e in entries if e.kind == "allocated")
    kv = next(e.nbytes for e in entries if e.name == "KV pages")
    assert kv == max_ctx * 34816  # q8_0, 16 layers of 4 heads of 256
    assert taken <= 31 * GIB
    assert taken >= sum(t.nbytes for file in files.values() for t in file.tensors) * 0.98 + kv


def test_drafting_costs_the_same_at_any_context(files: dict[str, _core.GGUFFile]) -> None:
    """The ring holds the window; rejected rows need no copy of a state, whatever the block's width."""
    drafters = []
    for max_ctx in (4096, 262144):
        entries = _core.plan(**files, max_ctx=max_ctx, device="hip:0")
        drafters.append({e.name: e.nbytes for e in entries if "drafter" in e.name and "page table" not in e.name})
    assert drafters[0] == drafters[1]
    rings = sum(nbytes for name, nbytes in drafters[0].items() if "ring, layer" in name)
    assert rings == 5 * 2 * 2560 * 8 * 128 * 2  # f16 K and V of 2,560 positions
    plans = [
        [(e.name, e.nbytes) for e in _core.plan(**files, max_ctx=4096, device="hip:0", draft_block_size=width)]
        for width in (2, 16)
    ]
    assert plans[0] == plans[1]
