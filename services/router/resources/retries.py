"""How calls that were not answered are tried again, as Envoy has it."""

from functools import lru_cache
from typing import Any

from envoy.config.route.v3.route_components_pb2 import Route
from envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2 import PreviousHostsPredicate
from envoy.extensions.retry.priority.previous_priorities.v3.previous_priorities_config_pb2 import (
    PreviousPrioritiesConfig,
)

from services.router.domain.topology import RetryPolicy, RoutedEndpoint
from services.router.resources import wire
from services.rpc.interceptor import STANDBY_KEY

# `cancelled`: so gRPC's own server ends calls that lie before it, not begun, when it stops. (A caller's own cancel ends
# at the edge.)
_RETRY_ON = "connect-failure,refused-stream,reset,unavailable,cancelled"
# Where a call changes state, it is tried again only if no worker has begun it.
_RETRY_ON_STATE = "connect-failure,refused-stream,unavailable"
# Of services that are several: calls that nobody has begun. One that stands by says so, before it does anything.
_RETRY_ON_PEER = "connect-failure,refused-stream,retriable-headers"
_PEERS = RetryPolicy(num_retries=3)
# Balancing prefers the host with the fewest calls, and a dead one has none: it is drawn three times in four, so a retry
# draws often enough (0.75^32 = 0.0001) to end on another host.
_HOST_ATTEMPTS = 32


def of_endpoint(endpoint: RoutedEndpoint) -> Any | None:
    """As the endpoint declares; None: nothing is tried again."""
    declared = endpoint.declared.retry
    if not declared.num_retries:
        return None
    policy = _policy(declared, _RETRY_ON_STATE if endpoint.stateful else _RETRY_ON)
    if endpoint.zoned:
        policy.retry_priority.MergeFrom(_in_the_next_tier())
    return policy


def of_any_worker() -> Any:
    """For calls that every worker answers alike."""
    return _policy(RetryPolicy(), _RETRY_ON)


def of_peers() -> Any:
    """For management calls, at a service that is several processes."""
    policy = _policy(_PEERS, _RETRY_ON_PEER)
    policy.retriable_headers.add(name=STANDBY_KEY, present_match=True)
    return policy


def _policy(declared: RetryPolicy, retry_on: str) -> Any:
    previous = wire.extension(
        "envoy.retry_host_predicates.previous_hosts", PreviousHostsPredicate()
    )
    retry = {
        "retry_on": retry_on,
        "num_retries": wire.number(declared.num_retries),
        "retry_host_predicate": [previous],
        "host_selection_retry_max_attempts": _HOST_ATTEMPTS,
        "retry_back_off": {
            "base_interval": wire.seconds(0.005),
            "max_interval": wire.seconds(0.1),
        },
    }
    return Route(route={"retry_policy": retry}).route.retry_policy


@lru_cache(1)
def _in_the_next_tier() -> Any:
    """A zone that is lost is lost with all its workers: what failed there is tried in the next tier."""
    tier = wire.extension(
        "envoy.retry_priorities.previous_priorities", PreviousPrioritiesConfig(update_frequency=1)
    )
    return Route(route={"retry_policy": {"retry_priority": tier}}).route.retry_policy.retry_priority
