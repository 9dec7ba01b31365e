"""Headers of GGUF files: what is true is read, what lies is refused before anything is done with it."""

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from services.modelfiles.errors import ModelFileError
from services.modelfiles.gguf_header import read_header
from tests.unit.modelfiles.raw_gguf import (
    ARRAY,
    FLOAT32,
    STRING,
    UINT32,
    RawGguf,
    array,
    key,
    number,
    tensor,
    text,
)
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

SECONDS = 2.0  # of computing that a refusal may take


def test_it_reads_what_the_gguf_package_reads(tmp_path: Path) -> None:
    """Keys, values, types, shapes and places are those that the package finds."""
    path = write_tiny(tmp_path / "m.gguf", Tiny(precision="Q4_1"))
    header, reader = read_header(path), GGUFReader(path)
    for name, value in header.metadata.items():
        theirs = reader.fields[name].contents()
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == theirs
    assert list(header.tensors) == [one.name for one in reader.tensors]
    for one in reader.tensors:
        ours = header.tensors[one.name]
        assert ours.type_name == one.tensor_type.name
        assert ours.shape == tuple(reversed(one.shape.tolist()))
        assert (ours.offset, ours.size_bytes) == (one.data_offset, one.n_bytes)


ENDLESS = 2**62
LIES = {
    "an empty file": (None, "file: 0 bytes"),
    "another magic": (RawGguf(magic=b"GGML"), "magic: b'GGML'; allowed: b'GGUF'"),
    "version 1": (RawGguf(version=struct.pack("<I", 1)), "version: 1; allowed: 2 or 3"),
    "a version of the future": (RawGguf(version=struct.pack("<I", 99)), "version: 99"),
    "the other byte order": (RawGguf(version=struct.pack(">I", 3)), "byte order: big-endian"),
    "more tensors than bytes": (RawGguf(tensor_count=ENDLESS), "number of tensors: 46116860184"),
    "one tensor too many": (RawGguf(tensor_count=3), "dimensions of ''"),
    "more keys than bytes": (RawGguf(key_count=ENDLESS), "number of keys: 46116860184"),
    "a key beyond the file": (
        RawGguf(keys=(struct.pack("<Q", ENDLESS) + b"x",)),
        "key 0: a text of 46116860184",
    ),
    "a key twice": (RawGguf(keys=(number("k", 1), number("k", 2))), "key 'k': is there twice"),
    "a key that is no text": (
        RawGguf(keys=(number("k", 1)[:8] + b"\xff\0\0\0",)),
        "key 0: no UTF-8",
    ),
    "a text beyond the file": (
        RawGguf(keys=(key("k", STRING, struct.pack("<Q", 10**6)),)),
        "value of 'k': 1000000 bytes at",
    ),
    "a text that is none": (
        RawGguf(keys=(key("k", STRING, text(b"\xff")),)),
        "value of 'k': no UTF-8",
    ),
    "a value of no type": (RawGguf(keys=(key("k", 77, b""),)), "value of 'k': type 77"),
    "an array beyond the file": (
        RawGguf(keys=(array("k", FLOAT32, ENDLESS, b""),)),
        "value of 'k': 18446744073709551616 bytes",
    ),
    "texts beyond the file": (
        RawGguf(keys=(array("k", STRING, ENDLESS, b""),)),
        "value of 'k', texts: 4611686018427387904; allowed: at most",
    ),
    "a text of an array beyond the file": (
        RawGguf(keys=(array("k", STRING, 1, struct.pack("<Q", ENDLESS)),)),
        "value of 'k', entry 0: ends beyond the file",
    ),
    "an array of arrays": (
        RawGguf(keys=(array("k", ARRAY, 1, struct.pack("<IQ", UINT32, 0)),)),
        "value of 'k': an array of type 9",
    ),
    "no dimensions": (RawGguf(tensors=(tensor("t", ()),)), "dimensions of 't': 0; allowed: 1 to 4"),
    "five dimensions": (RawGguf(tensors=(tensor("t", (1, 1, 1, 1, 32)),)), "dimensions of 't': 5"),
    "a size of zero": (
        RawGguf(tensors=(tensor("t", (32, 0)),)),
        r"shape of 't': \[0, 32\]; allowed: no size of 0",
    ),
    "sizes whose product overflows": (
        RawGguf(tensors=(tensor("t", (2**32, 2**32, 2**32)),)),
        "tensor 't': bytes",
    ),
    "a tensor beyond the file": (RawGguf(tensors=(tensor("t", (33,)),)), "tensor 't': bytes"),
    "an offset beyond the file": (
        RawGguf(tensors=(tensor("t", (32,), offset=2**40),)),
        "tensor 't': bytes 1099511627",
    ),
    "an offset that wraps around": (
        RawGguf(tensors=(tensor("t", (32,), offset=2**64 - 32),)),
        "tensor 't': bytes 1844674407370955",
    ),
    "an offset between two places": (
        RawGguf(tensors=(tensor("t", (8,), offset=4),)),
        "offset of 't': 4; allowed: multiples of 32",
    ),
    "two tensors in one place": (
        RawGguf(tensors=(tensor("a", (16,)), tensor("b", (16,), offset=32))),
        "tensor 'b': begins at .*, inside 'a'",
    ),
    "a tensor twice": (
        RawGguf(tensors=(tensor("t", (8,)), tensor("t", (8,), offset=32))),
        "tensor 't': is there twice",
    ),
    "half a block in a row": (
        RawGguf(tensors=(tensor("t", (48,), kind=3),)),
        r"shape of 't': \[48\]; allowed: rows of a multiple of 32",
    ),
    "an alignment that is no power of two": (
        RawGguf(keys=(number("general.alignment", 24),)),
        "general.alignment: 24; allowed: powers of two",
    ),
    "an alignment of zero": (
        RawGguf(keys=(number("general.alignment", 0),)),
        "general.alignment: 0",
    ),
}


@pytest.mark.parametrize(("raw", "said"), LIES.values(), ids=LIES.keys())
def test_lies_are_refused_at_once(tmp_path: Path, raw: RawGguf | None, said: str) -> None:
    """The text names the place, what is there and what is allowed; no count makes it work or take memory."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"") if raw is None else raw.write(path)
    begun = time.process_time()
    with pytest.raises(ModelFileError, match=said):
        read_header(path)
    assert time.process_time() - begun < SECONDS


def test_a_file_may_be_cut_anywhere(tmp_path: Path) -> None:
    """Whatever is missing at the end, it is a refusal, never another failure."""
    whole = write_tiny(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    begin = len(whole) // 3
    for length in [*range(400), *range(400, begin, 997), begin, len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            read_header(cut)


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """A header with a byte changed is read or refused; nothing else happens."""
    whole = bytearray(write_tiny(tmp_path / "m.gguf").read_bytes())
    random = np.random.default_rng(0)
    changed = tmp_path / "changed.gguf"
    refused = 0
    for at in random.integers(0, 12_000, 400).tolist():
        copy = bytearray(whole)
        copy[at] ^= int(random.integers(1, 256))
        changed.write_bytes(copy)
        try:
            read_header(changed)
        except ModelFileError:
            refused += 1
    assert refused > 20


def test_types_that_are_not_served_are_named(tmp_path: Path) -> None:
    """The header is read; whoever needs the tensor can say its type."""
    raw = RawGguf(tensors=(tensor("t", (256,), kind=23), tensor("u", (256,), kind=999)))
    header = read_header(raw.write(tmp_path / "m.gguf"))
    assert [(one.type, one.type_name) for one in header.tensors.values()] == [
        (None, "IQ4_XS"),
        (None, "number 999"),
    ]
