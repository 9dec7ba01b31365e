"""Projects, keys and limits between messages and the domain."""

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from inferplane.metering.v1 import api_key_pb2, limits_pb2, project_pb2

from services.metering.domain.api_key import ApiKey, KeyInput, Role
from services.metering.domain.etag import etag_of
from services.metering.domain.limits import Limits
from services.metering.domain.project import Project, ProjectInput
from services.rpc.errors import InvalidArgumentError
from services.rpc.times import span, timestamp

_ROLES = {
    Role.CALLER: api_key_pb2.ROLE_CALLER,
    Role.VIEWER: api_key_pb2.ROLE_VIEWER,
    Role.DEPLOYER: api_key_pb2.ROLE_DEPLOYER,
    Role.ADMIN: api_key_pb2.ROLE_ADMIN,
}
_ROLES_READ = {value: key for key, value in _ROLES.items()}


def limits_message(limits: Limits) -> limits_pb2.Limits:
    """The limits as a message."""
    return limits_pb2.Limits(
        requests_per_second=limits.requests_per_second,
        burst=limits.burst,
        concurrent_requests=limits.concurrent_requests,
        shadow=limits.shadow,
    )


def limits_value(message: limits_pb2.Limits) -> Limits:
    """The message's limits, unchecked."""
    return Limits(
        requests_per_second=message.requests_per_second,
        burst=message.burst,
        concurrent_requests=message.concurrent_requests,
        shadow=message.shadow,
    )


def project_message(project: Project) -> project_pb2.Project:
    """The project as a message."""
    return project_pb2.Project(
        name=str(project.name),
        display_name=project.display_name,
        tags=project.tags,
        limits=limits_message(project.limits),
        disabled=project.disabled,
        create_time=timestamp(project.create_time),
        etag=etag_of(project),
    )


def project_input(message: project_pb2.Project) -> ProjectInput:
    """What the caller says of a project, unchecked."""
    return ProjectInput(
        display_name=message.display_name,
        tags=dict(message.tags),
        limits=limits_value(message.limits),
        disabled=message.disabled,
    )


def key_message(key: ApiKey) -> api_key_pb2.ApiKey:
    """The key as a message; its token is nowhere to be had."""
    message = api_key_pb2.ApiKey(
        name=str(key.name),
        label=key.label,
        role=_ROLES[key.role],
        endpoints=key.endpoints,
        tags=key.tags,
        limits=limits_message(key.limits),
        create_time=timestamp(key.create_time),
        expire_time=timestamp(key.expire_time),
        successor="" if key.successor is None else str(key.successor),
        etag=etag_of(key),
    )
    if key.revoke_time is not None:
        message.revoke_time.CopyFrom(timestamp(key.revoke_time))
    return message


def key_input(message: api_key_pb2.ApiKey) -> KeyInput:
    """What the caller says of a key, unchecked but for its role."""
    if message.role not in _ROLES_READ and message.role != api_key_pb2.ROLE_UNSPECIFIED:
        allowed = ", ".join(api_key_pb2.Role.Name(role) for role in _ROLES_READ)
        raise InvalidArgumentError.of_field("api_key.role", f"{message.role}; allowed: {allowed}")
    return KeyInput(
        label=message.label,
        role=_ROLES_READ.get(message.role),
        endpoints=tuple(message.endpoints),
        tags=dict(message.tags),
        limits=limits_value(message.limits),
    )


def given_span(request: Message, field: str) -> timedelta | None:
    """The duration in a field of the request; None if it isn't set."""
    if not request.HasField(field):
        return None
    value = getattr(request, field)
    assert isinstance(value, Duration)
    return span(value)
