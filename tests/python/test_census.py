"""Figures of inspect against sums made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from lucebox import _core, census
from lucebox.engine import BUNDLED
from lucebox.selftest import tiny


def test_nano_is_tied_so_a_token_reads_all_of_it() -> None:
    file = _core.GGUFFile(str(BUNDLED["nano"]))
    assert census.streamed_bytes(file) == sum(tensor.nbytes for tensor in file.tensors)
    counts = {count.type: (count.tensors, count.values) for count in census.by_type(file)}
    assert counts["iq4_xs"][0] == 93 and counts["q6_K"] == (1, 512 * 12288) and counts["f32"][0] == 67
    assert sum(count.nbytes for count in census.by_type(file)) == sum(tensor.nbytes for tensor in file.tensors)


def test_an_embedding_that_is_no_head_costs_one_row(tmp_path: Path) -> None:
    model = tiny.TinyModel(types="f16")
    tiny.write(tmp_path / "untied.gguf", model)
    file = _core.GGUFFile(str(tmp_path / "untied.gguf"))
    total = sum(tensor.nbytes for tensor in file.tensors)
    assert census.streamed_bytes(file) == total - (model.vocab - 1) * model.hidden * 2


def test_prediction_blocks_are_not_read(tmp_path: Path) -> None:
    model = tiny.TinyModel(types="f16")
    tensors = tiny.tensors(model)
    extra = [(name.replace("blk.3.", "blk.4."), *rest) for name, *rest in tensors if name.startswith("blk.3.")]
    plain, more = tmp_path / "plain.gguf", tmp_path / "more.gguf"
    metadata = [(k, t, 5 if k == "qwen35.block_count" else v) for k, t, v in tiny.metadata(model)]
    _core.write_gguf(str(plain), tiny.metadata(model), tensors)
    _core.write_gguf(str(more), [*metadata, ("qwen35.nextn_predict_layers", "u32", 1)], [*tensors, *extra])
    assert census.streamed_bytes(_core.GGUFFile(str(more))) == census.streamed_bytes(_core.GGUFFile(str(plain)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\x1b[31m\nb", "a\\x1b[31m… (8 characters)"),
        ("x" * 100, "x" * 72 + "… (100 characters)"),
        ([1, 2], "[1, 2]"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, …] (9 items)"),
        (0.1, "0.1"),
        (True, "True"),
        ("\udcff", "\\xdcff"),
    ],
)
def test_values_are_shown_on_one_printable_line(value: object, text: str) -> None:
    assert census.short(value) == text
