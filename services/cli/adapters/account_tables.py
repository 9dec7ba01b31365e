"""What tables show of projects, API keys and limits."""

from collections.abc import Callable
from datetime import UTC, datetime

from inferplane.metering.v1 import api_key_pb2, limits_pb2, project_pb2

from services.cli.adapters.tables import pairs, when
from services.cli.domain.account_reference import short_key


def role_word(role: int) -> str:
    """A role as people write it: `caller`."""
    name = api_key_pb2.Role.Name(api_key_pb2.Role.ValueType(role))
    return name.removeprefix("ROLE_").lower()


def limits_line(limits: limits_pb2.Limits) -> str:
    """All limits in a line; empty without any."""
    told = []
    if limits.requests_per_second:
        burst = f", {limits.burst} at once" if limits.burst else ""
        told.append(f"{limits.requests_per_second:g} requests/s{burst}")
    if limits.concurrent_requests:
        told.append(f"{limits.concurrent_requests} in flight")
    if told and limits.shadow:
        told.append("only counted")
    return ", ".join(told)


def limits_fields(subject: str, limits: limits_pb2.Limits) -> dict[str, str]:
    """The limits of one subject below each other, also those that are not set."""
    return {
        "of": subject,
        "requests/s": f"{limits.requests_per_second:g}" if limits.requests_per_second else "any",
        "at once": str(limits.burst) if limits.burst else "as many as come in a second",
        "in flight": str(limits.concurrent_requests) if limits.concurrent_requests else "any",
        "refuses": "no, only counted" if limits.shadow else "yes",
    }


def key_state(key: api_key_pb2.ApiKey, now: datetime) -> str:
    """Whether the key is let in."""
    if key.HasField("revoke_time"):
        if key.revoke_time.ToDatetime(UTC) <= now:
            return "revoked"
        return f"ends {when(key.revoke_time)}"
    if key.HasField("expire_time") and key.expire_time.ToDatetime(UTC) <= now:
        return "expired"
    return "good"


PROJECTS: list[tuple[str, Callable[[project_pb2.Project], str]]] = [
    ("PROJECT", lambda project: project.name.removeprefix("projects/")),
    ("NAME", lambda project: project.display_name),
    ("STATE", lambda project: _state(project)),
    ("LIMITS", lambda project: limits_line(project.limits)),
    ("TAGS", lambda project: pairs(project.tags.items())),
    ("CREATED", lambda project: when(project.create_time)),
]


def _state(project: project_pb2.Project) -> str:
    return "disabled" if project.disabled else "enabled"


def project_fields(project: project_pb2.Project) -> dict[str, str]:
    """One project."""
    return {
        "project": project.name.removeprefix("projects/"),
        "name": project.display_name,
        "state": _state(project),
        "limits": limits_line(project.limits),
        "tags": pairs(project.tags.items()),
        "created": when(project.create_time),
    }


def keys(now: datetime) -> list[tuple[str, Callable[[api_key_pb2.ApiKey], str]]]:
    """Columns of keys as they stand now."""
    return [
        ("KEY", lambda key: short_key(key.name)),
        ("LABEL", lambda key: key.label),
        ("ROLE", lambda key: role_word(key.role)),
        ("ENDPOINTS", lambda key: ", ".join(key.endpoints)),
        ("STATE", lambda key: key_state(key, now)),
        ("LIMITS", lambda key: limits_line(key.limits)),
        ("EXPIRES", lambda key: when(key.expire_time)),
    ]


def key_fields(key: api_key_pb2.ApiKey, now: datetime) -> dict[str, str]:
    """One key; its token is nowhere but in the answer that made it."""
    return {
        "key": short_key(key.name),
        "label": key.label,
        "role": role_word(key.role),
        "endpoints": ", ".join(key.endpoints),
        "state": key_state(key, now),
        "successor": short_key(key.successor),
        "limits": limits_line(key.limits),
        "tags": pairs(key.tags.items()),
        "created": when(key.create_time),
        "expires": when(key.expire_time),
    }
