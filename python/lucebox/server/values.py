"""Values of tool calls: text between tags -> JSON, by the types that the tool's schema allows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_REFS = 64
"""Steps through $ref, anyOf and so on for one parameter."""


class ToolTypes:
    """The types of each tool's parameters. tools: as in a request; entries that are no functions are passed over."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._schemas: dict[str, Mapping[str, Any]] = {}
        for tool in tools:
            function = tool.get("function")
            if isinstance(function, Mapping):
                parameters = function.get("parameters")
                self._schemas[str(function.get("name"))] = parameters if isinstance(parameters, Mapping) else {}

    def of(self, function: str, parameter: str) -> frozenset[str]:
        """JSON schema type names; string for a parameter that the schema does not know, empty where it allows anything."""
        schema = self._schemas.get(function, {})
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or parameter not in properties:
            return frozenset({"string"})
        return frozenset(_types(properties[parameter], schema, [MAX_REFS]))


def _types(part: Any, root: Mapping[str, Any], left: list[int]) -> Iterator[str]:
    left[0] -= 1
    if not isinstance(part, Mapping) or left[0] < 0:
        return
    kind = part.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from (name for name in kind if isinstance(name, str))
    else:
        values = part.get("enum") if isinstance(part.get("enum"), list) else [part["const"]] if "const" in part else []
        yield from (_type_of(value) for value in values or ())
    if isinstance(part.get("$ref"), str):
        yield from _types(_resolve(part["$ref"], root), root, left)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(part.get(key), list):
            for option in part[key]:
                yield from _types(option, root, left)


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _resolve(ref: str, root: Mapping[str, Any]) -> Any:
    """The part of root that a local reference names, None for any other."""
    if not ref.startswith("#"):
        return None
    node: Any = root
    for key in ref[1:].split("/")[1:]:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key.replace("~1", "/").replace("~0", "~"))
    return node


def is_text(types: frozenset[str]) -> bool:
    """Whether a value of these types is taken verbatim."""
    return "string" in types


def to_json(text: str, types: frozenset[str]) -> str:
    """The JSON text of a value. What cannot be read as one of the types is a string: no call is dropped for it."""
    if not is_text(types):
        word = text.strip()
        if "boolean" in types and word.lower() in ("true", "false"):
            return word.lower()
        value = parse(word)
        if value is not _NOTHING and (types or isinstance(value, list | dict)):
            return word
    return quote(text)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_NOTHING = object()


def parse(text: str) -> Any:
    """The value of a strict JSON text, or a sentinel that no JSON text has."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOTHING


def _refuse(name: str) -> Any:
    raise ValueError(name)
