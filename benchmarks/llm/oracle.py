"""What llama.cpp's server says of tokens, templates and texts: the reference that ours is held against."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LIMIT = 300.0  # seconds


class OracleError(OSError):
    """It refused; the text says what it said."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """A running server."""

    address: str

    def tokens(self, text: str) -> list[int]:
        """Names of special tokens in the text are those tokens; none is put in front."""
        asked = {"content": text, "add_special": False, "parse_special": True}
        return [int(token) for token in self._ask("/tokenize", asked)["tokens"]]

    def template(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The conversation, written out."""
        return str(self._ask("/apply-template", {"messages": messages})["prompt"])

    def continued(self, prompt: Sequence[int], new: int) -> list[int]:
        """The likeliest tokens that follow."""
        asked = {
            "prompt": list(prompt),
            "n_predict": new,
            "temperature": 0,
            "ignore_eos": True,
            "return_tokens": True,
            "cache_prompt": False,
        }
        return [int(token) for token in self._ask("/completion", asked)["tokens"]]

    def _ask(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=_LIMIT)
        try:
            body = json.dumps(asked).encode()
            connection.request("POST", path, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise OracleError(f"{path}: {answer.status} {said[:300]!r}")
        result: dict[str, Any] = json.loads(said)
        return result
