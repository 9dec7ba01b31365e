"""JSON bodies of Triton's repository methods."""

import pytest

from services.registry.servicers.repository_bodies import read_body, read_parameters, read_ready
from services.rpc.errors import InvalidArgumentError


def test_bodies_that_are_read() -> None:
    """No body at all is an empty object; what else is in it is passed over, as Triton does."""
    assert read_body(b"") == read_body(b" \n") == {}
    said = read_body(b'{"ready": true, "parameters": {"version": "2"}, "other": 1}')
    assert read_ready(said)
    assert read_parameters(said) == {"version": "2"}
    assert not read_ready({})
    assert read_parameters({}) == {}


def read_all(body: bytes) -> None:
    said = read_body(body)
    read_ready(said)
    read_parameters(said)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "body: is no JSON"),
        (b"[1]", "body: '[1]'; allowed: a JSON object"),
        (b'{"ready": 1}', "ready: '1'; allowed: true or false"),
        (b'{"parameters": []}', "parameters: '[]'; allowed: an object"),
    ],
)
def test_bodies_that_are_refused(body: bytes, text: str) -> None:
    """What is wrong is named with what is allowed."""
    with pytest.raises(InvalidArgumentError) as refused:
        read_all(body)
    assert text in refused.value.message
