"""The text of tokens as they come: whole characters only, and nothing lost."""

import codecs


class Detokenizer:
    """Decodes one text's bytes.

    All that it gives, joined, is what `bytes.decode("utf-8", "replace")` makes of all bytes at once, wherever tokens
    cut them: a character begun waits for its other bytes, bytes that can't become one are U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: bytes) -> str:
        """Characters that are whole with this token."""
        return self._decoder.decode(token)

    def flush(self) -> str:
        """What can't become whole any more: nothing, or U+FFFD."""
        return self._decoder.decode(b"", final=True)
