"""Chat templates: Jinja text of an untrusted file, rendered in a sandbox with limits that need no signals.

A template may use the filters and methods listed here. While it runs, every loop pass, call and value it makes is
charged to a budget of characters and time, so that a hostile one ends in a RequestError, whatever thread it runs in.
"""

from __future__ import annotations

import contextvars
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from lucebox.errors import RequestError

MAX_SOURCE = 1 << 20
"""Characters of a template."""
MAX_CHARS = 64 << 20
"""Characters that one render may make, intermediate texts included."""
MAX_ITEMS = 1 << 20
"""Items of one list or mapping, those of its members included."""
MAX_SECONDS = 5.0
"""Time that one render may take."""

_FILTERS = """
abs capitalize count d default dictsort e escape first float forceescape groupby int items last length list lower map
max min reject rejectattr reverse round safe select selectattr sort string sum title trim unique upper
"""
_STR_METHODS = """
capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace
isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split
splitlines startswith strip swapcase title upper
"""
_CHARGE = "lucebox charge"
_CONCAT = "lucebox concat"
_CONTAINED = "lucebox contained"


class TemplateLimit(SecurityError):
    """A template went beyond a limit of this module."""


class Budget:
    def __init__(self, chars: int, seconds: float) -> None:
        self.chars = chars
        self.seconds = seconds
        self.left = chars
        self.deadline = time.monotonic() + seconds

    def spend(self, chars: int) -> None:
        self.left -= chars
        if self.left < 0:
            raise TemplateLimit(f"made more than {self.chars} characters")
        if time.monotonic() > self.deadline:
            raise TemplateLimit(f"ran for more than {self.seconds:g} s")


_budget: contextvars.ContextVar[Budget] = contextvars.ContextVar("lucebox_template_budget")


def _spend(chars: int) -> None:
    _budget.get().spend(chars)


def _size(value: object) -> int:
    """Characters and items, shared ones counted as often as they would be printed."""
    size = items = 0
    stack = [value]
    while stack:
        item = stack.pop()
        items += 1
        size += 1 + (len(item) if isinstance(item, str) else 0)
        if isinstance(item, list | tuple):
            stack += item
        elif isinstance(item, dict):
            stack += [*item, *item.values()]
        elif isinstance(item, Namespace) and item is not value:
            raise TemplateLimit("put a namespace into a list or mapping")
        if items > MAX_ITEMS:
            raise TemplateLimit(f"made a value of more than {MAX_ITEMS} items")
    return size


def _contained(value: Any) -> Any:
    _spend(_size(value))
    return value


def _charge(items: Iterable[Any], body_chars: int) -> Iterator[Any]:
    for item in items:
        _spend(1 + body_chars)
        yield item


def _concat(parts: list[Any]) -> str:
    texts = [str(part) for part in parts]
    _spend(sum(map(len, texts)))
    return "".join(texts)


def _replace(value: Any, from_: Any, to: Any, count: int = -1) -> str:
    text, old, new = str(value), str(from_), str(to)
    found = text.count(old)
    _spend(len(text) + (found if count < 0 else min(found, count)) * len(new))
    return text.replace(old, new, count)


def _join(items: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    texts = [str(item if attribute is None else item[attribute]) for item in items]
    _spend(sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Python writes it: no HTML escapes, keys in the given order."""
    if indent is not None and not 0 <= indent <= 16:
        raise TemplateLimit(f"used tojson(indent={indent}); the limit is 16")
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    _spend(len(text))
    return text


def _raise_exception(text: str) -> None:
    raise jinja2.TemplateRuntimeError(str(text))


class _Limits(NodeTransformer):
    """Puts the budget into what Jinja compiles without asking the environment: loops, `~`, literals of lists."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        node = self.generic_visit(node)  # type: ignore[assignment]
        chars = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        node.iter = nodes.Filter(node.iter, _CHARGE, [nodes.Const(chars)], [], None, None, lineno=node.lineno)
        return node

    def _visit_container(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Expr:
        node = self.generic_visit(node)  # type: ignore[assignment]
        if isinstance(node, nodes.Tuple) and node.ctx != "load":
            return node
        return nodes.Filter(node, _CONTAINED, [], [], None, None, lineno=node.lineno)

    visit_List = visit_Tuple = visit_Dict = _visit_container

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        node = self.generic_visit(node)  # type: ignore[assignment]
        return nodes.Filter(nodes.List(node.nodes), _CONCAT, [], [], None, None, lineno=node.lineno)


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=_contained, extensions=[loopcontrols]
        )
        self.filters = {name: self.filters[name] for name in _FILTERS.split()}
        self.filters.update(
            {
                "tojson": _tojson,
                "replace": _replace,
                "join": _join,
                _CHARGE: _charge,
                _CONCAT: _concat,
                _CONTAINED: _contained,
            }
        )
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise_exception,
        }

    # Jinja lets str.format through in a form that is safe but knows no widths; a template needs neither.
    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, str) and hasattr(obj, attribute) and attribute not in _STR_METHODS.split():
            return self.unsafe_undefined(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, str) and isinstance(argument, str):
            return self.getattr(obj, argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in ("replace", "join"):
            return _replace(owner, *args) if name == "replace" else _join(args[0], owner)
        result = super().call(__context, __obj, *args, **kwargs)
        _spend(_size(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            _spend(_size(left) + _size(right))
        elif operator == "*":
            _check_product(left, right)
        elif operator == "**" and not (abs(left) <= 1 << 16 and abs(right) <= 16):
            raise TemplateLimit(f"asked for {left} ** {right}")
        elif operator == "%" and isinstance(left, str) and re.search(r"\d{4}|\*", left):
            raise TemplateLimit("used a format with a width of four digits or a variable one")
        return super().call_binop(context, operator, left, right)


def _check_product(left: Any, right: Any) -> None:
    for items, times in ((left, right), (right, left)):
        if isinstance(items, str | list | tuple) and isinstance(times, int):
            _spend(len(items) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > 4096:
        raise TemplateLimit("made a number of more than 4096 bits")


class Template:
    """A parsed chat template. Raises ValueError, with the line, for text that is none."""

    def __init__(self, source: str) -> None:
        self.source = source
        if len(source) > MAX_SOURCE:
            raise ValueError(f"{len(source)} characters; the limit is {MAX_SOURCE}")
        sandbox = _Sandbox()
        try:
            tree = _Limits().visit(sandbox.parse(source))
            code = sandbox.compile(tree)
            self._template = jinja2.Template.from_code(sandbox, code, sandbox.make_globals(None))
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}") from error
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def render(self, values: Mapping[str, Any], *, chars: int = MAX_CHARS, seconds: float = MAX_SECONDS) -> str:
        """Raises RequestError: what the template raised, or the limit that it met."""
        token = _budget.set(Budget(chars, seconds))
        try:
            text = self._template.render(values)
            _spend(len(text))
            return text
        except TemplateLimit as error:
            raise RequestError(f"the chat template was stopped: it {error}") from None
        except jinja2.TemplateError as error:
            raise RequestError(f"the chat template refuses these messages: {error.message}") from error
        except Exception as error:
            raise RequestError(f"the chat template failed: {type(error).__name__}: {error}") from error
        finally:
            _budget.reset(token)
