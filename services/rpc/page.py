"""Pages of a listing: sizes and the opaque token that says where the next page begins."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.rpc.errors import InvalidArgumentError
from services.rpc.names import shown

T = TypeVar("T")

DEFAULT_SIZE = 100
LARGEST_SIZE = 1000
LARGEST_BYTES = 4 * 1024 * 1024
_CHECK_BYTES = 8  # finds tokens that were cut, mixed up or made up; not a secret


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a listing's items, and the token for those that follow; empty on the last page."""

    items: Sequence[T]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of a listing is wanted."""

    size: int
    after: str  # sort key of the last item already seen
    listing: str  # what is listed; a token is good for this only


def _check(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_CHECK_BYTES, person=b"page token").digest()


def _token(listing: str, after: str) -> str:
    payload = json.dumps([listing, after]).encode()
    return base64.urlsafe_b64encode(_check(payload) + payload).decode().rstrip("=")


def _refused(token: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(
        "page_token",
        f"{shown(token)} {why}; allowed: empty, or next_page_token of the same listing",
    )


def page_request(listing: str, size: int, token: str) -> PageRequest:
    """Check what a caller asks for: 0 is the default size, more than the largest is the largest."""
    if size < 0:
        raise InvalidArgumentError.of_field(
            "page_size", f"{size}; allowed: 0 (for {DEFAULT_SIZE}) to {LARGEST_SIZE}"
        )
    wanted = min(size or DEFAULT_SIZE, LARGEST_SIZE)
    if not token:
        return PageRequest(wanted, "", listing)
    try:
        padded = (token + "=" * (-len(token) % 4)).encode("ascii")
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise _refused(token, "is not a page token") from error
    payload = raw[_CHECK_BYTES:]
    if raw[:_CHECK_BYTES] != _check(payload):
        raise _refused(token, "is not a page token")
    of, after = json.loads(payload)
    if of != listing:
        raise _refused(token, f"is of the listing {of!a}, not of {listing!a}")
    return PageRequest(wanted, after, listing)


def cut(request: PageRequest, found: Sequence[T], key: Callable[[T], str]) -> Page[T]:
    """The page out of up to one item more than it holds, which tells whether there is another page.

    A page of large items is shorter than was asked for, so that it fits into one message.
    """
    items = found[: min(request.size, _fitting(found))]
    more = len(found) > len(items)
    return Page(items, _token(request.listing, key(items[-1])) if more else "")


def _fitting(found: Sequence[object]) -> int:
    """How many of the first items fit into a page, at least one. An item's ASCII form is longer than its message."""
    size = 0
    for count, item in enumerate(found):
        size += len(ascii(item))
        if size > LARGEST_BYTES:
            return max(count, 1)
    return len(found)
