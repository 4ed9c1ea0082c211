"""The compiled extension: GGUF files, block formats, the engine. Errors are those of lucebox.errors."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

Metadata = dict[str, Any]

def cpu_features() -> dict[str, bool]:
    """What the kernels may use on this machine: avx2, fma, f16c, avx512 (f, bw, vl, dq), avx512_vnni, avx512_vbmi."""

def variants() -> list[str]:
    """CPU kernel variants that this build has and this machine runs, the slowest first: portable, avx2, avx512."""

class TensorInfo:
    name: str
    type: str
    dims: list[int]
    offset: int
    nbytes: int
    part: int

class GGUFFile:
    """A GGUF file (the first part opens the whole split), mapped read-only. Raises GGUFError."""

    path: str
    parts: list[str]
    version: int
    alignment: int
    nbytes: int
    metadata: Metadata
    """Keys in file order. Integers, floats, bools, str (invalid UTF-8 as surrogate escapes), lists of these."""
    value_types: dict[str, str]
    """Of each key the type as write_gguf takes it."""
    tensors: list[TensorInfo]
    def __init__(self, path: str) -> None: ...
    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's bytes [nbytes], read-only and mapped."""

def write_gguf(
    path: str,
    metadata: Sequence[tuple[str, str, Any]],
    tensors: Sequence[tuple[str, str, Sequence[int], npt.NDArray[np.uint8]]],
    alignment: int = 32,
) -> None:
    """Writes a version-3 file atomically (a temporary file beside it, then a rename).

    metadata: (key, type, value), type one of u8 i8 u16 i16 u32 i32 f32 bool str u64 i64 f64, or one with [] (an array).
    tensors: (name, type as TensorInfo.type, dims as in the file, bytes).
    """

class GGUFWriter:
    """The same, tensor by tensor: the arguments are those of write_gguf, tensors without their bytes.

    The file appears under its name with finish() and not before; a `with` block that ends without it leaves nothing.
    """

    def __init__(
        self,
        path: str,
        metadata: Sequence[tuple[str, str, Any]],
        tensors: Sequence[tuple[str, str, Sequence[int]]],
        alignment: int = 32,
    ) -> None: ...
    def add(self, data: npt.NDArray[np.uint8]) -> None:
        """The bytes of the next tensor, all of them."""
    def finish(self) -> None: ...
    def __enter__(self) -> GGUFWriter: ...
    def __exit__(self, *error: object) -> None: ...

def tensor_types() -> list[tuple[int, str, int, int, bool]]:
    """(id, name, values a block, bytes a block, usable as a matrix) of every ggml type."""

def dequantize(type: str, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """All values of whole blocks, flat."""

def quantize(
    type: str, x: npt.NDArray[np.float32], importance: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.uint8]:
    """x [rows, columns] as block bytes [rows, row_bytes]; importance [columns].

    Types: f32 f16 bf16 q8_0 q4_0 q4_K q6_K iq4_xs.
    """

class ModelInfo:
    """What a GGUF file of a supported architecture says of its model. Raises GGUFError or UnsupportedModelError."""

    architecture: str
    vocab: int
    hidden: int
    layers: int
    context_length: int
    mtp: Literal["none", "present", "announced but absent"]
    recurrent: list[bool]
    def __init__(self, file: GGUFFile) -> None: ...

class PlanEntry:
    name: str
    nbytes: int
    kind: Literal["mapped", "allocated"]

def plan(
    file: GGUFFile,
    *,
    max_ctx: int,
    kv: str = "q8_0",
    slots: int = 1,
    max_rows: int = 128,
    device: str = "cpu",
    variant: str = "auto",
    launch: str = "auto",
    threads: int = 0,
    kernels: str = "",
    draft: GGUFFile | None = None,
    draft_block_size: int = 0,
) -> list[PlanEntry]:
    """Every buffer the engine would take, before anything is allocated; needs no GPU."""

class Engine:
    """A loaded model with `slots` sequences. One call at a time; a call releases the GIL.

    device: "cpu", "emulated", "hip:0", "cuda:0". variant: "auto" (the fastest of variants()) or one of variants(); on "emulated" the chip.
    launch: "auto", "graph", "split" or "direct", on a GPU. threads: 0 = one a physical core. kernels: the folder of the GPU kernels.
    draft: a DFlash drafter for the model; draft_block_size: rows of its blocks, the anchor included, 0 = as trained.
    progress: called with 0..1 while weights are prepared; an exception it raises stops the load.
    Raises DrafterMismatchError, GGUFError, UnsupportedModelError, OutOfMemoryError, RequestError.
    """

    info: ModelInfo
    device: str
    launch: str
    variant: str
    threads: int
    max_ctx: int
    kv: str
    slots: int
    max_rows: int
    draft_block_size: int
    """0 without a drafter."""
    mended_taps: int
    """Values of the target's layers that the drafter got in another form, being no numbers or beyond 65,504."""
    def __init__(
        self,
        file: GGUFFile,
        *,
        max_ctx: int,
        kv: str = "q8_0",
        slots: int = 1,
        max_rows: int = 128,
        device: str = "cpu",
        variant: str = "auto",
        launch: str = "auto",
        threads: int = 0,
        kernels: str = "",
        draft: GGUFFile | None = None,
        draft_block_size: int = 0,
        progress: Callable[[float], None] | None = None,
    ) -> None: ...
    def allocated(self) -> list[PlanEntry]: ...
    def length(self, slot: int) -> int:
        """Tokens the slot's state holds."""
    def reset(self, slot: int) -> None: ...
    @overload
    def forward(
        self, batch: Sequence[tuple[int, Sequence[int]]], logits: Literal["all", "last"] = "last"
    ) -> npt.NDArray[np.float32]:
        """Appends tokens to slots: batch = [(slot, ids), …], each slot at most once, each with at least one id.

        Long inputs are cut into calls of max_rows rows. Results by `logits`: "all" f32 [tokens, vocab] in batch order,
        "last" f32 [len(batch), vocab], "argmax" i32 [len(batch)] of the last rows (value, then smaller id), "none".
        Raises ContextFullError (nothing was appended), RequestError (unknown id or slot), DeviceError (NaN; the layer).
        """
    @overload
    def forward(
        self, batch: Sequence[tuple[int, Sequence[int]]], logits: Literal["argmax"]
    ) -> npt.NDArray[np.int32]: ...
    @overload
    def forward(self, batch: Sequence[tuple[int, Sequence[int]]], logits: Literal["none"]) -> None: ...
    def hidden(self, ids: Sequence[int], layers: Sequence[int]) -> npt.NDArray[np.float32]:
        """Residual stream after the given layers, f32 [len(layers), tokens, hidden], of a fresh sequence.

        Keeps no state; slot 0 must be empty.
        """

    free_pages: int
    """KV pages of 256 tokens that no slot holds."""
    def begin(self, slot: int, params: SequenceParams, prompt_ids: Sequence[int]) -> None:
        """A new sequence in the slot; steps feed its prompt. Raises RequestError."""
    def step(self, work: Sequence[StepWork]) -> list[StepResult]:
        """One forward over all work, at most max_rows rows, each slot once; results in the same order.

        Raises RequestError and ContextFullError before any work, DeviceError (the slots of the call are empty then).
        """
    def propose(self, slots_and_limits: Sequence[tuple[int, int]]) -> list[Proposal]:
        """What a step would draft for (slot, limit), for those who need to know it before: masks go row by row."""
    def rows_needed(self, slot: int, limit: int) -> int:
        """Rows that a decode of the slot with this limit takes at most."""

class SequenceParams:
    """How a sequence is sampled, judged and ended. Raises RequestError at `begin` for values out of range.

    temperature 0 = greedy; top_k 0, top_p 1, min_p 0 = off; seed and choice: of the random numbers.
    repetition_penalty (of prompt and output), presence_penalty, frequency_penalty (of the output), logit_bias {id: bias}.
    end_ids: nothing is emitted behind one of them. min_tokens: output before which no end id may come.
    logprobs: -1 none, else the token's and so many best ones'. speculative: "match" (the text of plain decoding),
    "reject" (the law of plain decoding), "off". lookup: draft from the sequence's own history. adaptive: verify
    as many drafts as pay, and pause a drafter that does not; not with "reject" and a temperature. draft_width: rows of a
    block, 0 = the engine's. selector: "walk", "best-first" or "reach" (docs/speculation.md).
    """

    def __init__(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        choice: int = 0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: dict[int, float] = ...,
        end_ids: Sequence[int] = (),
        min_tokens: int = 0,
        logprobs: int = -1,
        speculative: str = "match",
        lookup: bool = True,
        adaptive: bool = True,
        draft_width: int = 0,
        selector: str = "walk",
    ) -> None: ...

class StepWork:
    """A slot's part of a step.

    ids: a chunk of the prompt, `emit` with its last one; without ids a decode, of at most `limit` tokens. draft: proposed
    in place of the engine's own proposal. masks: u32 [rows, (vocab + 31) // 32], bits of the tokens that are allowed
    next, and after each drafted token. look: judge only, the sequence stays as it is. logits: give the rows' logits.
    """

    def __init__(
        self,
        slot: int,
        ids: Sequence[int] = (),
        *,
        emit: bool = False,
        limit: int = 1,
        draft: Sequence[int] | None = None,
        masks: npt.NDArray[np.uint32] | None = None,
        look: bool = False,
        logits: bool = False,
    ) -> None: ...

class Proposal:
    ids: list[int]
    confidence: list[float]
    """Of each id, by the drafter; empty where it has none."""
    candidates: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    """[ids, k]: what the drafter chose each id from, and their scores behind the id before; k is 0 where it was not asked."""
    source: Literal["none", "lookup", "drafter", "drafter+lookup", "given"]

class StepResult:
    slot: int
    error: str
    """Not empty: this sequence could not go on (nothing is left to choose) and has ended."""
    token_ids: list[int]
    drafted: int
    accepted: int
    source: Literal["none", "lookup", "drafter", "drafter+lookup", "given"]
    logprobs: list[tuple[float, list[tuple[int, float]]]]
    """One a token, where asked for: its own, and the best ones'."""
    logits: npt.NDArray[np.float32] | None
    """[tokens, vocab], where asked for."""
    draft_ms: float
    verify_ms: float
    """Of the whole step."""

class SamplingParams:
    """temperature 0 = greedy. top_k 0, top_p 1, min_p 0 = off. Raises RequestError for values out of range."""

    def __init__(
        self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, seed: int = 0
    ) -> None: ...

def sample(logits: npt.NDArray[np.float32], params: SamplingParams, position: int, choice: int = 0) -> int:
    """One token id by docs/numerics.md, "Sampling": a pure function of its arguments."""

def gpu_probes() -> list[dict[str, Any]]:
    """For "hip" and "cuda": vendor, library ("" if none was found), devices (names), problem ("" if all is well)."""
