"""One inference call over REST, as any HTTP client makes it."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from services.cli.adapters import access, edge_target, http
from services.cli.domain import failures
from services.cli.domain.exit_code import StatusError, status_of_http

# Part of the worker's text; REST has nothing else that tells this case apart.
_WRITES_TEXT = "is a language model"
_ABOUT_KEYS = (401, 403)


@dataclass(frozen=True, slots=True)
class InferenceCall:
    """What is sent where."""

    address: str
    endpoint: str
    version: str | None  # None: by the traffic split
    body: bytes
    seconds: float


def infer(call: InferenceCall) -> Any:
    """Send the call; the answer's JSON, or the server's error."""
    pinned = f"/versions/{quote(call.version, safe='')}" if call.version else ""
    request = http.Request(
        method="POST",
        path=f"/v2/models/{quote(call.endpoint, safe='')}{pinned}/infer",
        body=call.body,
        headers={"content-type": "application/json", **access.headers(call.address)},
        timeout=call.seconds,
    )
    target = edge_target.parse(call.address)
    answer = http.send(target.address, request, edge_target.context(target))
    try:
        value = json.loads(answer.body)
    except ValueError as error:  # the edge answers JSON whatever happens
        raise failures.no_edge(call.address) from error
    if answer.status == 200:
        return value
    told = value.get("error") if isinstance(value, dict) else None
    if not told:
        raise failures.no_edge(call.address)
    text = str(told)
    if _WRITES_TEXT in text:
        text += f"\nTry: inferplane generate {call.endpoint} PROMPT"
    if answer.status in _ABOUT_KEYS:
        text = failures.about_key(text, access.origin(call.address))
    raise StatusError(status_of_http(answer.status), text)
