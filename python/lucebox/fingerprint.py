"""Which model a drafter was made for, as one value: the same for every quantisation of a model, another one for any other model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from lucebox import _core
from lucebox.errors import DrafterMismatchError

KEY = "lucebox.target.fingerprint"


def fingerprint(target: _core.GGUFFile) -> str:
    """SHA-256 in hexadecimal over the names and shapes of the target's tensors and its list of tokens (docs/models.md, "Fingerprint").

    Prediction blocks (MTP) count for nothing: files of a model come with and without them.
    """
    sha = hashlib.sha256()
    for line in sorted(_tensors(target)):
        sha.update(line)
    for token in target.metadata.get("tokenizer.ggml.tokens", []):
        text = str(token).encode("utf-8", "surrogateescape")
        sha.update(len(text).to_bytes(8, "little") + text)
    return sha.hexdigest()


def check(drafter: _core.GGUFFile, target: _core.GGUFFile) -> None:
    """Raises DrafterMismatchError where the drafter's file names another target; a file without the key is let pass."""
    recorded = drafter.metadata.get(KEY)
    if recorded is None:
        return
    found = fingerprint(target)
    if recorded != found:
        raise DrafterMismatchError(
            f"{drafter.path}: the drafter was made for the target {str(recorded)[:16]}…, and {target.path} is {found[:16]}…; "
            "use the drafter that was made for this target"
        )


def _tensors(target: _core.GGUFFile) -> Iterator[bytes]:
    layers = _core.ModelInfo(target).layers
    for tensor in target.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk" and len(parts) > 1 and parts[1].isdigit() and int(parts[1]) >= layers:
            continue
        yield f"{tensor.name} {' '.join(map(str, tensor.dims))}\n".encode("utf-8", "surrogateescape")
