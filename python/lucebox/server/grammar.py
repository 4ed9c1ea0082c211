"""JSON mode, JSON schemas, grammars and forced tool calls, compiled by llguidance for the model's vocabulary.

A schema that cannot be enforced is an error; nothing ever runs unconstrained in its place.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import gbnf_to_lark

from lucebox.server import api_errors, values
from lucebox.server.constraint import Constraint
from lucebox.server.schemas import Common
from lucebox.streams import ReasoningSplitter
from lucebox.tokenizer import Tokenizer

MAX_SCHEMA_BYTES = 64 << 10
MAX_SCHEMA_DEPTH = 32
MAX_PROPERTIES = 1000
MAX_PATTERN_BYTES = 512
CACHED = 64
"""Compiled grammars that are kept."""
TRIED = 16
"""First tokens of a reply that are tried before a grammar is refused."""

WHITE_SPACE = r"[ \n\r\t]{1,32}"
"""Between the parts of a JSON text; bounded, or a model may write spaces for ever."""
_LEAD = r"/\n{0,2}/"
"""Line breaks between the reasoning and what is constrained."""
_QUANTIFIED_ANCHOR = re.compile(r"[\^$][*+?{]")
_ESCAPES_AND_SETS = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)


@dataclass(frozen=True)
class Compiled:
    """Of one request; each choice gets its own constraint."""

    matcher: LLMatcher
    vocab: int
    end_ids: frozenset[int]
    begin_id: int | None
    param: str

    def start(self) -> Constraint:
        return Constraint(self.matcher.deep_copy(), self.vocab, self.end_ids, begin_id=self.begin_id, param=self.param)


class Grammars:
    """Compiles and keeps what was compiled; any thread may ask."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._lock = threading.Lock()
        self._table: LLTokenizer | None = None
        self._cache: OrderedDict[str, LLMatcher] = OrderedDict()
        self._limits = LLParserLimits(max_grammar_size=100_000, initial_lexer_fuel=500_000, verbose_errors=False)

    def for_request(
        self,
        request: Common,
        *,
        thinking: bool,
        tools: Sequence[Mapping[str, Any]],
        forced_call: str | None,
        one_call: bool,
    ) -> Compiled | None:
        """forced_call: None = none, "" = any function, else its name. Raises ApiError."""
        param, rules = _content(request)
        if forced_call is not None:
            param, rules = "tool_choice", {"start": "calls"}
        elif not rules:
            return None
        if forced_call is not None or (tools and "start" in rules):
            chosen = [tool for tool in tools if not forced_call or tool["function"]["name"] == forced_call]
            content = rules.pop("start")
            rules = {"start": content if content == "calls" else f"{content} | calls", **rules}
            rules.update(self._calls(chosen, one_call))
        begin_id = None
        if thinking:
            begin_id = self._tokenizer.marker_id(ReasoningSplitter.CLOSE)
            if begin_id is None:
                raise api_errors.unsupported(
                    param, "this model has no token for the end of its reasoning; turn thinking off"
                )
        rules = {"start": f"{_LEAD} answer", "answer": rules.pop("start"), **rules}
        matcher = self._compile("\n".join(f"{name}: {body}" for name, body in rules.items()), param)
        return Compiled(matcher, self._vocab, self._tokenizer.end_ids, begin_id, param)

    def _calls(self, tools: Sequence[Mapping[str, Any]], one_call: bool) -> dict[str, str]:
        """Rules for Qwen's tool calls."""
        rules = {"calls": "call" if one_call else r'call ("\n" call)*'}
        names = []
        for i, tool in enumerate(tools):
            function = tool["function"]
            names.append(f"f{i}")
            parameters = function.get("parameters") or {}
            check_schema(parameters, f"tools[{i}].function.parameters")
            head = _quote(f"\n<function={function['name']}>\n")
            body, more = _parameters(parameters, f"f{i}", values.ToolTypes([tool]), function["name"])
            rules[f"f{i}"] = f"{head} {body} " + _quote("</function>\n")
            rules.update(more)
        call, call_end = self._marker("<tool_call>"), self._marker("</tool_call>")
        rules["call"] = f"{call} ({' | '.join(names)}) {call_end}"
        return rules

    def _marker(self, text: str) -> str:
        id = self._tokenizer.marker_id(text)
        return _quote(text) if id is None else f"<[{id}]>"

    def _compile(self, source: str, param: str) -> LLMatcher:
        with self._lock:
            matcher = self._cache.get(source)
            if matcher is not None:
                self._cache.move_to_end(source)
                return matcher
            if self._table is None:
                self._table = self._make_table()
            table = self._table
        matcher = LLMatcher(table, LLMatcher.grammar_from_lark(source), log_level=0, limits=self._limits)
        trial = matcher.deep_copy()
        if not trial.is_error():
            trial = self._tried(trial)
        if trial.is_error():
            # Up to where it quotes the request.
            reason = re.split(r"['\"`:\[\n]", trial.get_error(), maxsplit=1)[0].strip()[:100]
            raise api_errors.bad_request(f"{param}: it cannot be enforced: {reason}", param)
        with self._lock:
            self._cache[source] = matcher
            while len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return matcher

    def _tried(self, matcher: LLMatcher) -> LLMatcher:
        """Behind a first token, in error if none can come: a limit, or that no text fits (root ::= root), shows only there."""
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")[: self._vocab]
        bits[list(self._tokenizer.end_ids)] = 0
        for id in bits.nonzero()[0][:TRIED]:
            behind = matcher.deep_copy()
            behind.consume_token(int(id))
            if not behind.is_error():
                return behind
        return behind if bits.any() else matcher

    def _make_table(self) -> LLTokenizer:
        ends = sorted(self._tokenizer.end_ids)
        if not ends:
            raise api_errors.bad_request("response_format: this model has no end token, so nothing can be enforced")
        return LLTokenizer(TokenizerWrapper(_Vocabulary(self._tokenizer)), n_vocab=self._vocab, eos_token=ends)


class _Vocabulary:
    """The vocabulary as llguidance wants it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        ids = range(len(tokenizer))
        self.eos_token_id = min(tokenizer.end_ids)
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = [id for id in ids if tokenizer.is_marker(id)]
        self.tokens = [tokenizer.token_bytes(id, special=True) for id in ids]

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text, special=False)


def _content(request: Common) -> tuple[str, dict[str, str]]:
    """(the field that asks for it, rules of what the content must be); no rules: anything."""
    found = list(_asked(request))
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise api_errors.bad_request(f"{names}: only one of them can hold", found[0][0])
    return found[0] if found else ("response_format", {})


def _asked(request: Common) -> Iterator[tuple[str, dict[str, str]]]:
    wanted = request.response_format
    if wanted is not None and wanted.type != "text":
        schema: Any = wanted.bare_schema
        if schema is None and wanted.json_schema is not None:
            schema = wanted.json_schema.json_schema
        if schema is None and wanted.type == "json_schema":
            raise api_errors.bad_request("response_format.json_schema.schema: it is missing", "response_format")
        yield "response_format", _json({"type": "object"} if schema is None else schema, "response_format")
    if request.top_json_schema is not None:
        yield "json_schema", _json(request.top_json_schema, "json_schema")
    if request.guided_json is not None:
        yield "guided_json", _json(request.guided_json, "guided_json")
    if request.grammar is not None:
        yield "grammar", _gbnf(request.grammar, "grammar")
    outputs = request.structured_outputs
    if outputs is not None:
        name = "structured_outputs"
        if outputs.json_value is not None:
            yield name, _json(outputs.json_value, name)
        if outputs.json_object:
            yield name, _json({"type": "object"}, name)
        if outputs.regex is not None:
            check_pattern(outputs.regex, name)
            yield name, {"start": _regex(outputs.regex)}
        if outputs.choice is not None:
            if not outputs.choice or sum(map(len, outputs.choice)) > MAX_SCHEMA_BYTES or "" in outputs.choice:
                raise api_errors.bad_request(f"{name}.choice: texts were expected", name)
            yield name, {"start": " | ".join(map(_quote, outputs.choice))}
        if outputs.grammar is not None:
            yield name, _gbnf(outputs.grammar, name)


def _json(schema: Any, param: str) -> dict[str, str]:
    if isinstance(schema, str):
        schema = values.parse(schema)
    schema = {} if schema is True else schema
    if not isinstance(schema, Mapping):
        raise api_errors.bad_request(f"{param}: a JSON schema was expected", param)
    check_schema(schema, param)
    return {"start": "json_value", "json_value": _json_rule(schema)}


def _json_rule(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": {"whitespace_pattern": WHITE_SPACE}})


def _gbnf(text: str, param: str) -> dict[str, str]:
    if len(text.encode("utf-8", "replace")) > MAX_SCHEMA_BYTES:
        raise api_errors.bad_request(f"{param}: more than {MAX_SCHEMA_BYTES} bytes", param)
    try:
        lark = gbnf_to_lark(text)
    except Exception:  # the converter raises what it meets
        raise api_errors.bad_request(f"{param}: it is no GBNF grammar", param) from None
    rules: dict[str, str] = {}
    name = ""
    for line in lark.splitlines():
        found = re.match(r"([A-Za-z_]\w*)\s*:\s*(.*)", line)
        if found:
            name = found.group(1)
            rules[name] = found.group(2)
        elif line.strip() and not line.lstrip().startswith(("//", "%")):
            rules[name] = rules.get(name, "") + " " + line.strip()
    if "start" not in rules or not set(rules).isdisjoint({"answer", "calls", "call"}):
        raise api_errors.bad_request(
            f"{param}: a rule named root was expected, and none named answer, call or calls", param
        )
    return {"start": rules.pop("start"), **rules}


def _parameters(
    schema: Mapping[str, Any], prefix: str, types: values.ToolTypes, function: str
) -> tuple[str, dict[str, str]]:
    """(the rule for a function's parameters, the rules it uses): the schema's order, optional ones may be missing."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    parts, rules = [], {}
    for i, (key, part) in enumerate(properties.items()):
        name = f"{prefix}p{i}"
        head = _quote(f"<parameter={key}>\n")
        if values.is_text(types.of(function, key)):
            rules[f"{name}v"] = _text_rule(part)
            tail = "" if rules[f"{name}v"].startswith("/(?s") else _quote("\n</parameter>\n")
            if not tail:
                rules[f'{name}v[suffix="\\n</parameter>\\n"]'] = rules.pop(f"{name}v")
        else:
            rules[f"{name}v"] = _json_rule({**shared, **(part if isinstance(part, Mapping) else {})})
            tail = _quote("\n</parameter>\n")
        rules[name] = f"{head} {name}v {tail}"
        parts.append(name if key in required else f"{name}?")
    return " ".join(parts), rules


def _text_rule(part: Any) -> str:
    """What a text parameter may be: one of its enum's values, or anything."""
    options = part.get("enum") if isinstance(part, Mapping) else None
    if isinstance(options, list) and options and all(isinstance(option, str) and option for option in options):
        return " | ".join(map(_quote, options))
    return "/(?s:.*)/"


def check_schema(schema: Any, param: str) -> None:
    """Limits of a schema's size, before anything compiles it. Raises ApiError."""
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA_BYTES:
        raise api_errors.bad_request(f"{param}: {size} bytes; the limit is {MAX_SCHEMA_BYTES}", param)
    properties = 0
    stack: list[tuple[Any, int]] = [(schema, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise api_errors.bad_request(f"{param}: deeper than {MAX_SCHEMA_DEPTH}", param)
        if isinstance(node, Mapping):
            known = node.get("properties")
            properties += len(known) if isinstance(known, Mapping) else 0
            if properties > MAX_PROPERTIES:
                raise api_errors.bad_request(f"{param}: more than {MAX_PROPERTIES} properties", param)
            if isinstance(node.get("pattern"), str):
                check_pattern(node["pattern"], param)
            patterns = node.get("patternProperties")
            for pattern in patterns if isinstance(patterns, Mapping) else ():
                check_pattern(pattern, param)
            stack += [(item, depth + 1) for item in node.values()]
        elif isinstance(node, list):
            stack += [(item, depth + 1) for item in node]


def check_pattern(pattern: str, param: str) -> None:
    if len(pattern.encode("utf-8", "replace")) > MAX_PATTERN_BYTES:
        raise api_errors.bad_request(f"{param}: a pattern of more than {MAX_PATTERN_BYTES} bytes", param)
    bare = _ESCAPES_AND_SETS.sub("x", pattern)
    if _QUANTIFIED_ANCHOR.search(bare) or "(?=" in bare or "(?!" in bare or "(?<" in bare:
        raise api_errors.bad_request(f"{param}: a pattern with a repeated anchor or a look-around", param)


def _quote(text: str) -> str:
    return json.dumps(text)


def _regex(pattern: str) -> str:
    return "/" + pattern.replace("/", r"\/") + "/"
