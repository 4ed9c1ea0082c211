"""The launches of a step without a GPU: a recording driver, its log, and the repetition of layers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lucebox import _core
from lucebox.selftest import checks, tiny, tiny_draft

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
import launch_record  # noqa: E402
from launch_record import Launch, parse, stretch  # noqa: E402

KERNELS = {"luce_*": 0, "luce_matmul_*": 184}  # bytes of their arguments: of matmuls the weights are looked at


def test_a_log() -> None:
    log = """allocate 1000 4096
allocate 9000 64
upload 1000 512
upload 1200 512
upload 1400 512
launch luce_embed_q8_0 1 1 1 256 0 1000
launch luce_old 1 1 1 32 0 1000
launch luce_embed_q8_0 2 1 1 256 0 1000
launch luce_matmul_q8_0_r1 3 2 1 160 70 9000 1400 1200 1200
launch luce_norm 1 1 1 256 0 9000 7f0000001400"""
    assert parse(log) == [
        Launch("luce_embed_q8_0", 2, 256, 0, 0),
        Launch("luce_matmul_q8_0_r1", 6, 160, 70, 0x200 + 0x1000 - 0x400),
        Launch("luce_norm", 1, 256, 0, 0),
    ]


def launch(name: str, weights: int = 0) -> Launch:
    return Launch(name, 1, 32, 0, weights)


def test_layers_are_repeated() -> None:
    layer = [launch("norm"), launch("mm", 7), launch("mm", 9)]
    found = stretch([launch("embed"), *layer, *layer, launch("head")], 3)
    assert found == [launch("embed"), *layer * 3, launch("head")]
    with pytest.raises(ValueError, match="without a repeated part"):
        stretch([launch("embed"), launch("head")], 3)


@pytest.mark.parametrize(("vendor", "chip"), [("hip", "gfx1201"), ("hip", "gfx906"), ("cuda", "sm_90")])
def test_a_step_of_the_engine(tmp_path: Path, vendor: str, chip: str) -> None:
    path = tmp_path / "tiny.gguf"
    tiny.write(path, tiny.TinyModel(types="q8_0", layers=8))
    found = launch_record.record(path, vendor, chip, KERNELS, rows=1, context=40)
    file = _core.GGUFFile(str(path))
    streamed = sum(t.nbytes for t in file.tensors if t.type == "q8_0" and t.name != "token_embd.weight")
    assert found[0].kernel == "luce_embed_q8_0" and "argmax" in found[-1].kernel
    assert streamed <= sum(a.weights for a in found) <= streamed * 1.1  # records are padded to 32 outputs
    tiny.write(path, tiny.TinyModel(types="q8_0", layers=16))
    longer = launch_record.record(path, vendor, chip, KERNELS, rows=1, context=40)
    assert [a.kernel for a in launch_record.stretch(found, 4)] == [a.kernel for a in longer]


def test_the_deep_models_make_long_graphs(tmp_path: Path) -> None:
    """What selftest's deep models are for: some 50, 200 and 800 launches a step."""
    counts = []
    for name in checks.DEEP:
        path = checks.model_file(name, tmp_path)
        counts.append(len(launch_record.record(path, "hip", "gfx1201", KERNELS, rows=1, context=0)))
    assert counts == sorted(counts) and 40 <= counts[0] <= 100 and counts[-1] >= 500


@pytest.mark.parametrize(("vendor", "chip"), [("hip", "gfx1201"), ("cuda", "sm_90")])
def test_a_step_with_its_draft(tmp_path: Path, vendor: str, chip: str) -> None:
    path, draft = tmp_path / "tiny.gguf", tmp_path / "draft.gguf"
    tiny.write(path, tiny.TinyModel(types="q8_0", layers=8))

    def step(layers: int) -> list[list[Launch]]:
        tiny_draft.write(draft, tiny_draft.TinyDrafter(types="q8_0", layers=layers, window=(64,) * layers))
        return list(
            launch_record.parts(launch_record.record(path, vendor, chip, KERNELS, rows=4, context=40, draft=draft))
        )

    block, target, ring = step(2)
    assert (
        block[-1].kernel == "luce_walk" and target[0].kernel == "luce_embed_q8_0" and ring[0].kernel == "luce_quantize"
    )
    streamed = sum(
        t.nbytes for t in _core.GGUFFile(str(draft)).tensors if t.type == "q8_0" and "selector" not in t.name
    )
    head = next(t.nbytes for t in _core.GGUFFile(str(path)).tensors if t.name == "output.weight")
    assert sum(a.weights for a in ring) > 0
    assert (
        streamed + head <= sum(a.weights for a in [*block, *ring]) <= (streamed + head) * 1.2
    )  # keys and values are read twice
    longer = step(5)
    for part, more in ((block, longer[0]), (ring, longer[2])):
        assert [a.kernel for a in stretch(part, 5)] == [a.kernel for a in more]
