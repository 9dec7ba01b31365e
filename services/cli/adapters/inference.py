"""One inference call over REST, as any HTTP client makes it."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from services.cli.adapters import http
from services.cli.domain.exit_code import StatusError, status_of_http
from services.rpc import address as addresses
from services.rpc.errors import InternalError


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
        headers={"content-type": "application/json"},
        timeout=call.seconds,
    )
    answer = http.send(addresses.parse(call.address, "--address"), request)
    text = answer.body.decode(errors="replace")
    try:
        value = json.loads(text)
    except ValueError as error:
        if answer.status == 200:
            raise InternalError(f"the answer is no JSON: {text[:200]!r}") from error
        value = None
    if answer.status == 200:
        return value
    told = value.get("error") if isinstance(value, dict) else None
    message = str(told or text.strip() or f"HTTP status {answer.status}")
    raise StatusError(status_of_http(answer.status), message)
