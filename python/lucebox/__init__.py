"""lucebox: stock GGUF files of the Qwen3.5, 3.6 and 3.8 hybrid models in, the same bits out on every backend."""

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

__all__ = [
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
    "__version__",
    "errors",
    "load",
]

__version__: str


def __getattr__(name: str) -> str:
    """Reads the version when it is asked for: the import that it takes is a tenth of the command's start."""
    if name != "__version__":
        raise AttributeError(f"module 'lucebox' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lucebox")
    except PackageNotFoundError:  # a source tree that was not installed
        return "0+source"
