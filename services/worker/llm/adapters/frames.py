"""How a process and its child tell each other things: a length (4 bytes, big-endian) and JSON, in either direction."""

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

HEAD = struct.Struct(">I")


def frame(contents: Mapping[str, object]) -> bytes:
    """As it goes over the pipe."""
    body = json.dumps(contents).encode()
    return HEAD.pack(len(body)) + body


def read_frame(stream: BinaryIO) -> Any:
    """The next one's contents; None: there is none."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    return json.loads(stream.read(size))
