"""From a request's body to what the engine runs: ids, sampling, and what becomes of the tokens.

Everything that can be refused is refused here, before a place in the queue is asked for.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lucebox import sampling
from lucebox.chat import EFFORTS, Chat, Prompt
from lucebox.server import api_errors, grammar
from lucebox.server.config import ServerConfig
from lucebox.server.deltas import OutputOptions
from lucebox.server.grammar import Grammars
from lucebox.server.schemas import ChatRequest, Common, CompletionRequest
from lucebox.streams import ReasoningSplitter
from lucebox.tokenizer import Tokenizer

NEVER = -100.0
"""A bias that forbids a token."""


@dataclass(frozen=True)
class Model:
    """What the HTTP side knows of the engine."""

    name: str
    file: str
    tokenizer: Tokenizer
    chat: Chat
    metadata: Mapping[str, Any]
    vocab: int
    n_ctx: int
    n_ctx_train: int
    slots: int
    parameters: int
    file_bytes: int
    created: int
    """Unix time of the start."""
    backend: Mapping[str, Any]
    """Device, kernels, threads, KV type."""
    speculative: Mapping[str, Any]
    """type ("lookup", "drafter" or "none"), block, draft."""


@dataclass(frozen=True)
class Plan:
    """One choice of a request, but for its index in the random numbers."""

    prompt: list[int]
    params: dict[str, Any]
    output: OutputOptions
    prefill_only: bool = False
    reasoning_budget: int | None = None
    close_ids: tuple[int, ...] = ()
    constraint: grammar.Compiled | None = None
    text: str = ""
    """The prompt as people read it."""


class Preparer:
    """Its methods take parsed bodies and raise ApiError or lucebox.errors. They may run in any thread."""

    def __init__(self, model: Model, config: ServerConfig) -> None:
        self.model = model
        self.config = config
        self.grammars = Grammars(model.tokenizer, model.vocab)

    def chat(self, request: ChatRequest) -> Plan:
        tools = _usable_tools(request.tools)
        choice, named = _tool_choice(request.tool_choice, tools)
        thinking, effort = self._thinking(request)
        prompt = self.render(request, thinking, effort)
        budget = self._budget(request, effort)
        split = request.reasoning_format != "none"
        logprobs = _chat_logprobs(request)
        parse_tools = bool(tools) and choice != "none"
        limits = self._limits(request, prompt.ids)
        close_ids = tuple(self.model.tokenizer.encode(f"\n{ReasoningSplitter.CLOSE}\n\n")) if prompt.thinking else ()
        forced_call = (named or "") if choice == "required" else None
        compiled = self.grammars.for_request(
            request,
            thinking=prompt.thinking,
            tools=tools,
            forced_call=forced_call,
            one_call=not request.parallel_tool_calls,
        )
        output = OutputOptions(
            **limits,
            chat=True,
            thinking=prompt.thinking,
            split_reasoning=split,
            drop_reasoning=not request.include_reasoning,
            tools=tuple(tools) if parse_tools else None,
            named_tool=named is not None,
            parallel_calls=request.parallel_tool_calls,
        )
        return Plan(
            prompt.ids,
            self._params(request, thinking=prompt.thinking, logprobs=logprobs),
            output,
            prefill_only=_max_tokens(request) == 0,
            reasoning_budget=budget if prompt.thinking and split else None,
            close_ids=close_ids,
            constraint=compiled,
            text=prompt.text,
        )

    def completions(self, request: CompletionRequest) -> list[Plan]:
        if request.suffix:
            raise api_errors.unsupported("suffix", "this server does not fill in the middle")
        if request.best_of is not None and request.best_of != request.n:
            raise api_errors.unsupported("best_of", "it must equal n")
        if request.echo and request.logprobs is not None:
            raise api_errors.unsupported("echo", "log-probabilities of the prompt are not available")
        logprobs = -1 if request.logprobs is None else request.logprobs
        compiled = self.grammars.for_request(request, thinking=False, tools=(), forced_call=None, one_call=False)
        plans = []
        for i, ids in enumerate(self._prompts(request.prompt)):
            limits = self._limits(request, ids, f"prompt[{i}]")
            plans.append(
                Plan(
                    ids,
                    self._params(request, thinking=True, logprobs=logprobs),
                    OutputOptions(**limits),
                    prefill_only=_max_tokens(request) == 0,
                    constraint=compiled,
                )
            )
        return plans

    def render(self, request: ChatRequest, thinking: bool | None = None, effort: str | None = None) -> Prompt:
        """The prompt of a chat body, as the chat route makes it."""
        if thinking is None and effort is None:
            thinking, effort = self._thinking(request)
        arguments = dict(request.chat_template_kwargs)
        arguments.pop("enable_thinking", None)
        chat = self.model.chat
        if chat.mentions("preserve_thinking"):
            preserve = _flag("chat_template_kwargs.preserve_thinking", arguments.get("preserve_thinking", True))
            arguments["preserve_thinking"] = preserve
        if request.continue_final_message or request.add_generation_prompt is False:
            last = request.messages[-1].get("role")
            if last != "assistant":
                name = "continue_final_message" if request.continue_final_message else "add_generation_prompt"
                raise api_errors.bad_request(f"{name}: the last message is not the assistant's", name)
        return chat.encode(
            request.messages,
            tools=_usable_tools(request.tools) or None,
            thinking=thinking,
            reasoning_effort=effort if chat.mentions("reasoning_effort") else None,
            template_args=arguments,
        )

    def defaults(self) -> dict[str, Any]:
        """Sampling of a request that names nothing."""
        return {**sampling.defaults(self.model.metadata, thinking=True), "max_tokens": self.config.default_max_tokens}

    def _thinking(self, request: ChatRequest) -> tuple[bool | None, str | None]:
        """(whether the model thinks, the effort it is asked for); None = not said."""
        effort = request.reasoning_effort
        if effort is None and request.reasoning is not None:
            effort = request.reasoning.effort
        effort = "xhigh" if effort == "x-high" else effort
        if effort is not None and effort not in EFFORTS:
            known = ", ".join(EFFORTS)
            raise api_errors.bad_request(f"reasoning_effort: accepted are {known}", "reasoning_effort")
        thinking = _flag("enable_thinking", request.enable_thinking)
        if "enable_thinking" in request.chat_template_kwargs:
            value = request.chat_template_kwargs["enable_thinking"]
            thinking = _flag("chat_template_kwargs.enable_thinking", value)
        if thinking is None and request.thinking is not None:
            thinking = request.thinking.type != "disabled"
        if thinking is None and effort is not None:
            thinking = EFFORTS[effort] is not None
        if effort == "none" or thinking is False:
            return False, None
        return (self.config.thinking if thinking is None else thinking), effort

    def _budget(self, request: ChatRequest, effort: str | None) -> int | None:
        numbers = (
            request.thinking_budget,
            request.thinking_token_budget,
            request.reasoning_budget_tokens,
            request.thinking.budget_tokens if request.thinking is not None else None,
            self.config.efforts.get(effort) if effort is not None else None,
        )
        budget = next((number for number in numbers if number is not None), -1)
        return None if budget < 0 else budget

    def _limits(self, request: Common, ids: Sequence[int], where: str = "messages") -> dict[str, Any]:
        n_ctx = self.model.n_ctx
        if not ids:
            raise api_errors.bad_request(f"{where}: the prompt is empty; at least one token is needed", where)
        if len(ids) >= n_ctx:
            raise api_errors.context_full(len(ids), n_ctx)
        room = n_ctx - len(ids)
        wanted = _max_tokens(request)
        if wanted is None and self.config.default_max_tokens >= 0:
            wanted = self.config.default_max_tokens
        by_request = wanted is not None and wanted <= room
        limit = wanted if by_request and wanted is not None else room
        if request.min_tokens > limit:
            raise api_errors.bad_request(f"min_tokens: it may be at most {limit} here", "min_tokens")
        ends = frozenset() if request.ignore_eos else self.model.tokenizer.end_ids
        return {
            "limit": max(limit, 1),
            "limit_name": "max_tokens" if by_request else "max_ctx",
            "end_ids": ends | frozenset(request.stop_token_ids),
            "min_tokens": request.min_tokens,
            "stop": request.stops,
            "keep_stop": request.include_stop_str_in_output,
        }

    def _params(self, request: Common, *, thinking: bool, logprobs: int) -> dict[str, Any]:
        """Keyword arguments of SequenceParams."""
        values = sampling.defaults(self.model.metadata, thinking=thinking)
        for name in ("temperature", "top_p", "top_k", "min_p"):
            given = getattr(request, name)
            values[name] = values[name] if given is None else given
        values["top_k"] = max(values["top_k"], 0)
        tokenizer = self.model.tokenizer
        seed = request.seed
        penalty = request.repetition_penalty if request.repetition_penalty is not None else request.repeat_penalty
        penalty = 1.0 if penalty is None or request.repeat_last_n == 0 else penalty
        if penalty != 1.0 and request.repeat_last_n is not None and 0 < request.repeat_last_n < self.model.n_ctx:
            raise api_errors.unsupported("repeat_last_n", "repetition is counted over the whole context: use -1 or 0")
        for id in request.stop_token_ids:
            if id >= self.model.vocab:
                raise self._unknown_token("stop_token_ids")
        ends = tokenizer.end_ids
        never = request.ignore_eos
        return {
            **values,
            "seed": secrets.randbits(63) if seed is None or seed < 0 else seed,
            "repetition_penalty": penalty,
            "presence_penalty": request.presence_penalty,
            "frequency_penalty": request.frequency_penalty,
            "logit_bias": self._logit_bias(request),
            # With ignore_eos the end tokens are masked to the end, and the request's own are found in the output.
            "end_ids": sorted(ends if never else ends | set(request.stop_token_ids)),
            "min_tokens": (1 << 31) - 1 if never else request.min_tokens,
            "logprobs": logprobs,
            "speculative": "off" if request.speculative_n_max == 0 else self.config.speculative,
            "lookup": self.config.lookup,
        }

    def _logit_bias(self, request: Common) -> dict[int, float]:
        given = request.logit_bias
        pairs: list[Any] = list(given.items()) if isinstance(given, dict) else given
        bias: dict[int, float] = {}
        for key, value in pairs:
            if isinstance(key, str) and key.isascii() and key.isdecimal():
                key = int(key[:12])
            if isinstance(key, bool) or not isinstance(key, int):
                raise api_errors.bad_request("logit_bias: its keys are decimal token ids", "logit_bias")
            if not 0 <= key < self.model.vocab:
                raise self._unknown_token("logit_bias")
            number = NEVER if value is False else value
            if number is True or not NEVER <= number <= 100:
                raise api_errors.bad_request("logit_bias: a bias is a number from -100 to 100, or false", "logit_bias")
            bias[key] = float("-inf") if number == NEVER else float(number)
        return bias

    def _prompts(self, prompt: Any) -> list[list[int]]:
        if isinstance(prompt, str):
            texts: list[Any] = [prompt]
        elif prompt and all(isinstance(item, int) for item in prompt):
            texts = [prompt]
        else:
            texts = list(prompt)
        if not texts:
            raise api_errors.bad_request("prompt: it is empty", "prompt")
        return [self.ids(text) for text in texts]

    def ids(self, text: str | Sequence[int], *, special: bool = True, param: str = "prompt") -> list[int]:
        """Of a raw prompt."""
        tokenizer = self.model.tokenizer
        if isinstance(text, str):
            start = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
            return start + tokenizer.encode(text, special=special)
        if any(id >= self.model.vocab for id in text):
            raise self._unknown_token(param)
        return list(text)

    def _unknown_token(self, param: str) -> api_errors.ApiError:
        return api_errors.bad_request(f"{param}: token ids go from 0 to {self.model.vocab - 1}", param)


def _max_tokens(request: Common) -> int | None:
    """Tokens of the reply as the request wants them, None = as many as fit."""
    aliases = ("max_completion_tokens", "max_tokens", "n_predict")
    given = (getattr(request, name, None) for name in aliases)
    wanted = next((number for number in given if number is not None), -1)
    return None if wanted < 0 else wanted


def _chat_logprobs(request: ChatRequest) -> int:
    if not request.logprobs:
        if request.top_logprobs:
            raise api_errors.bad_request("top_logprobs: it needs logprobs: true", "top_logprobs")
        return -1
    return request.top_logprobs or 0


def _flag(name: str, value: Any) -> bool | None:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value is None or isinstance(value, bool):
        return value
    raise api_errors.bad_request(f"{name}: true or false was expected", name)


def _usable_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those that are functions. Raises for one whose name or parameters are none."""
    usable = []
    for i, tool in enumerate(tools):
        if tool.get("type", "function") != "function":
            continue
        function = tool.get("function")
        where = f"tools[{i}].function"
        if not isinstance(function, Mapping):
            raise api_errors.bad_request(f"{where}: an object was expected", where)
        name = function.get("name")
        if not isinstance(name, str) or not 1 <= len(name) <= 64 or not _is_name(name):
            text = f"{where}.name: 1 to 64 characters of A-Z a-z 0-9 _ . - were expected"
            raise api_errors.bad_request(text, f"{where}.name")
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise api_errors.bad_request(f"{where}.parameters: an object was expected", f"{where}.parameters")
        usable.append(dict(tool))
    return usable


def _is_name(name: str) -> bool:
    return name.isascii() and all(char.isalnum() or char in "_.-" for char in name)


def _tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """("none", "auto" or "required", the named function)."""
    if choice is None:
        return ("auto" if tools else "none"), None
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise api_errors.bad_request("tool_choice: it is required, and there are no tools", "tool_choice")
        return choice, None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        raise api_errors.bad_request("tool_choice: {type: function, function: {name}} was expected", "tool_choice")
    if name not in [tool["function"]["name"] for tool in tools]:
        raise api_errors.bad_request("tool_choice: the named function is not among the tools", "tool_choice")
    return "required", name
