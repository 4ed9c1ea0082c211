"""A tokenizer.json of the Hugging Face form as the keys of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lucebox.convert.safetensors import read_json
from lucebox.errors import RequestError

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def read(path: Path, vocab: int) -> list[tuple[str, str, Any]]:
    """Keys for a vocabulary of `vocab` tokens, those that the tokenizer does not name being unused. Raises RequestError."""
    path = path / "tokenizer.json" if path.is_dir() else path
    data = read_json(path)
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise RequestError(f"{path}: holds no byte-level BPE tokenizer")
    tokens = [f"[PAD{i}]" for i in range(vocab)]
    types = [UNUSED] * vocab

    def put(id: Any, text: Any, type: int) -> None:
        if not isinstance(id, int) or not isinstance(text, str) or not 0 <= id < vocab:
            raise RequestError(f"{path}: has token {text!r} with id {id!r}; the drafter's vocabulary has {vocab}")
        tokens[id], types[id] = text, type

    for text, id in model["vocab"].items():
        put(id, text, NORMAL)
    for added in data.get("added_tokens", []):
        if not isinstance(added, dict):
            raise RequestError(f"{path}: has an added token {added!r}")
        put(added.get("id"), added.get("content"), CONTROL if added.get("special") else USER_DEFINED)
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in model.get("merges", [])]
    return [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", "qwen35"),
        ("tokenizer.ggml.tokens", "str[]", tokens),
        ("tokenizer.ggml.token_type", "i32[]", types),
        ("tokenizer.ggml.merges", "str[]", merges),
    ]
