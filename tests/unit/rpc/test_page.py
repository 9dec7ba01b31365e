"""Pages and their tokens."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rpc.errors import InvalidArgumentError
from services.rpc.page import cut, page_request


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), unique=True, max_size=30), st.integers(1, 7))
def test_pages_together_are_the_listing(keys: list[str], size: int) -> None:
    """Page after page, every item comes once and in order, whatever the keys hold."""
    listing = sorted(keys)
    seen: list[str] = []
    token = ""
    while True:
        request = page_request("things", size, token)
        rest = [key for key in listing if key > request.after or not token]
        page = cut(request, rest[: request.size + 1], lambda key: key)
        seen += page.items
        token = page.next_page_token
        if not token:
            break
    assert seen == listing


@pytest.mark.parametrize(("size", "means"), [(0, 100), (1, 1), (1000, 1000), (1001, 1000)])
def test_sizes(size: int, means: int) -> None:
    """0 is the default and the largest is a cap, not an error."""
    assert page_request("things", size, "").size == means


def test_a_negative_size_is_refused() -> None:
    """The message says what is allowed."""
    with pytest.raises(
        InvalidArgumentError, match=r"page_size: -1; allowed: 0 \(for 100\) to 1000"
    ):
        page_request("things", -1, "")


def test_a_page_of_large_items_is_shorter() -> None:
    """What would not fit into one message goes to the next page; one item always fits."""
    listing = [f"{number}{'x' * 3_000_000}" for number in range(3)]
    first = cut(page_request("things", 10, ""), listing, lambda item: item[0])
    assert [item[0] for item in first.items] == ["0"]
    assert page_request("things", 10, first.next_page_token).after == "0"
    small = cut(page_request("things", 10, ""), ["x" * 5_000_000], lambda item: item[0])
    assert (len(small.items), small.next_page_token) == (1, "")


def a_token(listing: str = "things") -> str:
    return cut(page_request(listing, 1, ""), ["a", "b"], lambda key: key).next_page_token


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "AAAA",
        "ü",
        "=" * 8,
        a_token()[:-1],
        a_token()[1:],
        a_token("others"),
        base64.urlsafe_b64encode(b'12345678["things", "a"]').decode(),
        "A" * 10_000,
    ],
)
def test_tokens_that_are_refused(token: str) -> None:
    """Tokens that were cut, made up, or belong to another listing."""
    with pytest.raises(InvalidArgumentError) as refused:
        page_request("things", 0, token)
    assert [violation.field for violation in refused.value.violations] == ["page_token"]
    assert len(refused.value.message) < 300
