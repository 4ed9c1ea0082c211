"""llama.cpp's own vectors for the qwen35 split: a vocabulary of 151,936 tokens, its texts and their ids."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
import tokenizers
from lucebox._core import GGUFFile
from lucebox.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "data"
NAME = "ggml-vocab-qwen35.gguf"
SEPARATOR = "\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / NAME
    path.write_bytes(lzma.decompress((DATA / f"{NAME}.xz").read_bytes()))
    return Tokenizer(GGUFFile(str(path)).metadata, file=str(path))


def test_ids_are_those_of_llama_cpp_on_nfc_text(qwen: Tokenizer) -> None:
    texts = (DATA / f"{NAME}.inp").read_bytes().decode("utf-8").split(SEPARATOR)[:-1]
    wanted = [list(map(int, line.split())) for line in (DATA / f"{NAME}.out").read_text().splitlines()]
    assert len(texts) == len(wanted) == 50
    normalizer = tokenizers.normalizers.NFC()
    nfc = [i for i, text in enumerate(texts) if normalizer.normalize_str(text) == text]
    assert len(nfc) == 47
    for i in nfc:
        assert qwen.encode(texts[i], special=False) == wanted[i], repr(texts[i])


def test_texts_that_are_not_nfc_get_the_ids_of_their_nfc_form(qwen: Tokenizer) -> None:
    assert qwen.encode("re\u0301sume\u0301") == qwen.encode("r\u00e9sum\u00e9")


def test_end_tokens(qwen: Tokenizer) -> None:
    assert {qwen.token_text(id) for id in qwen.end_ids} == {"<|endoftext|>", "<|im_end|>"}
