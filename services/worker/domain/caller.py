"""Who calls, as the edge says: it alone may set these headers."""

from dataclasses import dataclass

KEY_HEADER = b"x-inferplane-key"
SHADOW_HEADER = b"x-inferplane-shadow"
REQUEST_ID_HEADER = b"x-request-id"


@dataclass(frozen=True, slots=True)
class Caller:
    """Ids; empty where the edge asks for no key."""

    project: str = ""
    key: str = ""
    endpoint: str = ""
    is_shadow: bool = False  # a mirrored copy: counted, never billed, bound by no budget
