"""A DFlash or DFlash2 drafter's checkpoint (config.json, safetensors) as a GGUF file in llama.cpp's layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lucebox import _core, fingerprint
from lucebox.convert import safetensors, tokenizer
from lucebox.convert.safetensors import Tensor
from lucebox.errors import DrafterMismatchError, RequestError, UnsupportedModelError

ARCHITECTURES = {"DFlash2DraftModel": 2, "DFlashDraftModel": 1}
OUT_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}
"""And the general.file_type of each."""
MOST_INT = (1 << 31) - 1
MOST_BLOCK, MOST_CANDIDATES = 16, 16
"""What the engine's loader takes."""
ROPE_PLACES = ("rope_parameters", "rope_scaling")
Pair = tuple[str, str, Any]
Shapes = dict[str, tuple[str, tuple[int, ...]]]
"""Of each tensor in the checkpoint: its name in the GGUF file, and its shape."""


class Config:
    """config.json: a value lies in dflash_config or at the top, and is looked for there in this order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._top = safetensors.read_json(path)
        inner = self._top.get("dflash_config", {})
        self._places = (inner if isinstance(inner, dict) else {}, self._top)

    def find(self, key: str) -> Any:
        return next((place[key] for place in self._places if place.get(key) is not None), None)

    def need(self, key: str) -> Any:
        value = self.find(key)
        if value is None:
            raise self.error(
                f'has no "{key}", in dflash_config or at the top; it is never guessed, since a wrong one drafts nothing'
            )
        return value

    def integer(self, key: str, least: int = 1, most: int = MOST_INT) -> int:
        return self._integer(key, self.need(key), least, most)

    def integers(self, key: str, least: int = 0) -> list[int]:
        values = self.need(key)
        if not isinstance(values, list) or not values:
            raise self.error(f'"{key}" is {values!r}; a list of integers is wanted')
        return [self._integer(key, value, least) for value in values]

    def number(self, key: str, otherwise: float | None = None) -> float:
        value = self.need(key) if otherwise is None else self.find(key)
        return self._number(key, otherwise if value is None else value)

    def theta(self) -> float:
        """Of the rotary embedding: three places have been used for it."""
        for key in ROPE_PLACES:
            inner = self.find(key)
            if isinstance(inner, dict) and inner.get("rope_theta") is not None:
                return self._number("rope_theta", inner["rope_theta"])
        return self.number("rope_theta")

    def check_rope(self) -> None:
        """Raises UnsupportedModelError where positions are scaled, which the engine does not do."""
        for key in ROPE_PLACES:
            inner = self.find(key)
            for name in ("rope_type", "type"):
                kind = inner.get(name) if isinstance(inner, dict) else None
                if kind not in (None, "default", "none"):
                    raise UnsupportedModelError(
                        f'{self._path}: "{name}" of {key} is {kind!r}; only default (no scaling) is supported'
                    )

    def causal(self) -> bool | None:
        """None: the layers that slide are causal, the others are not."""
        inner, top = self._places
        value = top.get("is_causal") if top.get("is_causal") is not None else inner.get("causal")
        if value is not None and not isinstance(value, bool):
            raise self.error(f'"is_causal" is {value!r}; true or false is wanted')
        return value

    def error(self, text: str) -> RequestError:
        return RequestError(f"{self._path}: {text}")

    def _integer(self, key: str, value: Any, least: int, most: int = MOST_INT) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(f'"{key}" is {value!r}; an integer from {least} to {most} is wanted')
        return value

    def _number(self, key: str, value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
            raise self.error(f'"{key}" is {value!r}; a number above 0 is wanted')
        return float(value)


@dataclass(frozen=True)
class Drafter:
    keys: list[Pair]
    shapes: Shapes
    hidden: int
    vocab: int
    taps: list[int]
    mask: int


def read_config(path: Path) -> Drafter:
    """What the drafter is, from its config.json. Raises RequestError (missing or malformed) and UnsupportedModelError."""
    c = Config(path)
    names = c.find("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{path}: is a model of architecture {name!r}; drafters that can be converted are {', '.join(ARCHITECTURES)}"
        )
    version = ARCHITECTURES[name]
    hidden, layers, head_dim = c.integer("hidden_size"), c.integer("num_hidden_layers"), c.integer("head_dim")
    heads, kv_heads = c.integer("num_attention_heads"), c.integer("num_key_value_heads")
    taps = c.integers("target_layer_ids")
    if sorted(set(taps)) != taps:
        raise c.error(f'"target_layer_ids" is {taps}; ascending layers are wanted')
    if c.number("input_embedding_scale", 1.0) != 1:
        raise UnsupportedModelError(
            f"{path}: scales its embeddings (input_embedding_scale), for which llama.cpp's layout has no key"
        )
    c.check_rope()
    mask = c.integer("mask_token_id", 0)
    keys: list[Pair] = [
        ("dflash.block_count", "u32", layers),
        ("dflash.context_length", "u32", c.integer("max_position_embeddings")),
        ("dflash.embedding_length", "u32", hidden),
        ("dflash.feed_forward_length", "u32", c.integer("intermediate_size")),
        ("dflash.attention.head_count", "u32", heads),
        ("dflash.attention.head_count_kv", "u32", kv_heads),
        ("dflash.attention.key_length", "u32", head_dim),
        ("dflash.attention.value_length", "u32", head_dim),
        ("dflash.attention.layer_norm_rms_epsilon", "f32", c.number("rms_norm_eps")),
        ("dflash.rope.freq_base", "f32", c.theta()),
        ("dflash.rope.dimension_sections", "i32[]", [head_dim // 2, 0, 0, 0]),
        ("dflash.block_size", "u32", c.integer("block_size", 2, MOST_BLOCK)),
        ("dflash.target_layers", "i32[]", [tap + 1 for tap in taps]),  # the layers whose inputs these outputs are
        *_optional_keys(c, version, layers),
        ("tokenizer.ggml.mask_token_id", "u32", mask),
    ]
    return Drafter(keys, _shapes(c, version, len(taps)), hidden, c.integer("vocab_size"), taps, mask)


def _optional_keys(c: Config, version: int, layers: int) -> list[Pair]:
    """Windows, order of sight, and what DFlash2 adds."""
    keys: list[Pair] = []
    slides = _layer_types(c, layers)
    causal = c.causal()
    if causal is not None:
        keys.append(("dflash.attention.causal", "bool", causal))
    if any(slides):
        keys.append(("dflash.attention.sliding_window", "u32", c.integer("sliding_window")))
        keys.append(("dflash.attention.sliding_window_pattern", "bool[]", slides))
    if version == 2:
        keys += [
            (f"dflash.{key}", "u32", c.integer(key)) for key in ("conv_kernel_size", "conv_group_size", "selector_rank")
        ]
        keys.append(("dflash.selector_top_k", "u32", c.integer("selector_top_k", 1, MOST_CANDIDATES)))
    for key, name in (("logit_scale", "output_multiplier"), ("final_logit_softcapping", "final_logit_softcapping")):
        if c.find(name) is not None:
            keys.append((f"dflash.{key}", "f32", c.number(name)))
    return keys


def _layer_types(c: Config, layers: int) -> list[bool]:
    """Whether each layer slides."""
    types = c.need("layer_types")
    if not isinstance(types, list) or len(types) != layers or not set(types) <= {"sliding_attention", "full_attention"}:
        raise c.error(f'"layer_types" is {types!r}; {layers} of sliding_attention and full_attention are wanted')
    return [type == "sliding_attention" for type in types]


def _shapes(c: Config, version: int, taps: int) -> Shapes:
    hidden, ff, vocab = c.integer("hidden_size"), c.integer("intermediate_size"), c.integer("vocab_size")
    head_dim = c.integer("head_dim")
    query, kv = c.integer("num_attention_heads") * head_dim, c.integer("num_key_value_heads") * head_dim
    found: Shapes = {
        "fc.weight": ("fc.weight", (hidden, taps * hidden)),
        "hidden_norm.weight": ("enc.output_norm.weight", (hidden,)),
        "norm.weight": ("output_norm.weight", (hidden,)),
    }
    layer: Shapes = {
        "input_layernorm.weight": ("attn_norm.weight", (hidden,)),
        "post_attention_layernorm.weight": ("ffn_norm.weight", (hidden,)),
        "self_attn.q_norm.weight": ("attn_q_norm.weight", (head_dim,)),
        "self_attn.k_norm.weight": ("attn_k_norm.weight", (head_dim,)),
        "self_attn.q_proj.weight": ("attn_q.weight", (query, hidden)),
        "self_attn.k_proj.weight": ("attn_k.weight", (kv, hidden)),
        "self_attn.v_proj.weight": ("attn_v.weight", (kv, hidden)),
        "self_attn.o_proj.weight": ("attn_output.weight", (hidden, query)),
        "mlp.gate_proj.weight": ("ffn_gate.weight", (ff, hidden)),
        "mlp.up_proj.weight": ("ffn_up.weight", (ff, hidden)),
        "mlp.down_proj.weight": ("ffn_down.weight", (hidden, ff)),
    }
    if version == 2:
        taps_a_kernel, group, rank = (
            c.integer("conv_kernel_size"),
            c.integer("conv_group_size"),
            c.integer("selector_rank"),
        )
        if hidden % group:
            raise c.error(f'"conv_group_size" is {group}; it has to divide the hidden size {hidden}')
        for ours, theirs in (("attn_conv", "attention_conv"), ("ffn_conv", "mlp_conv")):
            layer[f"{theirs}.base_kernel"] = (f"{ours}_base", (2, taps_a_kernel, hidden))
            layer[f"{theirs}.kernel_projection.weight"] = (
                f"{ours}_proj.weight",
                (2 * taps_a_kernel * hidden // group, hidden),
            )
        for part in ("predecessor", "successor"):
            found[f"candidate_selector.{part}_codebook"] = (f"selector_{part}.weight", (vocab, rank))
        found["candidate_selector.hidden_projection.weight"] = ("selector_hidden.weight", (rank, hidden))
    for i in range(c.integer("num_hidden_layers")):
        found.update({f"layers.{i}.{theirs}": (f"blk.{i}.{ours}", shape) for theirs, (ours, shape) in layer.items()})
    return found


def check_tensors(drafter: Drafter, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The drafter's tensors under the names of its shapes.

    Raises for one that is missing or of another shape, and for one that other kinds of drafters have.
    """
    named = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    for part in ("predecessor", "successor"):  # some copies add an ending
        full = f"candidate_selector.{part}_codebook"
        if full + ".weight" in named:
            named[full] = named.pop(full + ".weight")
    missing = [name for name in drafter.shapes if name not in named]
    if missing:
        raise RequestError(
            f"the checkpoint lacks {len(missing)} of {len(drafter.shapes)} tensors, the first is {missing[0]}"
        )
    other = sorted(set(named) - set(drafter.shapes))
    if other:
        raise UnsupportedModelError(
            f"tensor {other[0]} is no part of a DFlash drafter; drafters with heads, embeddings or tables of their own are not supported"
        )
    for name, (_, shape) in drafter.shapes.items():
        if named[name].shape != shape:
            raise RequestError(f"{name} is {list(named[name].shape)}; config.json makes it {list(shape)}")
    return named


def check_target(drafter: Drafter, target: _core.GGUFFile) -> None:
    """Raises DrafterMismatchError with both values where the drafter cannot be this target's."""
    info = _core.ModelInfo(target)
    for what, mine, theirs in (("hidden size", drafter.hidden, info.hidden), ("vocabulary", drafter.vocab, info.vocab)):
        if mine != theirs:
            raise DrafterMismatchError(
                f"{target.path}: the drafter is for a target of {what} {mine}, and this one has {theirs}"
            )
    if drafter.taps[-1] >= info.layers:
        raise DrafterMismatchError(
            f"{target.path}: the drafter sees the output of layer {drafter.taps[-1]}, and this target has layers 0 to {info.layers - 1}"
        )


def convert(
    folder: Path,
    out: Path,
    *,
    target: Path | None,
    vocabulary: Path | None,
    outtype: str,
    name: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Writes the GGUF file, whole or not at all.

    target: the GGUF file of the model that it drafts for; or vocabulary: that model's tokenizer.json, which leaves the
    target unchecked. outtype: of the matrices, "auto" = as in the checkpoint; norms and bases of convolutions are f32.
    """
    drafter = read_config(folder / "config.json")
    tensors = check_tensors(drafter, safetensors.read(folder))
    if outtype not in (*OUT_TYPES, "auto"):
        raise RequestError(f"outtype {outtype!r}; known are auto, {', '.join(OUT_TYPES)}")
    if drafter.mask >= drafter.vocab:
        raise RequestError(f"mask_token_id is {drafter.mask}, and the vocabulary has {drafter.vocab} tokens")
    words = _tokenizer(drafter, target, vocabulary)
    types = {
        theirs: _type(tensors[theirs], len(shape), ours, outtype) for theirs, (ours, shape) in drafter.shapes.items()
    }
    metadata: list[Pair] = [
        ("general.architecture", "str", "dflash"),
        ("general.type", "str", "model"),
        ("general.name", "str", name or folder.resolve().name),
        ("general.file_type", "u32", OUT_TYPES[types["fc.weight"]]),
        ("general.quantization_version", "u32", 2),
        *words,
        *drafter.keys,
    ]
    infos = [(ours, types[theirs], list(shape[::-1])) for theirs, (ours, shape) in drafter.shapes.items()]
    with _core.GGUFWriter(str(out), metadata, infos) as writer:
        for done, theirs in enumerate(drafter.shapes):
            if progress:
                progress(done / len(drafter.shapes))
            writer.add(_encoded(tensors[theirs], types[theirs]))
        writer.finish()


def _tokenizer(drafter: Drafter, target: Path | None, vocabulary: Path | None) -> list[Pair]:
    """The target's tokenizer, and which target it is where its file is known."""
    if vocabulary is not None:
        return tokenizer.read(vocabulary, drafter.vocab)
    if target is None:
        raise RequestError("the target's GGUF file, or its tokenizer, is needed")
    file = _core.GGUFFile(str(target))
    check_target(drafter, file)
    own = "tokenizer.ggml.mask_token_id"
    words = [(k, file.value_types[k], v) for k, v in file.metadata.items() if k.startswith("tokenizer.") and k != own]
    return [*words, (fingerprint.KEY, "str", fingerprint.fingerprint(file))]


def _type(tensor: Tensor, dimensions: int, name: str, outtype: str) -> str:
    if tensor.type not in safetensors.TYPES:
        raise RequestError(
            f"{tensor.name} has values of type {tensor.type}; weights are {', '.join(safetensors.TYPES)}"
        )
    if dimensions == 1 or name.endswith("_conv_base"):
        return "f32"
    return safetensors.TYPES[tensor.type] if outtype == "auto" else outtype


def _encoded(tensor: Tensor, type: str) -> npt.NDArray[np.uint8]:
    if type == safetensors.TYPES[tensor.type]:
        return tensor.data
    values = tensor.values().reshape(-1, tensor.shape[-1])
    if not np.isfinite(values).all():
        raise RequestError(f"{tensor.name} holds values that are no finite numbers")
    if type == "f16" and np.abs(values).max() > 65504:
        raise RequestError(f"{tensor.name} holds values beyond the range of f16; use --outtype bf16 or f32")
    return _core.quantize(type, values).reshape(-1)
