"""What the writer writes is read back the same by lucebox and by the `gguf` package; what fails leaves no file."""

from __future__ import annotations

import os
import struct

import gguf
import numpy as np
import pytest
from gguf_files import Layout, T
from hypothesis import given, settings
from hypothesis import strategies as st
from lucebox._core import GGUFFile, write_gguf
from lucebox.errors import GGUFError, RequestError

EIGHT = np.arange(8, dtype=np.float32).view(np.uint8)
TENSORS = [
    ("one", "f32", [8], EIGHT),
    ("two", "q8_0", [32, 2], np.arange(68, dtype=np.uint8)),
    ("last", "i8", [3], EIGHT[:3]),
]
METADATA = [("general.architecture", "str", "none"), ("list", "i16[]", [-1, 2]), ("flag", "bool", True)]


def test_bytes(tmp_path):
    path = tmp_path / "f.gguf"
    write_gguf(str(path), METADATA, TENSORS)
    wanted = Layout(
        pairs=METADATA,
        tensors=[
            T("one", [8], 0, EIGHT.tobytes()),
            T("two", [32, 2], 8, bytes(range(68))),
            T("last", [3], 24, bytes(3)),
        ],
    )
    assert path.read_bytes() == wanted.bytes() + bytes(29)  # the padding after the last tensor is written


@pytest.mark.parametrize("alignment", [1, 8, 32, 256])
def test_alignment(tmp_path, alignment):
    path = str(tmp_path / "f.gguf")
    write_gguf(path, METADATA, TENSORS, alignment)
    file = GGUFFile(path)
    assert file.alignment == alignment
    assert file.metadata.get("general.alignment") == (None if alignment == 32 else alignment)
    assert all(t.offset % alignment == 0 for t in file.tensors)
    for name, _, _, data in TENSORS:
        assert (file.data(name) == data.reshape(-1)).all()


def test_the_gguf_package_reads_it(tmp_path):
    path = str(tmp_path / "f.gguf")
    write_gguf(path, METADATA, TENSORS)
    reader = gguf.GGUFReader(path)
    assert reader.fields["list"].contents() == [-1, 2]
    assert [(t.name, t.tensor_type.name) for t in reader.tensors] == [("one", "F32"), ("two", "Q8_0"), ("last", "I8")]
    assert (reader.tensors[0].data == np.arange(8)).all()


KINDS = {
    "u8": st.integers(0, 255),
    "i8": st.integers(-128, 127),
    "u16": st.integers(0, 65535),
    "i16": st.integers(-32768, 32767),
    "u32": st.integers(0, 2**32 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f32": st.floats(width=32, allow_nan=False),
    "f64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "str": st.text(st.characters(exclude_categories=[])).filter(
        lambda s: not any(0xD800 <= ord(c) < 0xDC80 or 0xDD00 <= ord(c) < 0xE000 for c in s)
    ),
}
VALUES = st.one_of(
    *[st.tuples(st.just(k), s) for k, s in KINDS.items()],
    *[st.tuples(st.just(k + "[]"), st.lists(s, max_size=5)) for k, s in KINDS.items()],
)


def normal(value):
    """Surrogate escapes of bytes that are UTF-8 after all become the character, as when they are read."""
    if isinstance(value, list):
        return [normal(v) for v in value]
    return value.encode(errors="surrogateescape").decode(errors="surrogateescape") if isinstance(value, str) else value


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text("abcdef._0123", min_size=1), VALUES, max_size=6))
def test_any_metadata_comes_back(tmp_path_factory, values):
    path = str(tmp_path_factory.mktemp("w") / "f.gguf")
    values.pop("general.alignment", None)
    write_gguf(path, [(key, kind, value) for key, (kind, value) in values.items()], [])
    read = GGUFFile(path).metadata
    assert read == {key: normal(value) for key, (_, value) in values.items()}
    assert list(read) == list(values)


REFUSED = [
    ("u8 too large", [("k", "u8", 256)], [], "256 does not fit; 0 to 255"),
    ("negative u32", [("k", "u32", -1)], [], "-1 cannot be written as u32"),
    ("i8 too small", [("k", "i8[]", [0, -129])], [], "-129 does not fit"),
    ("above u64", [("k", "u64", 1 << 64)], [], "cannot be written as u64"),
    ("text as number", [("k", "i32", "1")], [], "'1' cannot be written as i32"),
    ("number as text", [("k", "str", 1)], [], "1 cannot be written as str"),
    ("unknown kind", [("k", "u24", 1)], [], '"u24" is no type'),
    ("array of arrays", [("k", "u8[][]", [[1]])], [], "is no type"),
    ("empty key", [("", "u8", 1)], [], "0 bytes"),
    ("long key", [("k" * 65536, "u8", 1)], [], "65536 bytes"),
    ("key twice", [("k", "u8", 1), ("k", "u8", 2)], [], "k is given twice"),
    ("other alignment", [("general.alignment", "u32", 64)], [], "general.alignment"),
    ("tensor twice", [], [TENSORS[0], TENSORS[0]], "one is given twice"),
    ("long name", [], [("n" * 64, "f32", [8], EIGHT)], "64 bytes"),
    ("no name", [], [("", "f32", [8], EIGHT)], "0 bytes"),
    ("unknown type", [], [("t", "q9_9", [8], EIGHT)], '"q9_9" is no tensor type'),
    ("no dims", [], [("t", "f32", [], EIGHT)], "0 dimensions"),
    ("5 dims", [], [("t", "f32", [8, 1, 1, 1, 1], EIGHT)], "5 dimensions"),
    ("a dim of 0", [], [("t", "f32", [8, 0], EIGHT[:0])], "dimension 1 is 0"),
    ("too large", [], [("t", "f32", [1 << 31, 1 << 31], EIGHT)], "2^62"),
    ("no whole block", [], [("t", "q8_0", [16], EIGHT)], "a multiple of 32"),
    ("too little data", [], [("t", "f32", [8], EIGHT[:31])], "has 31 bytes of data; its dimensions and type make 32"),
    ("too much data", [], [("t", "f32", [7], EIGHT)], "has 32 bytes"),
]


@pytest.mark.parametrize(("metadata", "tensors", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(tmp_path, metadata, tensors, text):
    path = tmp_path / "f.gguf"
    path.write_text("before")
    with pytest.raises(RequestError) as caught:
        write_gguf(str(path), metadata, tensors)
    assert text in str(caught.value)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["f.gguf"]


@pytest.mark.parametrize("alignment", [0, 24, 1 << 32])
def test_refused_alignment(tmp_path, alignment):
    with pytest.raises(RequestError, match="power of two"):
        write_gguf(str(tmp_path / "f.gguf"), [], TENSORS, alignment)
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(GGUFError, match="cannot be created: No such file"):
        write_gguf(str(tmp_path / "no" / "f.gguf"), METADATA, TENSORS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(GGUFError, match="cannot be put in place"):
        write_gguf(str(tmp_path / "folder"), METADATA, TENSORS)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk(tmp_path):
    """A file-size limit stands for a full disk: the write fails in the middle of a tensor."""
    pid = os.fork()
    if pid == 0:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            write_gguf(str(tmp_path / "f.gguf"), [], [("t", "i8", [100000], np.zeros(100000, np.uint8))])
        except GGUFError as error:
            os._exit(0 if "File too large" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.listdir(tmp_path) == []


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_gguf(str(tmp_path / "f.gguf"), [], [])
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "f.gguf").st_mode & 0o777 == 0o640
    assert (tmp_path / "f.gguf").read_bytes()[:24] == struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
