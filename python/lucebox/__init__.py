"""lucebox: stock GGUF files of the Qwen3.5, 3.6 and 3.8 hybrid models in, the same bits out on every backend."""

from importlib.metadata import PackageNotFoundError, version

from lucebox import errors
from lucebox.engine import Engine, load
from lucebox.generation import Piece

try:
    __version__ = version("lucebox")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+source"

__all__ = ["Engine", "Piece", "__version__", "errors", "load"]
