"""Endpoints between messages and the domain."""

from inferplane.registry.v1 import endpoint_pb2

from services.registry.domain.endpoint import CircuitLimits, Endpoint, PolicyInput, RetryPolicy
from services.rpc.times import duration, span, timestamp


def endpoint_message(endpoint: Endpoint) -> endpoint_pb2.Endpoint:
    """The endpoint as a message."""
    message = endpoint_pb2.Endpoint(
        name=str(endpoint.name),
        description=endpoint.description,
        targets=[
            endpoint_pb2.Target(target=str(t.target), weight=t.weight) for t in endpoint.targets
        ],
        sticky_header=endpoint.sticky_header,
        tags=endpoint.tags,
        create_time=timestamp(endpoint.create_time),
        update_time=timestamp(endpoint.update_time),
        etag=endpoint.etag,
    )
    if endpoint.mirror is not None:
        message.mirror.target = str(endpoint.mirror.target)
        message.mirror.percent = endpoint.mirror.percent
    if endpoint.retry_policy is not None:
        message.retry_policy.CopyFrom(_retry_message(endpoint.retry_policy))
    if endpoint.timeout is not None:
        message.timeout.CopyFrom(duration(endpoint.timeout))
    if endpoint.circuit_limits is not None:
        limits = endpoint.circuit_limits
        message.circuit_limits.max_requests = limits.max_requests
        message.circuit_limits.max_mirror_requests = limits.max_mirror_requests
        message.circuit_limits.SetInParent()
    return message


def _retry_message(policy: RetryPolicy) -> endpoint_pb2.RetryPolicy:
    return endpoint_pb2.RetryPolicy(
        num_retries=policy.num_retries,
        budget_percent=policy.budget_percent,
        min_retry_concurrency=policy.min_retry_concurrency,
    )


def policy_input(message: endpoint_pb2.Endpoint) -> PolicyInput:
    """The traffic policy as the caller wrote it."""
    mirror = (message.mirror.target, message.mirror.percent)
    return PolicyInput(
        description=message.description,
        targets=[(target.target, target.weight) for target in message.targets],
        sticky_header=message.sticky_header,
        mirror=mirror if message.HasField("mirror") else None,
        retry_policy=_retry_policy(message) if message.HasField("retry_policy") else None,
        timeout=span(message.timeout) if message.HasField("timeout") else None,
        circuit_limits=_circuit_limits(message) if message.HasField("circuit_limits") else None,
        tags=dict(message.tags),
    )


def _retry_policy(message: endpoint_pb2.Endpoint) -> RetryPolicy:
    policy = message.retry_policy
    has = policy.HasField
    return RetryPolicy(
        num_retries=policy.num_retries if has("num_retries") else None,
        budget_percent=policy.budget_percent if has("budget_percent") else None,
        min_retry_concurrency=(
            policy.min_retry_concurrency if has("min_retry_concurrency") else None
        ),
    )


def _circuit_limits(message: endpoint_pb2.Endpoint) -> CircuitLimits:
    limits = message.circuit_limits
    return CircuitLimits(
        max_requests=limits.max_requests, max_mirror_requests=limits.max_mirror_requests
    )
