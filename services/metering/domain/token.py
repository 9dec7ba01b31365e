"""What a key's token says: the claims of a JWT (RFC 7519)."""

from collections.abc import Mapping
from datetime import UTC, datetime

from services.metering.domain.api_key import ApiKey, Role
from services.rpc import names
from services.rpc.errors import InvalidArgumentError

ISSUER = "inferplane"
AUDIENCE = "inferplane"


def claims_of(key: ApiKey) -> Mapping[str, object]:
    """The claims of a key's token."""
    began = int(key.create_time.timestamp())
    return {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": str(key.name),
        "project": key.name.project,
        "role": key.role.value,
        "endpoints": list(key.endpoints),
        "jti": key.name.key,
        "iat": began,
        "nbf": began,
        "exp": int(key.expire_time.timestamp()),
    }


def key_of(kid: str, claims: Mapping[str, object]) -> ApiKey | None:
    """The key that a token of ours was made for, as far as it says; None if no key of ours says that."""
    subject, issued, expires = claims.get("sub"), claims.get("iat"), claims.get("exp")
    role, endpoints = claims.get("role"), claims.get("endpoints")
    if not (isinstance(subject, str) and isinstance(issued, int) and isinstance(expires, int)):
        return None
    if role not in set(Role) or not isinstance(endpoints, list):
        return None
    try:
        name = names.parse_key("sub", subject)
    except InvalidArgumentError:
        return None
    return ApiKey(
        name=name,
        kid=kid,
        role=Role(str(role)),
        endpoints=tuple(str(endpoint) for endpoint in endpoints),
        create_time=datetime.fromtimestamp(issued, UTC),
        expire_time=datetime.fromtimestamp(expires, UTC),
    )
