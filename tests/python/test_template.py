"""The template sandbox: what templates may do, and that a hostile one ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from lucebox.errors import RequestError
from lucebox.template import MAX_SOURCE, Template

DOUBLE = "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = BODY %}{% endfor %}{{ ns.x }}"
MACROS = "".join(
    f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}"
    if i
    else "{% macro m0() %}{% endmacro %}"
    for i in range(40)
)


@pytest.mark.parametrize(
    ("source", "values", "text"),
    [
        ("{{ missing }}|{% if missing %}1{% endif %}{% for a in missing %}2{% endfor %}", {}, "|"),
        ("{% for a in 'xyz' %}{{ loop.index0 }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}", {}, "0y1xz2y"),
        ("{% for a in 'xyz' %}{{ loop.first }}{{ loop.last }}{% break %}{% endfor %}", {}, "TrueFalse"),
        ("{{ [1, 2, 3][::-1] }}{{ 'a' in ('a', 'b') }}{{ 'b' not in 'a' ~ 'c' }}", {}, "[3, 2, 1]TrueTrue"),
        ("{% for k, v in x | items %}{{ k }}{{ v }}{% endfor %}", {"x": {"b": 1, "a": 2}}, "b1a2"),
        ("{{ x | tojson }}", {"x": {"k": "<é&'\">", "n": [1, None, True]}}, '{"k": "<é&\'\\">", "n": [1, null, true]}'),
        ("{{ ' \n a\n'.strip('\n').lstrip() | trim }}{{ 'x' | default('y') }}", {}, "ax"),
        ("{% macro m(a, b='!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}", {}, "x!"),
        ("{{ 'text'.missing }}{{ 'text'.missing is defined }}{{ 'text'['missing'] }}{{ 'text'[0] }}", {}, "Falset"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", {}, "  x\ny"),
        ("{{ 'a</think>b'.split('</think>')[-1] }}{{ 'ab'.startswith('a') }}", {}, "bTrue"),
        (
            "{{ x is string }}{{ x is mapping }}{{ y is undefined }}{{ x is none }}{{ 1 is number }}",
            {"x": {}},
            "FalseTrueTrueFalseTrue",
        ),
    ],
)
def test_what_templates_need(source: str, values: dict[str, Any], text: str) -> None:
    assert Template(source).render(values) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ [0] * 10 ** 9 }}",
        "{{ 9 ** 9 ** 9 }}",
        DOUBLE.replace("BODY", "ns.x ~ ns.x"),
        DOUBLE.replace("BODY", "ns.x + ns.x"),
        DOUBLE.replace("BODY", "[ns.x, ns.x]"),
        DOUBLE.replace("BODY", "dict(a=ns.x, b=ns.x)"),
        DOUBLE.replace("BODY", "ns.x.replace('a', 'aaaaaaaaaaaa')"),
        DOUBLE.replace("BODY", "ns.x | replace('a', 'aaaaaaaaaaaa')"),
        DOUBLE.replace("BODY", "ns.x.join([ns.x, ns.x, ns.x])"),
        DOUBLE.replace("'a'", "3").replace("BODY", "ns.x * ns.x"),
        DOUBLE.replace("ns.x = BODY %}", "ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        "{% for i in range(99999) %}{% for i in range(99999) %}" + "x" * 5000 + "{% endfor %}{% endfor %}",
        "{{ '%9999d' % 1 }}",
        "{{ 1 | tojson(indent=999999999) }}",
        "{{ 'x'.ljust(999999999) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ x.append(1) }}",
        "{{ '{0.__class__}'.format(x) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'a'['format'](1) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
    ],
)
def test_hostile_templates_are_stopped(source: str) -> None:
    started = time.monotonic()
    with pytest.raises(RequestError, match="the chat template "):
        Template(source).render({"x": []})
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "source", [MACROS + "{{ m39() }}", "{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}"]
)
def test_the_time_limit_holds_in_a_thread(source: str) -> None:
    found: list[str] = []

    def run() -> None:
        try:
            Template(source).render({}, seconds=0.2)
        except RequestError as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=30)
    assert found == ["the chat template was stopped: it ran for more than 0.2 s"]


def test_the_character_limit_is_exact() -> None:
    template = Template("{{ x }}")
    # The text is charged when it is made (one more for the value) and when it is the result.
    assert template.render({"x": "a" * 100}, chars=201) == "a" * 100
    with pytest.raises(RequestError, match="made more than 200 characters"):
        template.render({"x": "a" * 100}, chars=200)


def test_what_a_template_raises_is_the_error() -> None:
    with pytest.raises(RequestError, match="refuses these messages: no system here"):
        Template("{{ raise_exception('no system here') }}").render({})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if %}", "line 1: "),
        ("\n\n{{ x | nope }}", "line 3: No filter named 'nope'"),
        ("{{ " + "(" * 9999 + ")" * 9999 + " }}", "RecursionError"),
        ("x" * (MAX_SOURCE + 1), f"the limit is {MAX_SOURCE}"),
    ],
)
def test_a_broken_template_says_where(source: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Template(source)
