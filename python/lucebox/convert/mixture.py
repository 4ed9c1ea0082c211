"""Which tensor gets which type when a model is quantised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lucebox import _core
from lucebox.errors import RequestError, UnsupportedModelError

FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2, "q4_K": 15, "q6_K": 18, "iq4_xs": 30}
"""Types that can be made, with the general.file_type of each."""
TARGETS = ("qwen35",)
DRAFTERS = ("dflash", "qwen35-dflash-draft", "dflash-draft", "gemma4-dflash-draft")
_BLOCKS = {name: block for _, name, block, _, _ in _core.tensor_types()}
_FOUR_BITS = ("q4_0", "q4_K", "iq4_xs")


@dataclass(frozen=True)
class Wishes:
    """base: of most matrices. pure: of all of them. overrides: (pattern, type), a pattern being looked for in the tensor's name."""

    base: str
    pure: bool = False
    overrides: Sequence[tuple[str, str]] = ()
    output: str | None = None
    embedding: str | None = None


@dataclass(frozen=True)
class Choice:
    tensor: _core.TensorInfo
    type: str
    fallback: bool
    """The rows' length is no multiple of the block of the type that was meant."""


def type_named(text: str) -> str:
    """The name as the table has it. Raises RequestError for a type that cannot be made."""
    found = next((name for name in FILE_TYPES if name.lower() == text.lower()), None)
    if found is None:
        raise RequestError(f"type {text!r}: types that can be made are {', '.join(FILE_TYPES)}")
    return found


def choose(file: _core.GGUFFile, wishes: Wishes) -> list[Choice]:
    """A type for each tensor, in file order. Raises RequestError and UnsupportedModelError."""
    architecture = str(file.metadata.get("general.architecture"))
    if architecture not in (*TARGETS, *DRAFTERS):
        raise UnsupportedModelError(
            f"{file.path}: is of architecture {architecture!r}; {', '.join((*TARGETS, *DRAFTERS))} can be quantised"
        )
    names = [tensor.name for tensor in file.tensors]
    layers = 1 + max((int(m[1]) for m in (re.match(r"blk\.(\d+)\.", name) for name in names) if m), default=0)
    head = "output.weight" if "output.weight" in names else "token_embd.weight"
    matrices = [tensor.name for tensor in file.tensors if is_matrix(tensor)]
    patterns = [(_compiled(pattern, matrices), type) for pattern, type in wishes.overrides]
    return [_choice(tensor, wishes, patterns, architecture in DRAFTERS, head, layers) for tensor in file.tensors]


def is_matrix(tensor: _core.TensorInfo) -> bool:
    """Whether it is multiplied with: norms, vectors and the kernels of convolutions are not."""
    role = tensor.name.removesuffix(".weight").split(".")[-1]
    return len(tensor.dims) == 2 and tensor.name.endswith(".weight") and "norm" not in role and "conv1d" not in role


def _compiled(pattern: str, names: list[str]) -> re.Pattern[str]:
    try:
        found = re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise RequestError(f"--tensor-type {pattern}: is no regular expression ({error})") from None
    if not any(found.search(name) for name in names):
        raise RequestError(f"--tensor-type {pattern}: no matrix of the file has such a name")
    return found


def _choice(
    tensor: _core.TensorInfo,
    wishes: Wishes,
    patterns: list[tuple[re.Pattern[str], str]],
    drafter: bool,
    head: str,
    layers: int,
) -> Choice:
    if not is_matrix(tensor):
        return Choice(tensor, "f32" if tensor.type in ("f32", "f16", "bf16") else tensor.type, False)
    asked = next((type for pattern, type in reversed(patterns) if pattern.search(tensor.name)), None)
    if asked is None and tensor.name == "output.weight":
        asked = wishes.output
    if asked is None and tensor.name == "token_embd.weight":
        asked = wishes.embedding or (wishes.output if head == tensor.name else None)
    columns = tensor.dims[0]
    if asked is not None:
        if columns % _BLOCKS[asked]:
            raise RequestError(
                f"{tensor.name} has rows of {columns} values; type {asked} needs a multiple of {_BLOCKS[asked]}"
            )
        return Choice(tensor, asked, False)
    meant = wishes.base if wishes.pure else _mixed(tensor.name, wishes.base, drafter, head, layers)
    type = next(t for t in (meant, "q8_0", "f16") if columns % _BLOCKS[t] == 0)
    return Choice(tensor, type, type != meant)


def _mixed(name: str, base: str, drafter: bool, head: str, layers: int) -> str:
    """Small or sensitive matrices get more bits (docs/cli.md, "quantize")."""
    if base not in _FOUR_BITS:
        return base
    role = name.removesuffix(".weight").split(".")[-1]
    if role in ("ssm_alpha", "ssm_beta", "attn_conv_proj", "ffn_conv_proj", "selector_hidden", "hidden"):
        return "q8_0"
    if drafter:
        return base
    if name == head or role == "attn_v" or base == "q4_K" and role == "ssm_out":
        return "q6_K"
    block = re.match(r"blk\.(\d+)\.", name)
    if role == "ffn_down" and block:
        layer, eighth = int(block[1]), layers // 8
        edge = layer < eighth or base == "q4_K" and (layer >= layers - eighth or (layer - eighth) % 3 == 2)
        return "q6_K" if edge else base
    return base
