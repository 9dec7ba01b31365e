"""What the `tokenizers` library raises, as something that can be caught by name."""

from collections.abc import Iterator
from contextlib import contextmanager

# A failed assertion in Rust: no Exception, and its class can't be imported.
_PANIC = "PanicException"


class TokenizersError(Exception):
    """The library can't read a file, or fails on a text."""


@contextmanager
def renamed() -> Iterator[None]:
    """Whatever the library raises inside is a TokenizersError."""
    try:
        yield
    except Exception as error:
        raise TokenizersError(str(error)) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise TokenizersError(str(error)) from error
