"""Projects, keys and signing keys for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from services.metering.domain.api_key import ApiKey, Role
from services.metering.domain.limits import Limits
from services.metering.domain.project import Project
from services.metering.domain.signing_key import SigningKey
from services.rpc.names import KeyName, ProjectName

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SLOW = Limits(requests_per_second=1.0)


def project(name: str = "p", **fields: Any) -> Project:
    return Project(**{"name": ProjectName(name), "create_time": NOW, **fields})


def signing(kid: str = "k1", **fields: Any) -> SigningKey:
    return SigningKey(**{"kid": kid, "jwk": f'{{"kid": "{kid}"}}', "create_time": NOW, **fields})


def key(jti: str = "a", project: str = "p", **fields: Any) -> ApiKey:
    return ApiKey(
        **{
            "name": KeyName(project, jti),
            "kid": "k1",
            "role": Role.CALLER,
            "endpoints": ("*",),
            "create_time": NOW,
            "expire_time": NOW + 90 * DAY,
            **fields,
        }
    )
