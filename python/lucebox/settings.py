"""The environment variables that lucebox reads (docs/env.md); no other module reads any."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lucebox.errors import RequestError


@dataclass(frozen=True)
class Settings:
    model: str
    """LUCEBOX_MODEL: what the command line loads when no model is named."""
    threads: int
    """LUCEBOX_THREADS: threads of the CPU backend, 0 = one a physical core."""
    variant: str
    """LUCEBOX_VARIANT: the CPU kernels, "auto" = the fastest that this machine runs."""
    cache: Path
    """LUCEBOX_CACHE (or XDG_CACHE_HOME/lucebox): the folder for lock files."""


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Raises RequestError for a value that is none, with the variable's name."""
    threads = environ.get("LUCEBOX_THREADS", "0")
    if not threads.isdecimal() or int(threads) > 1024:
        raise RequestError(f"LUCEBOX_THREADS={threads}: a number from 0 to 1024 was expected (0 = one a physical core)")
    cache = environ.get("LUCEBOX_CACHE") or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lucebox"
    return Settings(
        model=environ.get("LUCEBOX_MODEL") or "nano",
        threads=int(threads),
        variant=environ.get("LUCEBOX_VARIANT") or "auto",
        cache=Path(cache),
    )
