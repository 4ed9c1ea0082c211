"""lucebox: stock GGUF files of the Qwen3.5, 3.6 and 3.8 hybrid models in, the same bits out on every backend."""

from typing import Any

from lucebox import errors
from lucebox.engine import Engine, load
from lucebox.errors import (
    ContextFullError,
    DeviceError,
    DrafterMismatchError,
    Error,
    GGUFError,
    OutOfMemoryError,
    RequestError,
    UnsupportedModelError,
)
from lucebox.generation import Piece
from lucebox.speculation import Block, Verified, draft, verify

__all__ = [
    "Block",
    "ContextFullError",
    "DeviceError",
    "DrafterMismatchError",
    "Engine",
    "Error",
    "GGUFError",
    "OutOfMemoryError",
    "Piece",
    "RequestError",
    "UnsupportedModelError",
    "Verified",
    "__version__",
    "draft",
    "errors",
    "load",
    "serve",
    "verify",
]

__version__: str


def serve(engine: Engine, **options: Any) -> int:
    """Serves the engine over HTTP until SIGTERM or Ctrl-C; returns the exit code.

    options: the fields of lucebox.server.config.ServerConfig. Load the engine with as many slots as requests may run
    at once. Raises RequestError for an option, or an address that cannot be listened on.
    """
    from lucebox.server.config import ServerConfig
    from lucebox.server.run import serve

    return serve(engine, ServerConfig(**options))


def __getattr__(name: str) -> str:
    """Reads the version when it is asked for: the import that it takes is a tenth of the command's start."""
    if name != "__version__":
        raise AttributeError(f"module 'lucebox' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lucebox")
    except PackageNotFoundError:  # a source tree that was not installed
        return "0+source"
