"""Ids against the model's own tokenizer.json, round trips, streams, and files that are no tokenizer."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from lucebox.errors import GGUFError, RequestError, UnsupportedModelError
from lucebox.tokenizer import Detokenizer, Tokenizer
from texts import MARKERS, texts

TOKENIZER_JSON = Path(__file__).parents[1] / "data" / "nano_tokenizer.json"


def nfc(text: str) -> str:
    return tokenizers.normalizers.NFC().normalize_str(text)


def test_ids_are_those_of_tokenizer_json_on_10000_strings(tokenizer: Tokenizer) -> None:
    reference = tokenizers.Tokenizer.from_file(str(TOKENIZER_JSON))
    strings = texts(10_000, seed=1)
    assert len(strings) == 10_000
    for text in strings:
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids, repr(text)


def test_plain_ids_are_those_of_tokenizer_json_without_added_tokens(tokenizer: Tokenizer) -> None:
    data = json.loads(TOKENIZER_JSON.read_text())
    markers = {token["id"] for token in data["added_tokens"]}
    data["added_tokens"] = []
    reference = tokenizers.Tokenizer.from_str(json.dumps(data))
    for text in [*MARKERS, *texts(3000, seed=2)]:
        ids = tokenizer.encode(text, special=False)
        assert ids == reference.encode(text, add_special_tokens=False).ids, repr(text)
        assert markers.isdisjoint(ids)


@pytest.mark.parametrize("special", [True, False])
def test_round_trip_gives_the_text_in_nfc(tokenizer: Tokenizer, special: bool) -> None:
    for text in texts(2000, seed=3):
        pieces = [piece for piece, _ in tokenizer.cut(text)] if special else [text]
        wanted = "".join(map(nfc, pieces))
        assert tokenizer.decode(tokenizer.encode(text, special=special), special=True) == wanted


def test_control_tokens_give_text_only_when_asked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>a<think>b</think><|im_end|>")
    assert tokenizer.decode(ids) == "a<think>b</think>"
    assert tokenizer.decode(ids, special=True) == "<|im_start|>a<think>b</think><|im_end|>"


def test_bytes_that_are_no_utf8_survive(tokenizer: Tokenizer) -> None:
    source = random.Random(4)
    samples = [b"\xff", b"a\x80b", b"\xe4\xbd", b" \xc3 \xa9", bytes(range(256)), "é".encode()[:1] + b"x\xf0\x9f\x8e"]
    samples += [bytes(source.randrange(256) for _ in range(source.randrange(40))) for _ in range(500)]
    for data in samples:
        text = data.decode("utf-8", "surrogateescape")
        if not all(nfc(part) == part for part in re.split("[\udc80-\udcff]+", text)):
            continue
        for special in (True, False):
            assert tokenizer.decode_bytes(tokenizer.encode(data, special=special)) == data
            assert tokenizer.encode(text, special=special) == tokenizer.encode(data, special=special)
        assert tokenizer.decode(tokenizer.encode(data), errors="surrogateescape") == text


def test_a_bad_byte_counts_as_a_symbol(tokenizer: Tokenizer) -> None:
    """It is cut where any other symbol that the vocabulary does not hold would be."""
    ids = tokenizer.encode(b"ab \xff!! cd")
    assert tokenizer.decode_bytes(ids[:1]) == b"ab"
    assert tokenizer.decode_bytes(tokenizer.encode(b" \xff!!")) == b" \xff!!"
    assert ids == tokenizer.encode("ab") + tokenizer.encode(b" \xff!!") + tokenizer.encode(" cd")


def test_a_lone_surrogate_is_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")


def test_streams_join_to_the_text_and_no_piece_ends_inside_a_character(tokenizer: Tokenizer) -> None:
    for text in texts(500, seed=5):
        ids = tokenizer.encode(text, special=False)
        stream = Detokenizer(tokenizer, special=True)
        pieces = [stream.push(id) for id in ids] + [stream.finish()]
        assert "".join(pieces) == nfc(text)
        assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_a_stream_that_ends_inside_a_character_ends_in_a_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ok 🎉", special=False)
    cut = next(n for n in range(len(ids)) if tokenizer.decode_bytes(ids[:n]) == b"ok \xf0\x9f\x8e")
    stream = Detokenizer(tokenizer)
    assert "".join(stream.push(id) for id in ids[:cut]) == "ok "
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""


@pytest.mark.parametrize("run", ["a", " ", "\n", "!", "世", "a\u0301", "<", "<|im_", "\u0301\u0323", b"\xff", "1"])
def test_a_run_of_a_million_bytes_takes_linear_time(tokenizer: Tokenizer, run: str | bytes) -> None:
    size = len(run.encode() if isinstance(run, str) else run)
    text = run * (1_000_000 // size)
    started = time.monotonic()
    ids = tokenizer.encode(text)
    assert time.monotonic() - started < 30  # quadratic merging would take hours
    assert len(tokenizer.decode_bytes(ids)) >= 500_000


def test_end_tokens_are_found_by_text(tokenizer: Tokenizer, nano_metadata: dict[str, Any]) -> None:
    texts_of = {tokenizer.token_text(id) for id in tokenizer.end_ids}
    assert texts_of == {"<|im_end|>", "<|endoftext|>", "<|fim_pad|>"}
    base = dict(nano_metadata)
    base["tokenizer.ggml.eos_token_id"] = tokenizer.marker_id("<|endoftext|>")
    assert tokenizer.marker_id("<|im_end|>") in Tokenizer(base).end_ids
    del base["tokenizer.ggml.eos_token_id"]
    assert Tokenizer(base).end_ids == tokenizer.end_ids


def test_unknown_ids_are_refused(tokenizer: Tokenizer) -> None:
    for id in (-1, len(tokenizer)):
        with pytest.raises(RequestError, match=f"token id {id}: the vocabulary has ids 0 to {len(tokenizer) - 1}"):
            tokenizer.decode([id])
    assert tokenizer.decode([len(tokenizer) - 1]) == "</think>"


@pytest.mark.parametrize("key", ["model", "pre", "tokens", "token_type", "merges"])
def test_a_missing_key_is_named(nano_metadata: dict[str, Any], key: str) -> None:
    metadata = {k: v for k, v in nano_metadata.items() if k != f"tokenizer.ggml.{key}"}
    with pytest.raises(GGUFError, match=f"x.gguf: tokenizer.ggml.{key}: the key is missing") as caught:
        Tokenizer(metadata, file="x.gguf")
    assert (caught.value.file, caught.value.field) == ("x.gguf", f"tokenizer.ggml.{key}")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("tokens", "abc", "not a list of strings"),
        ("tokens", ["a", "b"], "types for 2 tokens"),
        ("token_type", [1.0], "not a list of integers"),
        ("merges", ["ab"], r"merge 0 \('ab'\) does not join two tokens into a third"),
        ("merges", ["Ġ Ġ", "q zzz"], "merge 1 "),
        ("eos_token_id", 12288, "12288 is no token id"),
        ("bos_token_id", "x", "'x' is no token id"),
    ],
)
def test_a_wrong_value_is_named(nano_metadata: dict[str, Any], key: str, value: Any, text: str) -> None:
    with pytest.raises(GGUFError, match=text):
        Tokenizer({**nano_metadata, f"tokenizer.ggml.{key}": value})


def test_a_vocabulary_without_a_byte_is_refused(nano_metadata: dict[str, Any]) -> None:
    tokens = ["!!!!" if token == "!" else token for token in nano_metadata["tokenizer.ggml.tokens"]]
    with pytest.raises(GGUFError, match="no token for the single byte 0x21"):
        Tokenizer({**nano_metadata, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": []})


@pytest.mark.parametrize(("key", "value"), [("model", "llama"), ("pre", "qwen2"), ("pre", "default")])
def test_other_kinds_say_what_is_supported(nano_metadata: dict[str, Any], key: str, value: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"is '{value}'; supported is '(gpt2|qwen35)'"):
        Tokenizer({**nano_metadata, f"tokenizer.ggml.{key}": value})


def test_tokens_of_odd_bytes_are_only_decoded(nano_metadata: dict[str, Any]) -> None:
    """A token whose text is no UTF-8 cannot be reached by merges; it must not stop the file from loading."""
    tokens = list(nano_metadata["tokenizer.ggml.tokens"])
    odd = next(
        id for id, text in enumerate(tokens) if len(text) > 3 and nano_metadata["tokenizer.ggml.token_type"][id] == 1
    )
    merges = [
        m for m in nano_metadata["tokenizer.ggml.merges"] if tokens[odd] not in (m.replace(" ", ""), *m.split(" "))
    ]
    tokens[odd] = "x\udcff"
    tokenizer = Tokenizer({**nano_metadata, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges})
    assert tokenizer.token_bytes(odd) == b"x\xff"
