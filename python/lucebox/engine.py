"""A loaded model: requests in, text or logits out."""

from __future__ import annotations

import math
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lucebox import _core, devices, fingerprint, sampling
from lucebox.chat import Chat
from lucebox.errors import ContextFullError, RequestError
from lucebox.generation import Generation
from lucebox.sampling import RequestOptions
from lucebox.speculation import DraftedSequence
from lucebox.streams import ReasoningSplitter
from lucebox.tokenizer import Tokenizer

_NANO = Path(__file__).parent / "models" / "nano"
BUNDLED = {"nano": _NANO / "nano-IQ4_XS.gguf"}
BUNDLED_DRAFTERS = {"nano": _NANO / "nano-dflash2-Q4_0.gguf"}
DEFAULT_MAX_CTX = 8192
KV_TYPES = ("q8_0", "f16", "f32")

TextPrompt = str | bytes
Messages = Sequence[Mapping[str, Any]]


def model_path(name: str | os.PathLike[str]) -> str:
    """The file of a bundled model's name; anything else is a path already."""
    path = os.fspath(name)
    return str(BUNDLED.get(path, path))


def draft_path(name: str | os.PathLike[str]) -> str:
    """The file of a bundled drafter's name; anything else is a path already."""
    path = os.fspath(name)
    return str(BUNDLED_DRAFTERS.get(path, path))


def default_max_ctx(context_length: int) -> int:
    """Tokens of context when none are asked for: what the model was made for, but at most 8192."""
    return min(context_length, DEFAULT_MAX_CTX)


def load(
    path: str | os.PathLike[str],
    *,
    draft: str | os.PathLike[str] | None = None,
    draft_block_size: int | None = None,
    device: str = "auto",
    max_ctx: int | None = None,
    kv: str = "q8_0",
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
    variant: str = "auto",
    launch: str = "auto",
    slots: int = 1,
) -> Engine:
    """Load a GGUF file, or the bundled model under its name "nano".

    draft: a DFlash drafter's GGUF file for this model, or "nano". draft_block_size: rows of its blocks, the token that
    they follow included; as trained when not given, at most twice that.
    device: "auto" (a GPU that this build has kernels for, else the CPU), "cpu", "hip:0", "cuda:0" or "emulated".
    max_ctx: tokens that prompt and reply may take together; the file's context_length, but at most 8192, when not given.
    kv: "q8_0", "f16" or "f32". threads: None = LUCEBOX_THREADS or one a physical core.
    progress: called with 0 to 1. variant: "auto" or one of `lucebox doctor`'s list; of the CPU's kernels, or the emulator's chip.
    launch: of a GPU's steps: "auto", "graph", "split" or "direct". slots: sequences that `serve` runs at once.
    Raises GGUFError, UnsupportedModelError, DrafterMismatchError, OutOfMemoryError, DeviceError, RequestError.
    """
    options = devices.options(device, variant=variant, launch=launch, threads=threads)
    if kv not in KV_TYPES:
        raise RequestError(f"kv: {kv!r}; known are {', '.join(KV_TYPES)}")
    file = _core.GGUFFile(model_path(path))
    info = _core.ModelInfo(file)
    tokenizer = Tokenizer(file.metadata, file=file.path)
    if draft is None and draft_block_size is not None:
        raise RequestError(f"draft_block_size: {draft_block_size}, and no drafter was given")
    numbers = {"max_ctx": max_ctx, "threads": threads, "draft_block_size": draft_block_size, "slots": slots}
    for name, number in numbers.items():
        least = 0 if name == "threads" else 1
        if number is not None and not (isinstance(number, int) and least <= number < 1 << 31):
            raise RequestError(f"{name}: {number!r}; an integer of at least {least} was expected")
    drafter = None if draft is None else _core.GGUFFile(draft_path(draft))
    if drafter is not None:
        fingerprint.check(drafter, file)

    def open_core(progress: Callable[[float], None] | None) -> _core.Engine:
        return _core.Engine(
            file,
            max_ctx=default_max_ctx(info.context_length) if max_ctx is None else max_ctx,
            kv=kv,
            slots=slots,
            draft=drafter,
            draft_block_size=draft_block_size or 0,
            progress=progress,
            **options,
        )

    return Engine(open_core(progress), file, tokenizer, open_core)


class Lease:
    """The compiled engine in the hands of someone who runs its steps. Made by `Engine.lend`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def core(self) -> _core.Engine:
        return self._engine._open()

    def reopen(self) -> _core.Engine:
        """Loads the model anew, after a fault. What the old one held is freed first; drop it before."""
        return self._engine._reopen()


class Engine:
    """Made by `load`. One request at a time; calls from several threads are refused, not mixed."""

    def __init__(
        self,
        core: _core.Engine,
        file: _core.GGUFFile,
        tokenizer: Tokenizer,
        open_core: Callable[[Callable[[float], None] | None], _core.Engine],
    ) -> None:
        """open_core: loads the compiled engine once more, with a callback for the progress."""
        self.name = next((name for name, path in BUNDLED.items() if str(path) == file.path), Path(file.path).stem)
        self.nbytes = file.nbytes
        self.parameters = sum(math.prod(tensor.dims) for tensor in file.tensors)
        self._open_core = open_core
        self.info = core.info
        self.path = file.path
        self.metadata: Mapping[str, Any] = file.metadata
        self.tokenizer = tokenizer
        self.chat = Chat(file.metadata, tokenizer)
        self.max_ctx = core.max_ctx
        self.kv = core.kv
        self.device = core.device
        self.launch = core.launch
        self.variant = core.variant
        self.threads = core.threads
        self.draft_block_size = core.draft_block_size
        """Rows of a drafted block, 0 without a drafter."""
        self._core: _core.Engine | None = core
        self._slot = threading.Lock()
        self._active: weakref.ref[Generation | DraftedSequence] | None = None

    def generate(
        self,
        prompt: TextPrompt | Sequence[int] | Messages,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        ignore_eos: bool = False,
        speculative: str = "match",
        lookup: bool = True,
        adaptive: bool = True,
        draft_width: int = 0,
        selector: str = "walk",
        special: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        reasoning_effort: str | None = None,
        template_args: Mapping[str, Any] | None = None,
    ) -> Generation:
        """An iterator over the pieces of the reply, greedy unless a temperature is given.

        prompt: text, token ids, or chat messages (mappings with `role` and `content`), which go through the file's
        template. special: whether texts of control tokens in a text prompt become those tokens. tools, thinking,
        reasoning_effort, template_args: for messages only. The other options are those of RequestOptions.
        Prompt and reply together take at most max_ctx tokens.
        Raises RequestError, or ContextFullError for a prompt that leaves no room, before any work.
        """
        options = RequestOptions(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            logit_bias={} if logit_bias is None else logit_bias,
            seed=seed,
            max_tokens=max_tokens,
            stop=_stops(stop),
            ignore_eos=ignore_eos,
            speculative=speculative,
            lookup=lookup,
            adaptive=adaptive,
            draft_width=draft_width,
            selector=selector,
        )
        core = self._open()
        splitter = None
        if _is_messages(prompt):
            if not special:
                raise RequestError("special: for text prompts only; texts in messages are always plain")
            made = self.chat.encode(
                prompt,  # type: ignore[arg-type]
                tools=tools,
                thinking=thinking,
                reasoning_effort=reasoning_effort,
                template_args=template_args,
            )
            ids = made.ids
            by_text = self.tokenizer.marker_id(ReasoningSplitter.CLOSE) is None
            splitter = ReasoningSplitter(inside=made.thinking, by_text=by_text)
        else:
            for name, value in (("tools", tools), ("thinking", thinking), ("reasoning_effort", reasoning_effort)):
                if value is not None:
                    raise RequestError(f"{name}: for messages only")
            if template_args is not None:
                raise RequestError("template_args: for messages only")
            ids = self._ids(prompt, special)  # type: ignore[arg-type]
        self._check_ids(ids, reply=0 if options.max_tokens == 0 else 1)
        release = self._claim()
        try:
            core.reset(0)
            generation = Generation(core, self.tokenizer, ids, options, splitter=splitter, release=release)
            self._active = weakref.ref(generation)
            return generation
        except BaseException:
            release()
            raise

    def sequence(self, prompt: TextPrompt | Sequence[int], **options: Any) -> DraftedSequence:
        """A sequence for `lucebox.draft` and `lucebox.verify`: the prompt has run, and its first token is there.

        options: those of RequestOptions but max_tokens and stop, which the caller decides. The engine takes no other
        request until the sequence is closed. Raises as `generate`.
        """
        known = {field.name for field in fields(RequestOptions)} - {"max_tokens", "stop"}
        for name in options:
            if name not in known:
                raise RequestError(f"{name}: a sequence has no such option; known are {', '.join(sorted(known))}")
        request = RequestOptions(**options)
        core = self._open()
        ids = self._ids(prompt, special=True)
        self._check_ids(ids, reply=1)
        release = self._claim()
        try:
            seed = secrets.randbits(64) if request.seed is None else request.seed
            sequence = DraftedSequence(core, ids, request.params(end_ids=self.tokenizer.end_ids, seed=seed), release)
            self._active = weakref.ref(sequence)
            return sequence
        except BaseException:
            release()
            raise

    def forward(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits [len(ids), vocab] of a fresh sequence; nothing of it is kept. Raises as `generate`."""
        core = self._open()
        ids = self._ids(ids, special=True)
        self._check_ids(ids, reply=0)
        release = self._claim()
        try:
            core.reset(0)
            return core.forward([(0, ids)], "all")
        finally:
            core.reset(0)
            release()

    def sampling_defaults(self, *, thinking: bool = True) -> dict[str, Any]:
        """Keyword arguments for `generate` as the model's makers advise them for chats."""
        return sampling.defaults(self.metadata, thinking=thinking)

    def plan(self) -> list[_core.PlanEntry]:
        """Every buffer that the engine holds."""
        return self._open().allocated()

    def close(self) -> None:
        """Frees the model, and ends what is running on it. Any later call raises RequestError."""
        active = None if self._active is None else self._active()
        if active is not None:
            active.close()
        self._core = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def lend(self) -> Iterator[Lease]:
        """The compiled engine for a scheduler; until the context ends every other call is refused."""
        self._open()
        release = self._claim()
        try:
            yield Lease(self)
        finally:
            if self._core is not None:
                for slot in range(self._core.slots):
                    self._core.reset(slot)
            release()

    def _reopen(self) -> _core.Engine:
        self._core = None
        self._core = self._open_core(None)
        return self._core

    def _open(self) -> _core.Engine:
        if self._core is None:
            raise RequestError("the engine is closed")
        return self._core

    def _claim(self) -> Callable[[], None]:
        """Takes the engine; returns what gives it back, once however often it is called."""
        if not self._slot.acquire(blocking=False):
            raise RequestError("the engine is busy with another request: read it to its end or close it")
        claimed = [self._slot]
        return lambda: claimed.pop().release() if claimed else None

    def _ids(self, prompt: TextPrompt | Sequence[int], special: bool) -> list[int]:
        if isinstance(prompt, str | bytes):
            start = [self.tokenizer.bos_id] if self.tokenizer.add_bos and self.tokenizer.bos_id is not None else []
            return start + self.tokenizer.encode(prompt, special=special)
        if not special:
            raise RequestError("special: for text prompts only")
        try:
            return [index(id) for id in prompt]
        except TypeError:
            raise RequestError(
                f"prompt: text, token ids or messages were expected, not {type(prompt).__name__}"
            ) from None

    def _check_ids(self, ids: Sequence[int], *, reply: int) -> None:
        if not ids:
            raise RequestError("the prompt is empty; at least one token is needed")
        for id in (min(ids), max(ids)):
            if not 0 <= id < self.info.vocab:
                raise RequestError(f"token id {id}: the vocabulary has ids 0 to {self.info.vocab - 1}")
        if len(ids) + reply > self.max_ctx:
            raise ContextFullError(
                f"the prompt has {len(ids)} tokens and the reply needs {reply}; the context holds {self.max_ctx}: "
                f"shorten the prompt or load with a larger max_ctx (this model: up to {self.info.context_length})",
                asked=len(ids) + reply,
                length=0,
                max_ctx=self.max_ctx,
            )


def _stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (stop,)
    try:
        return tuple(stop)
    except TypeError:
        raise RequestError(f"stop: {stop!r}; a text, or several, were expected") from None


def _is_messages(prompt: object) -> bool:
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str | bytes)
        and len(prompt) > 0
        and isinstance(prompt[0], Mapping)
    )
