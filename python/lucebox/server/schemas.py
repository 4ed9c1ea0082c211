"""Request bodies. null means absent; unknown fields are ignored; a known field of a wrong type or range is an error,
and so is one that this server does not have, unless it holds its "off" value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from lucebox.server import api_errors

MAX_INT = (1 << 31) - 1
MAX_SEED = (1 << 63) - 1

MAX_STOP_BYTES = 256


def _check_stop(text: str) -> str:
    if not text:
        raise ValueError("a text of at least one character was expected")
    if len(text.encode("utf-8", "replace")) > MAX_STOP_BYTES:
        raise ValueError(f"at most {MAX_STOP_BYTES} bytes")
    return text


StopText = Annotated[str, AfterValidator(_check_stop)]
Ids = Annotated[list[Annotated[int, Field(ge=0, le=MAX_INT)]], Field(max_length=1 << 20)]

OFF: dict[str, tuple[Any, ...]] = {
    "typical_p": (1,),
    "typical": (1,),
    "mirostat": (0,),
    "dynatemp_range": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "top_n_sigma": (-1, 0),
    "samplers": ([],),
}
"""Fields of other servers' samplers, and the values that turn them off."""


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


B = TypeVar("B", bound=Body)


class StreamOptions(Body):
    include_usage: bool = False


class JsonSchema(Body):
    name: str = ""
    json_schema: dict[str, Any] | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    bare_schema: dict[str, Any] | None = Field(None, alias="schema", description="As llama.cpp has it.")


class StructuredOutputs(Body):
    """As vLLM has them; one of the fields."""

    json_value: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=0, le=MAX_INT)


class Reasoning(Body):
    effort: str | None = None


class Common(Body):
    """What both completion routes take."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(1, ge=1, le=8)
    max_tokens: int | None = Field(None, ge=-1, le=MAX_INT)
    n_predict: int | None = Field(None, ge=-1, le=MAX_INT)
    min_tokens: int = Field(0, ge=0, le=MAX_INT)
    ignore_eos: bool = False
    stop: StopText | Annotated[list[StopText], Field(max_length=16)] = []
    include_stop_str_in_output: bool = False
    stop_token_ids: Ids = []
    t_max_predict_ms: int = Field(0, ge=0, le=MAX_INT)
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, le=MAX_INT)
    min_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    presence_penalty: float = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    repetition_penalty: float | None = Field(None, gt=0, le=2, allow_inf_nan=False)
    repeat_penalty: float | None = Field(None, gt=0, le=2, allow_inf_nan=False)
    repeat_last_n: int | None = Field(None, ge=-1, le=MAX_INT)
    logit_bias: dict[str, float] | list[Annotated[list[int | float | bool], Field(min_length=2, max_length=2)]] = {}
    seed: int | None = Field(None, ge=-1, le=MAX_SEED)
    cache_prompt: bool = True
    timings_per_token: bool = False
    return_progress: bool = False
    return_tokens: bool = False
    return_token_ids: bool = False
    id_slot: int = Field(-1, ge=-1, le=MAX_INT)
    sse_ping_interval: float | None = Field(None, ge=-1, le=3600, allow_inf_nan=False)
    speculative_n_max: int | None = Field(None, ge=0, le=MAX_INT, alias="speculative.n_max")
    response_format: ResponseFormat | None = None
    top_json_schema: dict[str, Any] | None = Field(None, alias="json_schema", description="As llama.cpp has it.")
    grammar: str | None = Field(None, description="GBNF, as llama.cpp has it.")
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class ChatRequest(Common):
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=10_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_INT)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: Annotated[list[dict[str, Any]], Field(max_length=128)] = []
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] = {}
    enable_thinking: bool | Literal["true", "false"] | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    thinking: Thinking | None = None
    thinking_budget: int | None = Field(None, ge=-1, le=MAX_INT)
    thinking_token_budget: int | None = Field(None, ge=-1, le=MAX_INT)
    reasoning_budget_tokens: int | None = Field(None, ge=-1, le=MAX_INT)
    reasoning_format: Literal["auto", "deepseek", "none"] = "auto"
    include_reasoning: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class CompletionRequest(Common):
    prompt: str | Ids | Annotated[list[str | Ids], Field(max_length=128)]
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=5)
    best_of: int | None = Field(None, ge=1, le=8)
    suffix: str | None = None


class TokenizeRequest(Body):
    content: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = Field(None, min_length=1, max_length=10_000)
    tools: Annotated[list[dict[str, Any]], Field(max_length=128)] = []
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(Body):
    tokens: Ids


def parse(kind: type[B], data: Any) -> B:
    """The body as a `kind`. Raises ApiError, with the field's name and without its value."""
    if not isinstance(data, dict):
        raise api_errors.bad_request("the body must be a JSON object")
    _refuse_other_samplers(data)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        # Of a field that takes several types the first error may be "no string" where a list was too long.
        of_field = [one for one in errors if one["loc"][:1] == errors[0]["loc"][:1]]
        first = next((one for one in of_field if not one["type"].endswith("_type")), errors[0])
        param = _path(first["loc"])
        raise api_errors.bad_request(f"{param}: {first['msg']}", param) from None


def _refuse_other_samplers(data: Mapping[str, Any]) -> None:
    for name, off in OFF.items():
        value = data.get(name)
        if value is not None and not any(value == one and not isinstance(value, bool) for one in off):
            shown = " or ".join(map(str, off))
            raise api_errors.unsupported(
                name, f"this server has no such sampler; only its off value ({shown}) is taken"
            )


def _path(loc: tuple[int | str, ...]) -> str:
    """`messages[0].role`; what pydantic adds for members of unions is left out."""
    path, names = "", True
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not names:
            break
        elif part.isidentifier() or part == "speculative.n_max":
            if path and part in ("str", "int", "float", "bool", "dict", "list", "constrained"):
                names = False  # keys of a request's own objects may follow
            else:
                path += f".{part}" if path else part
        else:
            names = False
    return path or "body"
