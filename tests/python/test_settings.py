"""Environment variables: few, checked, documented, read in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lucebox import settings
from lucebox.errors import RequestError

ROOT = Path(__file__).parents[2]


def test_defaults() -> None:
    found = settings.read({})
    assert (found.model, found.threads, found.variant) == ("nano", 0, "auto")
    assert found.cache == Path.home() / ".cache" / "lucebox"


def test_values() -> None:
    names = {"LUCEBOX_MODEL": "m.gguf", "LUCEBOX_THREADS": "3", "LUCEBOX_VARIANT": "portable", "LUCEBOX_CACHE": "/c"}
    assert settings.read(names) == settings.Settings("m.gguf", 3, "portable", Path("/c"))
    assert settings.read({"XDG_CACHE_HOME": "/x"}).cache == Path("/x/lucebox")


@pytest.mark.parametrize("threads", ["", "-1", "1.5", "two", "1025"])
def test_a_wrong_value_is_an_error(threads: str) -> None:
    with pytest.raises(RequestError, match="LUCEBOX_THREADS="):
        settings.read({"LUCEBOX_THREADS": threads})


def test_every_variable_is_documented_and_read_in_settings_only() -> None:
    readers = ("python/lucebox/settings.py", "csrc/hip/runtime/driver.cpp")
    used = set(re.findall(r"LUCEBOX_[A-Z_]+", "".join((ROOT / reader).read_text() for reader in readers)))
    documented = set(re.findall(r"`(LUCEBOX_[A-Z_]+)`", (ROOT / "docs/env.md").read_text()))
    assert used == documented
    assert len(used) <= 8
    for path in (ROOT / "python/lucebox").rglob("*.py"):
        if path.name != "settings.py":
            assert not re.search(r"os\.environ|getenv", path.read_text()), path
