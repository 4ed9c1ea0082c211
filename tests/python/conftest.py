"""nano, loaded once: the Python tests run on the real model, in one thread, since test workers run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lucebox import _core, load
from lucebox.engine import BUNDLED, Engine
from lucebox.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with load("nano", max_ctx=512, threads=1) as engine:
        yield engine


@pytest.fixture(scope="session")
def nano_metadata() -> dict[str, Any]:
    return _core.GGUFFile(str(BUNDLED["nano"])).metadata


@pytest.fixture(scope="session")
def tokenizer(nano_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer(nano_metadata)
