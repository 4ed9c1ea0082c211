"""Text to token ids and back, from a GGUF file's metadata alone.

Byte-level BPE with the qwen35 split. Text is put into NFC first, as the models were trained; llama.cpp does not,
so text that is not in NFC may get other ids there. Bytes that are no UTF-8 (as bytes, or as surrogate escapes in a str)
each count as one symbol character and survive the round trip.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from lucebox.errors import GGUFError, RequestError, UnsupportedModelError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

SPLIT = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)

END_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
)

_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_A_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def byte_alphabet() -> list[str]:
    """The character that stands for each of the 256 bytes in the tokens of a byte-level vocabulary."""
    own = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x100 + 256))
    return [chr(byte) if byte in own else chr(next(others)) for byte in range(256)]


_ALPHABET = byte_alphabet()
_BYTE_OF = {char: byte for byte, char in enumerate(_ALPHABET)}


class Tokenizer:
    """metadata: a GGUF file's keys and values; file: its name, for error texts.

    Raises GGUFError when a key is missing or wrong, UnsupportedModelError for a tokenizer of another kind.
    """

    eos_id: int | None
    bos_id: int | None
    pad_id: int | None
    end_ids: frozenset[int]
    """Generation stops at any of these."""

    def __init__(self, metadata: Mapping[str, Any], *, file: str = "") -> None:
        self._file = file
        self._metadata = metadata
        self._check_kind()
        self._texts: list[str] = self._list("tokens", str)
        self._types: list[int] = self._list("token_type", int)
        if len(self._types) != len(self._texts):
            raise self._bad("token_type", f"{len(self._types)} types for {len(self._texts)} tokens")
        self._plain = self._make_plain(self._list("merges", str))
        self._ids = {
            text: id for id, text in enumerate(self._texts) if self._types[id] in (CONTROL, USER_DEFINED) and text
        }
        self._markers = re.compile("|".join(map(re.escape, self.markers)) or r"(?!)")
        self._bytes: dict[int, bytes] = {}
        self.eos_id = self._id("eos_token_id")
        self.bos_id = self._id("bos_token_id")
        self.pad_id = self._id("padding_token_id")
        self.add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", False)) and self.bos_id is not None
        ends = {self._ids[text] for text in END_TEXTS if text in self._ids}
        self.end_ids = frozenset(ends if self.eos_id is None else ends | {self.eos_id})

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def markers(self) -> list[str]:
        """Texts of the control and user-defined tokens, longest first: it wins where two begin at one character."""
        return sorted(self._ids, key=len, reverse=True)

    def marker_id(self, text: str) -> int | None:
        """The id of a control or user-defined token, None when the vocabulary has none of this text."""
        return self._ids.get(text)

    def token_text(self, id: int) -> str:
        """The token as the file writes it (byte alphabet)."""
        return self._texts[self._known(id)]

    def is_marker(self, id: int) -> bool:
        """Whether the token is a control or user-defined one."""
        return self._types[self._known(id)] in (CONTROL, USER_DEFINED)

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        """Token ids; nothing is added in front or behind.

        special=True: texts of control and user-defined tokens (`<|im_end|>`, `<think>`) become those tokens.
        special=False: all text is plain, whatever it says.
        """
        string = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
        if not special:
            return self._encode_plain(string)
        ids: list[int] = []
        for piece, marker in self.cut(string):
            ids += self._encode_plain(piece) if marker is None else [marker]
        return ids

    def cut(self, text: str) -> Iterator[tuple[str, int | None]]:
        """The text cut at its markers: (marker, its id) and what lies between as (piece, None)."""
        start = 0
        for match in self._markers.finditer(text):
            if match.start() > start:
                yield text[start : match.start()], None
            yield match.group(), self._ids[match.group()]
            start = match.end()
        if start < len(text):
            yield text[start:], None

    def decode(self, ids: Iterable[int], *, special: bool = False, errors: str = "replace") -> str:
        """Text of the tokens. Control tokens give text only with special=True; unused and padding tokens never do.

        errors: what becomes of bytes that are no UTF-8: "replace" (U+FFFD) or "surrogateescape" (encode reverses it).
        """
        return self.decode_bytes(ids, special=special).decode("utf-8", errors)

    def decode_bytes(self, ids: Iterable[int], *, special: bool = False) -> bytes:
        return b"".join(self.token_bytes(id, special=special) for id in ids)

    def token_bytes(self, id: int, *, special: bool = False) -> bytes:
        """The bytes that one token stands for. Raises RequestError for an id outside the vocabulary."""
        kind = self._types[self._known(id)]
        if kind == CONTROL:
            return self._texts[id].encode("utf-8", "surrogateescape") if special else b""
        cached = self._bytes.get(id)
        if cached is None:
            cached = self._bytes[id] = _token_bytes(self._texts[id], kind)
        return cached

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        if _SURROGATE.search(text) is None:
            return self._plain.encode(text, add_special_tokens=False).ids
        return list(self._encode_broken(text))

    def _encode_broken(self, text: str) -> Iterator[int]:
        """Text with surrogate escapes: each passes the split as a private-use character that the text does not hold."""
        text = _NOT_A_BYTE.sub("\ufffd", text)
        used = set(text)
        base = next(
            base for base in range(0xF0000, 0x10FF00, 0x80) if used.isdisjoint(map(chr, range(base, base + 0x80)))
        )
        escaped = text.translate({0xDC80 + n: base + n for n in range(0x80)})
        stand_ins = {chr(base + n): _ALPHABET[0x80 + n] for n in range(0x80)}
        normal = normalizers.NFC().normalize_str(escaped)
        for piece, _ in pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated").pre_tokenize_str(normal):
            mapped = "".join(stand_ins.get(char) or _to_alphabet(char) for char in piece)
            for token in self._plain.model.tokenize(mapped):
                yield token.id

    def _make_plain(self, merges: list[str]) -> tokenizers.Tokenizer:
        """The tokenizer without added tokens: it can make none, whatever the text."""
        vocab: dict[str, int] = {}
        for id, (text, kind) in enumerate(zip(self._texts, self._types, strict=True)):
            if kind in (NORMAL, BYTE) and _SURROGATE.search(text) is None:
                vocab.setdefault(text, id)
        missing = [byte for byte, char in enumerate(_ALPHABET) if char not in vocab]
        if missing:
            raise self._bad(
                "tokens", f"no token for the single byte 0x{missing[0]:02x} ({len(missing)} of 256 are missing)"
            )
        pairs = []
        for index, merge in enumerate(merges):
            cut = merge.find(" ", 1)
            left, right = merge[:cut], merge[cut + 1 :]
            if cut < 0 or left not in vocab or right not in vocab or left + right not in vocab:
                raise self._bad("merges", f"merge {index} ({merge!r}) does not join two tokens into a third")
            pairs.append((left, right))
        plain = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=pairs))
        plain.normalizer = normalizers.NFC()
        plain.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        return plain

    def _check_kind(self) -> None:
        for key, supported, what in (
            ("model", "gpt2", "byte-level BPE"),
            ("pre", "qwen35", "the split of Qwen3.5, 3.6 and 3.8"),
        ):
            value = self._metadata.get(f"tokenizer.ggml.{key}")
            if value is None:
                raise self._bad(key, "the key is missing; the file has no tokenizer that can be used")
            if value != supported:
                where = f"{self._file or 'metadata'}: tokenizer.ggml.{key}"
                raise UnsupportedModelError(f"{where} is {value!r}; supported is {supported!r} ({what})")

    def _list(self, key: str, kind: type) -> list[Any]:
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            raise self._bad(key, "the key is missing")
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(type(item) is kind for item in value):
            raise self._bad(key, f"not a list of {'strings' if kind is str else 'integers'}")
        return list(value)

    def _id(self, key: str) -> int | None:
        value = self._metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < len(self._texts):
            raise self._bad(key, f"{value!r} is no token id (0 to {len(self._texts) - 1})")
        return value

    def _bad(self, key: str, what: str) -> GGUFError:
        field = f"tokenizer.ggml.{key}"
        return GGUFError(f"{self._file or 'metadata'}: {field}: {what}", file=self._file, field=field, offset=-1)

    def _known(self, id: int) -> int:
        if not 0 <= id < len(self._texts):
            raise RequestError(f"token id {id}: the vocabulary has ids 0 to {len(self._texts) - 1}")
        return id


class Detokenizer:
    """Text of a stream of tokens. Bytes that may still become a character are held back: no piece ends inside one."""

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that this token completes, possibly empty."""
        return self._decoder.decode(self._tokenizer.token_bytes(id, special=self._special))

    @property
    def pending(self) -> bool:
        """Whether bytes are held back."""
        return bool(self._decoder.getstate()[0])

    def finish(self) -> str:
        """What is left: an unfinished character as U+FFFD."""
        text = self._decoder.decode(b"", True)
        self._decoder.reset()
        return text


def _to_alphabet(char: str) -> str:
    return "".join(_ALPHABET[byte] for byte in char.encode("utf-8"))


def _token_bytes(text: str, kind: int) -> bytes:
    if kind == USER_DEFINED:
        return text.encode("utf-8", "surrogateescape")
    if kind not in (NORMAL, BYTE):
        return b""
    return b"".join(
        bytes([_BYTE_OF[char]]) if char in _BYTE_OF else char.encode("utf-8", "surrogateescape") for char in text
    )
