"""Options of a request, and the file's advice."""

from __future__ import annotations

from typing import Any

import pytest
from lucebox.errors import RequestError
from lucebox.sampling import RequestOptions, defaults, unsupported


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", [0, 1e-9, 2.5], [-0.1, float("nan"), float("inf"), "1", True, None]),
        ("top_k", [0, 1, 2**31 - 1], [-1, 2**31, 1.5, True]),
        ("top_p", [1e-9, 1, 1.0], [0, -0.1, 1.1, float("nan")]),
        ("min_p", [0, 1], [-0.1, 1.1]),
        ("seed", [0, 2**64 - 1, None], [-1, 2**64, 1.0]),
        ("max_tokens", [0, 1, None], [-1, 1.0, "3"]),
        ("stop", [(), ("a", "b")], [("",), (3,), ("a", "")]),
    ],
)
def test_ranges(name: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert getattr(RequestOptions(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(RequestError, match=name):
            RequestOptions(**{name: value})


def test_defaults_are_the_files_over_the_familys(nano_metadata: dict[str, Any]) -> None:
    assert defaults(nano_metadata, thinking=True) == {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.0}
    assert defaults({}, thinking=True) == {"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
    assert defaults({"general.sampling.temp": 0.6}, thinking=False)["temperature"] == 0.6
    assert defaults({}, thinking=False) == {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}


def test_keys_without_a_counterpart_are_named(nano_metadata: dict[str, Any]) -> None:
    assert unsupported(nano_metadata) == []
    assert unsupported({"general.sampling.penalty_repeat": 1.1}) == ["general.sampling.penalty_repeat"]
