"""The reader refuses what is malformed with an error that says where, reads what is not, and never crashes."""

from __future__ import annotations

import os
import struct
import time

import pytest
from gguf_files import ARRAY, Layout, T, pair, string
from lucebox._core import GGUFFile
from lucebox.errors import GGUFError

F32 = struct.pack("<8f", *range(8))
GOOD = Layout(
    pairs=[("general.architecture", "str", "none"), ("a.number", "u32", 7), ("a.list", "str[]", ["x", "yz"])],
    tensors=[T("one", [8], 0, F32), T("two", [4, 2], 0, F32)],
)


def opened(tmp_path, data: bytes) -> GGUFFile:
    path = tmp_path / "f.gguf"
    path.write_bytes(data)
    return GGUFFile(str(path))


def refused(tmp_path, data: bytes) -> GGUFError:
    with pytest.raises(GGUFError) as caught:
        opened(tmp_path, data)
    error = caught.value
    assert error.file == str(tmp_path / "f.gguf")
    assert error.file in str(error)
    assert 0 <= error.offset <= max(len(data), 24)
    return error


def one_key(key, kind, value) -> bytes:
    return Layout(pairs=[(key, kind, value)]).bytes()


def one_tensor(**changes) -> bytes:
    return Layout(tensors=[T(**({"name": "w", "dims": [8], "type": 0, "data": F32} | changes))]).bytes()


def array(element: int, count: int, rest: bytes = b"") -> bytes:
    return struct.pack("<IQ", element, count) + rest


BIG = 1 << 63
# name, bytes, field of the error, a part of its text
MALFORMED = [
    ("short", b"GGUF\x03\0\0\0" + bytes(15), "header", "23 bytes"),
    ("magic only", b"GGUF", "header", "4 bytes"),
    ("magic", Layout(magic=b"GGUX").bytes(), "magic", "GGUX"),
    ("version 0", Layout(version=0).bytes(), "version", "is 0"),
    ("version 1", Layout(version=1).bytes(), "version", "is 1"),
    ("version 4", Layout(version=4).bytes(), "version", "is 4"),
    ("big-endian", Layout(order=">").bytes(), "version", "big-endian"),
    ("tensor_count negative", Layout(tensor_count=-1).bytes(), "tensor_count", "is -1"),
    ("tensor_count absurd", Layout(tensor_count=1 << 40).bytes(), "tensor_count", str(1 << 40)),
    ("tensor_count one more", Layout(tensors=GOOD.tensors[:1], tensor_count=2).bytes(), "tensor number 1", ""),
    ("kv_count negative", Layout(kv_count=-5).bytes(), "kv_count", "is -5"),
    ("kv_count absurd", Layout(kv_count=(1 << 63) - 1).bytes(), "kv_count", str((1 << 63) - 1)),
    ("kv_count one more", Layout(pairs=GOOD.pairs, kv_count=4, tail=bytes(40)).bytes(), "key number 3", "0 bytes"),
    ("empty key", one_key("", "u32", 1), "key number 0", "0 bytes"),
    ("long key", one_key("k" * 65536, "u8", 1), "key number 0", "65536 bytes"),
    ("duplicate key", Layout(pairs=[("k", "u8", 1), ("k", "u8", 1)]).bytes(), "k", "twice, first at byte 24"),
    ("value type 13", one_key("k", 13, bytes(8)), "k", "value type 13"),
    ("value type -1", one_key("k", 0xFFFFFFFF, bytes(8)), "k", "value type 4294967295"),
    ("array of arrays", one_key("k", ARRAY, array(ARRAY, 1, array(0, 0))), "k", "array of arrays"),
    ("array of type 13", one_key("k", ARRAY, array(13, 1, bytes(8))), "k", "value type 13"),
    ("string too long", one_key("k", 8, struct.pack("<Q", 100) + b"abc"), "k", "100 times 1"),
    ("string length -1", one_key("k", 8, struct.pack("<q", -1)), "k", str((1 << 64) - 1)),
    ("key too long", struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1 << 62) + bytes(20), "key number 0", str(1 << 62)),
    ("array too long", one_key("k", ARRAY, array(0, 9, bytes(8))), "k", "9 times 1"),
    ("array product overflows", one_key("k", ARRAY, array(10, 1 << 61, bytes(8))), "k", str(1 << 61)),
    ("array of strings too long", one_key("k", ARRAY, array(8, 3, string("a") + string("b"))), "k", "3 times 8"),
    ("array of strings cut", one_key("k", ARRAY, array(8, 2, string("a" * 20) + string("b")[:5])), "k", "left"),
    ("array of bools too long", one_key("k", ARRAY, array(7, 1 << 50)), "k", str(1 << 50)),
    ("alignment u64", one_key("general.alignment", "u64", 32), "general.alignment", "u64"),
    ("alignment str", one_key("general.alignment", "str", "32"), "general.alignment", "str"),
    ("alignment 0", one_key("general.alignment", "u32", 0), "general.alignment", "is 0"),
    ("alignment 24", one_key("general.alignment", "u32", 24), "general.alignment", "is 24"),
    ("5 dims", one_tensor(dims=[8, 1, 1, 1, 1]), "w", "5 dimensions"),
    ("n_dims absurd", one_tensor(n_dims=0xFFFFFFFF), "w", "4294967295 dimensions"),
    ("negative dim", one_tensor(dims=[8, BIG]), "w", str(-BIG)),
    ("product of dims", one_tensor(dims=[1 << 31, 1 << 31, 2]), "w", "2^63"),
    ("product wraps to 0", one_tensor(dims=[1 << 32, 1 << 32]), "w", "2^63"),
    ("byte size", one_tensor(dims=[1 << 31, 1 << 30]), "w", "2^63"),
    ("name of 64 bytes", one_tensor(name="n" * 64), "tensor number 0", "64 bytes"),
    ("duplicate tensor", Layout(tensors=[T("w", [8], 0, F32)] * 2).bytes(), "w", "twice"),
    (
        "row no multiple of block",
        one_tensor(dims=[48, 2], type=2, data=bytes(54)),
        "w",
        "rows of 48 values; type q4_0 needs a multiple of 32",
    ),
    ("offset not aligned", one_tensor(offset=4), "w", "offset 4"),
    (
        "gap",
        Layout(tensors=[T("a", [8], 0, F32), T("w", [8], 0, F32, offset=64)], tail=bytes(99)).bytes(),
        "w",
        "offset 64; the tensors before it end at 32",
    ),
    ("overlap", Layout(tensors=[T("a", [8], 0, F32), T("w", [8], 0, F32, offset=0)]).bytes(), "w", "offset 0"),
    ("data cut", one_tensor()[:-1], "w", "is the download complete?"),
    ("no data at all", Layout(tensors=[T("w", [1 << 40], 0)]).bytes(), "w", "is the download complete?"),
    ("sum of sizes", Layout(tensors=[T("a", [1 << 60], 0), T("w", [1 << 60], 0, offset=1 << 62)]).bytes(), "w", "2^63"),
]
MALFORMED += [
    (f"type {i}", one_tensor(type=i), "w", f"type {i} is not a ggml type (known: 0 f32, 1 f16,")
    for i in (4, 5, 31, 32, 33, 36, 37, 38, 43, 100, 103, 142, 255, 0xFFFFFFFF)
]


@pytest.mark.parametrize(("data", "field", "text"), [c[1:] for c in MALFORMED], ids=[c[0] for c in MALFORMED])
def test_malformed(tmp_path, data, field, text):
    error = refused(tmp_path, data)
    assert error.field == field
    assert text in str(error)
    assert f"byte {error.offset}" in str(error)


def test_offsets_name_the_place(tmp_path):
    prefix = Layout(pairs=[("first", "u8", 1)]).bytes()
    data = Layout(pairs=[("first", "u8", 1), ("general.alignment", "u32", 24)]).bytes()
    assert refused(tmp_path, data).offset == len(prefix)
    data = Layout(pairs=[("first", "u8", 1), ("k", 13, bytes(8))]).bytes()
    assert refused(tmp_path, data).offset == len(prefix) + len(string("k")) + 4
    assert refused(tmp_path, one_tensor()[:-1]).offset == 24


OTHER_FILES = [
    (b"", "is empty"),
    (b"PK\x03\x04" + bytes(60), "ZIP archive"),
    (struct.pack("<Q", 80) + b'{"__metadata__":{}}' + bytes(60), "safetensors"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    (b"<!DOCTYPE html><html></html>", "HTML"),
    (b'{"error":"not found"}', "JSON"),
    (b"tjgg" + bytes(60), "before GGUF"),
    (b"\x1f\x8b" + bytes(60), "gzip"),
    (b"hello", '"hell"'),
    (b"\x00\xff\x7f\n" * 9, r"\x00\xff\x7f\x0a"),
    (b"GG", "2 bytes"),
]


@pytest.mark.parametrize(("data", "text"), OTHER_FILES, ids=[c[1] for c in OTHER_FILES])
def test_file_of_another_format(tmp_path, data, text):
    assert text in str(refused(tmp_path, data))


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, text in (
        (tmp_path, "a directory"),
        (tmp_path / "fifo", "a FIFO"),
        ("/dev/null", "a device"),
        (tmp_path / "no", "No such file"),
    ):
        with pytest.raises(GGUFError, match=text) as caught:
            GGUFFile(str(path))
        assert (caught.value.file, caught.value.field, caught.value.offset) == (str(path), "file", 0)


@pytest.mark.parametrize("element", [0, 7, 8, 10])
def test_a_sparse_file_cannot_ask_for_memory(tmp_path, element):
    """The bytes that an array claims are really there, as a hole of 8 TB; the header's own limit ends it."""
    path = tmp_path / "f.gguf"
    path.write_bytes(one_key("k", ARRAY, array(element, 1 << 40)))
    try:
        os.truncate(path, 1 << 43)
    except OSError:
        os.truncate(path, 1 << 40)
    started = time.monotonic()
    with pytest.raises(GGUFError, match="that a header may have"):
        GGUFFile(str(path))
    assert time.monotonic() - started < 5


ALL_VALUES = [
    ("t.u8", "u8", 255),
    ("t.i8", "i8", -128),
    ("t.u16", "u16", 65535),
    ("t.i16", "i16", -32768),
    ("t.u32", "u32", (1 << 32) - 1),
    ("t.i32", "i32", -(1 << 31)),
    ("t.f32", "f32", 0.5),
    ("t.bool", "bool", 1),
    ("t.str", "str", "Grüße"),
    ("t.u64", "u64", (1 << 64) - 1),
    ("t.i64", "i64", -(1 << 63)),
    ("t.f64", "f64", 0.1),
    ("t.u8[]", "u8[]", [0, 255]),
    ("t.i64[]", "i64[]", [-1]),
    ("t.f32[]", "f32[]", [1.5]),
    ("t.bool[]", "bool[]", [True, False]),
    ("t.str[]", "str[]", ["", "b"]),
    ("t.empty", "u32[]", []),
]


@pytest.mark.parametrize("version", [2, 3])
def test_values(tmp_path, version):
    file = opened(tmp_path, Layout(pairs=ALL_VALUES, version=version).bytes())
    assert file.version == version
    assert file.metadata == {key: value for key, _, value in ALL_VALUES}
    assert [(k, type(v)) for k, v in file.metadata.items()] == [
        (k, type(v) if k != "t.bool" else bool) for k, _, v in ALL_VALUES
    ]


def test_strings_may_hold_any_bytes(tmp_path):
    raw = b"\xff\x00\xc3"
    file = opened(tmp_path, Layout(pairs=[("s", "str", raw), (b"\xfe", "str[]", [raw])]).bytes())
    text = raw.decode(errors="surrogateescape")
    assert file.metadata == {"s": text, "\udcfe": [text]}
    assert file.metadata["s"].encode(errors="surrogateescape") == raw


def test_a_bool_is_true_unless_zero(tmp_path):
    file = opened(tmp_path, Layout(pairs=[("b", 7, b"\x02"), ("c", ARRAY, array(7, 3, b"\0\xff\1"))]).bytes())
    assert file.metadata == {"b": True, "c": [False, True, True]}


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_tensors(tmp_path, alignment):
    pairs = [] if alignment == 32 else [("general.alignment", "u32", alignment)]
    tensors = [
        T("a", [3], 24, b"abc"),
        T("b", [32, 2], 8, bytes(range(68))),
        T("c", [2, 2, 1, 1], 0, F32[:16]),
        T("n" * 63, [], 0, F32[:4]),
    ]
    data = Layout(pairs=pairs, tensors=tensors, alignment=alignment).bytes()
    for tail in (b"", bytes(999)):  # the last padding may be missing, and bytes may follow
        file = opened(tmp_path, data + tail)
        assert file.alignment == alignment
        assert file.nbytes == len(data + tail)
        assert [(t.name, t.type, t.dims, t.nbytes, t.part) for t in file.tensors] == [
            ("a", "i8", [3], 3, 0),
            ("b", "q8_0", [32, 2], 68, 0),
            ("c", "f32", [2, 2, 1, 1], 16, 0),
            ("n" * 63, "f32", [1], 4, 0),
        ]
        for t, made in zip(file.tensors, tensors, strict=True):
            assert t.offset % alignment == 0
            assert bytes(file.data(t.name)) == made.data == data[t.offset : t.offset + t.nbytes]
        assert not file.data("b").flags.writeable
    with pytest.raises(KeyError):
        file.data("d")


def test_data_outlives_the_file_object(tmp_path):
    data = opened(tmp_path, one_tensor()).data("w")
    tensors = opened(tmp_path, one_tensor()).tensors
    assert bytes(data) == F32
    assert tensors[0].name == "w"


def read_all(path) -> None:
    file = GGUFFile(str(path))
    assert len(file.metadata) >= 0
    for tensor in file.tensors:
        file.data(tensor.name).sum()


def test_cut_at_every_byte(tmp_path):
    data, path = GOOD.bytes(), tmp_path / "f.gguf"
    for n in range(len(data)):
        path.write_bytes(data[:n])
        with pytest.raises(GGUFError):
            GGUFFile(str(path))
    path.write_bytes(data)
    read_all(path)


def test_every_header_byte_changed(tmp_path):
    """A changed byte gives a file that is still one, or an error; never a crash, never a wait."""
    data, path = GOOD.bytes(), tmp_path / "f.gguf"
    started, read = time.monotonic(), 0
    for at in range(len(GOOD.header())):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(data)
            changed[at] ^= change
            path.write_bytes(changed)
            try:
                read_all(path)
                read += 1
            except GGUFError as error:
                assert 0 <= error.offset <= len(data)
    assert read > 0
    assert time.monotonic() - started < 60


def changed_after_open(tmp_path, change) -> GGUFError:
    path = tmp_path / "f.gguf"
    path.write_bytes(one_tensor())
    os.utime(path, ns=(1, 1))
    file = GGUFFile(str(path))
    assert bytes(file.data("w")) == F32
    change(path)
    with pytest.raises(GGUFError) as caught:
        file.data("w")
    return caught.value


def test_a_file_that_changes_after_it_was_opened(tmp_path):
    size = len(one_tensor())
    shrunk = changed_after_open(tmp_path, lambda p: os.truncate(p, 30))
    assert f"had {size} bytes when it was opened and has 30 now" in str(shrunk)
    assert "was written to" in str(changed_after_open(tmp_path, lambda p: p.write_bytes(one_tensor())))
    assert "is gone" in str(changed_after_open(tmp_path, os.unlink))
    other = tmp_path / "other"
    other.write_bytes(one_tensor())
    os.utime(other, ns=(1, 1))
    assert "was replaced" in str(changed_after_open(tmp_path, lambda p: os.replace(other, p)))


def split(tmp_path, names=("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"), **changes):
    """Three parts; changes: part number -> (pairs, tensors) in place of the right ones."""
    for i, name in enumerate(names):
        pairs = [("split.no", "u16", i), ("split.count", "u16", 3), ("split.tensors.count", "i32", 3)]
        tensors = [T(f"t{i}", [8], 0, F32)]
        if i == 0:
            pairs.append(("general.architecture", "str", "none"))
        if f"part{i}" in changes:
            pairs, tensors = changes[f"part{i}"](pairs, tensors)
        (tmp_path / name).write_bytes(Layout(pairs=pairs, tensors=tensors).bytes())
    return str(tmp_path / names[0])


def test_split(tmp_path):
    file = GGUFFile(split(tmp_path))
    assert [os.path.basename(p) for p in file.parts] == [
        "m-00001-of-00003.gguf",
        "m-00002-of-00003.gguf",
        "m-00003-of-00003.gguf",
    ]
    assert [(t.name, t.part) for t in file.tensors] == [("t0", 0), ("t1", 1), ("t2", 2)]
    assert file.nbytes == sum(os.path.getsize(p) for p in file.parts)
    assert bytes(file.data("t2")) == F32
    assert file.metadata["general.architecture"] == "none"


def test_split_whose_first_part_has_no_tensors_and_other_integer_types(tmp_path):
    def first(pairs, tensors):
        return [("split.no", "u32", 0), ("split.count", "i64", 3), ("split.tensors.count", "u64", 2)], []

    file = GGUFFile(
        split(tmp_path, part0=first, part2=lambda p, t: ([("split.no", "i8", 2), ("split.count", "u8", 3)], t))
    )
    assert [t.name for t in file.tensors] == ["t1", "t2"]


def replaced(key, kind, value):
    return lambda pairs, tensors: ([p if p[0] != key else (key, kind, value) for p in pairs], tensors)


def without(key):
    return lambda pairs, tensors: ([p for p in pairs if p[0] != key], tensors)


SPLIT_FAULTS = [
    ("wrong number", {"part1": replaced("split.no", "u16", 2)}, 1, "split.no", "is 2; the split's first part wants 1"),
    ("number as text", {"part1": replaced("split.no", "str", "1")}, 1, "split.no", "of type str"),
    ("no number", {"part1": without("split.no")}, 1, "split.no", "not in the file"),
    ("other count", {"part2": replaced("split.count", "u16", 4)}, 2, "split.count", "is 4"),
    ("no count", {"part2": without("split.count")}, 2, "split.count", "not in the file"),
    ("same tensor twice", {"part2": lambda p, t: (p, [T("t0", [8], 0, F32)])}, 2, "t0", "part 1 and again in part 3"),
    (
        "total",
        {"part0": replaced("split.tensors.count", "i32", 4)},
        0,
        "split.tensors.count",
        "is 4, and the 3 parts hold 3",
    ),
    ("no total", {"part0": without("split.tensors.count")}, 0, "split.tensors.count", "not in the file"),
    ("first is not first", {"part0": replaced("split.no", "u16", 1)}, 0, "split.no", "open the first part"),
    ("absurd count", {"part0": replaced("split.count", "i64", 1 << 40)}, 0, "split.count", "0 to 65535"),
    ("malformed part", {"part1": lambda p, t: (p, [T("t1", [8], 103, F32)])}, 1, "t1", "type 103"),
]


@pytest.mark.parametrize(
    ("changes", "part", "field", "text"), [c[1:] for c in SPLIT_FAULTS], ids=[c[0] for c in SPLIT_FAULTS]
)
def test_split_faults(tmp_path, changes, part, field, text):
    path = split(tmp_path, **changes)
    with pytest.raises(GGUFError) as caught:
        GGUFFile(path)
    error = caught.value
    assert os.path.basename(error.file) == f"m-0000{part + 1}-of-00003.gguf"
    assert error.field == field
    assert text in str(error)


def test_split_with_a_part_missing_or_misnamed(tmp_path):
    path = split(tmp_path)
    second = str(tmp_path / "m-00002-of-00003.gguf")
    with pytest.raises(GGUFError, match="this is part 2 of 3; open the first part"):
        GGUFFile(second)
    os.unlink(second)
    with pytest.raises(GGUFError, match="No such file") as caught:
        GGUFFile(path)
    assert caught.value.file == second
    os.rename(path, tmp_path / "renamed.gguf")
    with pytest.raises(GGUFError, match=r"should end in -00001-of-00003\.gguf"):
        GGUFFile(str(tmp_path / "renamed.gguf"))


def test_paths(tmp_path):
    path = tmp_path / "Größe \U0001f4e6.gguf"
    path.write_bytes(one_tensor())
    assert GGUFFile(str(path)).path == str(path)
    raw = os.fsencode(tmp_path) + b"/\xff.gguf"
    os.rename(path, raw)
    assert os.fsencode(GGUFFile(os.fsdecode(raw)).path) == raw
    with pytest.raises(ValueError):
        GGUFFile("a\0b")


def test_pair_helper_is_what_the_format_says():
    assert pair("k", "u8[]", [7]) == b"\x01" + bytes(7) + b"k" + b"\x09\0\0\0" + bytes(4) + b"\x01" + bytes(7) + b"\x07"


def test_empty_names_and_dims_are_read(tmp_path):
    """A model that needs such a tensor refuses it by its shape."""
    file = opened(
        tmp_path,
        Layout(tensors=[T("", [8], 0, F32), T("z", [0, 3], 0), T("q", [0], 8), T("s", [], 0, F32[:4])]).bytes(),
    )
    assert [(t.name, t.dims, t.nbytes) for t in file.tensors] == [
        ("", [8], 32),
        ("z", [0, 3], 0),
        ("q", [0], 0),
        ("s", [1], 4),
    ]
    assert file.data("z").size == 0
