"""Bytes in a service's metadata: within Consul's limits, read back as they were, and never trusted."""

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc import consul_meta
from services.rpc.consul_meta import CAPACITY, MOST_PAIRS, MOST_VALUE_BYTES, MetaError


def noise(count: int) -> bytes:
    """Bytes that can't be compressed."""
    return random.Random(1).randbytes(count)


@given(st.binary(max_size=5000))
def test_round_trip(content: bytes) -> None:
    """What is unpacked is what was packed, and every pair keeps to the limits."""
    meta = consul_meta.pack(content)
    assert meta is not None
    assert consul_meta.unpack(meta) == content
    assert all(len(value) <= MOST_VALUE_BYTES for value in meta.values())


def test_the_most_that_fits() -> None:
    """All that fits leaves pairs for people; one byte more is refused."""
    overhead = len(zlib.compress(noise(CAPACITY), 9)) - CAPACITY
    meta = consul_meta.pack(noise(CAPACITY - overhead))
    assert meta is not None
    assert len(meta) <= MOST_PAIRS - 5
    assert all(len(key) <= consul_meta.MOST_KEY_BYTES for key in meta)
    assert consul_meta.pack(noise(CAPACITY + 1)) is None


def bomb() -> dict[str, str]:
    """Much from little."""
    packed = base64.b64encode(zlib.compress(b"\0" * 20_000_000, 9)).decode()
    chunks = [packed[at : at + 512] for at in range(0, len(packed), 512)]
    return {
        "chunks": str(len(chunks)),
        **{f"worker-{number:02d}": chunk for number, chunk in enumerate(chunks)},
    }


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"chunks": "x"}, id="no count"),
        pytest.param({"chunks": "0"}, id="none"),
        pytest.param({"chunks": "99"}, id="more chunks than there may be"),
        pytest.param({"chunks": "2", "worker-00": "eA=="}, id="a chunk is missing"),
        pytest.param({"chunks": "1", "worker-00": "!!"}, id="not of base64"),
        pytest.param({"chunks": "1", "worker-00": "eA=="}, id="not compressed"),
        pytest.param(
            {"chunks": "1", "worker-00": base64.b64encode(zlib.compress(noise(99))[:50]).decode()},
            id="cut short",
        ),
        pytest.param(bomb(), id="more than anybody's metadata may become"),
    ],
)
def test_damaged(meta: dict[str, str]) -> None:
    """Foreign or damaged metadata is an error, whatever it is."""
    with pytest.raises(MetaError):
        consul_meta.unpack(meta)
