"""The edge's routes: one map from endpoint (and version) to where its calls go; what is not in it is routed by path.

A lookup costs the same for one endpoint and for thousands; a list of routes would be walked from its beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.matching.common_inputs.network.v3.network_inputs_pb2 import FilterStateInput
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from xds.type.matcher.v3.matcher_pb2 import Matcher

from services.router.domain.snapshot import Kind, Reference, Resource
from services.router.domain.topology import RoutedEndpoint
from services.router.resources import access, claims, edge, guards, methods, refusals, retries, wire
from services.router.resources.shares import TOTAL, weights
from services.rpc.names import VersionName

_ANY_WORKER_SECONDS = 10.0
# A stream on which nothing is said in either direction for so long has been forgotten by its client; nor is one kept
# for longer whose first message, which says where it goes, does not come.
_IDLE_STREAM_SECONDS = 3600.0
_SILENT_STREAM_SECONDS = 600.0
_CACHED = 4096


@dataclass(frozen=True, slots=True)
class _Guard:
    """Says of routes whose keys may take them; without places nobody is asked for a key."""

    places: tuple[claims.Claim, ...] = ()
    several: frozenset[str] = frozenset()  # clusters of peers that serve the same

    def everyone(self, route: Any) -> dict[str, Any]:
        """A route for whoever may call the method."""
        return _on_match(route, guards.for_everyone() if self.places else {})

    def endpoint(self, endpoint: str, route: Any) -> dict[str, Any]:
        """A route for keys of this endpoint; empty: for keys of all endpoints."""
        return _on_match(route, guards.for_endpoint(endpoint, self.places) if self.places else {})


def resource(
    endpoints: Iterable[RoutedEndpoint], settings: edge.Edge, places: tuple[claims.Claim, ...]
) -> Resource:
    """The route configuration of a topology; `places` are where tokens name their endpoints."""
    guard = _Guard(places if settings.asks_for_keys else (), edge.of_several(settings))
    actions: dict[str, Any] = {}
    streams: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    clusters = {edge.ANY_WORKER, edge.REGISTRY, edge.DISCOVERY, edge.ROUTER, edge.METERING}
    for endpoint in endpoints:
        for key, version in _keys(endpoint).items():
            actions[key] = guard.endpoint(endpoint.id, _endpoint_route(endpoint, version))
            streams[key] = guard.endpoint(endpoint.id, _stream_route(endpoint, version))
        texts |= _texts(endpoint, guard)
        clusters |= _clusters_of(endpoint)
    by_path = _by_path(guard)
    matcher = _by_state(actions, otherwise={"matcher": by_path}) if actions else by_path
    matcher = _streams_apart(streams, texts, matcher, guard)
    message = RouteConfiguration(
        name=edge.ROUTES,
        virtual_hosts=[
            {
                "name": "edge",
                "domains": ["*"],
                "matcher": matcher,
                # Workers look at what comes again: the worker before may have died of it.
                "include_request_attempt_count": True,
                # A retry sends the message again, so all of it is kept until the answer begins.
                "request_body_buffer_limit": wire.number(settings.max_message_bytes),
            }
        ],
    )
    references = [Reference(Kind.CLUSTER, name) for name in sorted(clusters)]
    return Resource.of(Kind.ROUTES, edge.ROUTES, wire.serialized(message), references)


def _texts(endpoint: RoutedEndpoint, guard: _Guard) -> dict[str, Any]:
    """Where text is asked of an endpoint, by both forms of keys; of others than language models: why not."""
    if not endpoint.writes_text:
        refusal = guard.endpoint(endpoint.id, refusals.no_language_model())
        return {edge.route_key(endpoint.id): refusal}
    found = {}
    for key, version in _keys(endpoint).items():
        found[key] = guard.endpoint(endpoint.id, _text_route(endpoint, version))
        if version is not None:
            found[edge.openai_key(endpoint.id, version.version)] = found[key]
    return found


def _keys(endpoint: RoutedEndpoint) -> dict[str, VersionName | None]:
    """Keys of the map: the endpoint alone, and each of its versions pinned.

    A pin is a version id. Where two models' versions share an id, the first declared target has it.
    """
    keys: dict[str, VersionName | None] = {edge.route_key(endpoint.id): None}
    for target in endpoint.targets:
        keys.setdefault(edge.route_key(endpoint.id, target.version.version), target.version)
    return keys


def _clusters_of(endpoint: RoutedEndpoint) -> set[str]:
    names = {edge.version_cluster(target.version) for target in endpoint.targets}
    if endpoint.mirror_version is not None:
        names.add(edge.mirror_cluster(endpoint.mirror_version))
    return names


@lru_cache(_CACHED)
def _endpoint_route(endpoint: RoutedEndpoint, pinned: VersionName | None) -> Any:
    """Where calls of an endpoint go; a pinned version gets all of them and is not mirrored."""
    declared = endpoint.declared
    route = _route_to(endpoint, pinned)
    action = route.route
    action.timeout.CopyFrom(_duration(declared.timeout))
    action.idle_timeout.CopyFrom(_duration(0))  # computing is not idling; the timeout bounds it
    # The client's own deadline, which gRPC clients send along, wins where it is shorter.
    action.max_stream_duration.max_stream_duration.CopyFrom(_duration(declared.timeout))
    action.max_stream_duration.grpc_timeout_header_max.CopyFrom(_duration(declared.timeout))
    _retry(action, endpoint)
    if pinned is None and declared.mirror is not None and endpoint.mirror_version is not None:
        action.request_mirror_policies.add(
            cluster=edge.mirror_cluster(endpoint.mirror_version),
            runtime_fraction={"default_value": _fraction(declared.mirror.percent)},
            disable_shadow_host_suffix_append=True,
        )
    return route


@lru_cache(_CACHED)
def _stream_route(endpoint: RoutedEndpoint, pinned: VersionName | None) -> Any:
    """Where a stream of calls goes: as long as it lasts, to one worker, and without a mirror.

    What was said is said again to another worker only before the first answer, as with other calls. A client's
    deadline is the worker's to keep: Envoy would end a stream that has begun with a reset, not a status.
    """
    route = _route_to(endpoint, pinned)
    _let_last(route.route, idle_seconds=_IDLE_STREAM_SECONDS)
    _retry(route.route, endpoint)
    return route


@lru_cache(_CACHED)
def _text_route(endpoint: RoutedEndpoint, pinned: VersionName | None) -> Any:
    """Where text is written as long as it takes: the endpoint's timeout is how long nothing may be heard of it.

    So it bounds the time to the first token, and, where all of the text is sent at once, all of the time. Text is not
    mirrored, and what was begun elsewhere is begun again only before its first token.
    """
    route = _route_to(endpoint, pinned)
    _let_last(route.route, idle_seconds=endpoint.declared.timeout)
    _retry(route.route, endpoint)
    return route


def _retry(action: Any, endpoint: RoutedEndpoint) -> None:
    policy = retries.of_endpoint(endpoint)
    if policy is not None:
        action.retry_policy.CopyFrom(policy)


def _route_to(endpoint: RoutedEndpoint, pinned: VersionName | None) -> Any:
    route = Route(
        match={"prefix": "/"},
        request_headers_to_add=[
            {
                "header": {"key": edge.ENDPOINT_HEADER, "value": endpoint.id},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    )
    action = route.route
    if pinned is None:
        _split(action, endpoint)
    else:
        action.cluster = edge.version_cluster(pinned)
    if endpoint.stateful:  # first, and if the header is there the last
        action.hash_policy.add(header={"header_name": edge.SEQUENCE_HEADER}, terminal=True)
    if pinned is None and endpoint.declared.sticky_header:
        action.hash_policy.add(header={"header_name": endpoint.declared.sticky_header})
    return route


def _split(action: Any, endpoint: RoutedEndpoint) -> None:
    parts = weights([target.effective_share for target in endpoint.targets])
    merged: dict[str, int] = {}
    for target, weight in zip(endpoint.targets, parts, strict=True):
        if weight:
            name = edge.version_cluster(target.version)
            merged[name] = merged.get(name, 0) + weight
    for name, weight in merged.items():
        action.weighted_clusters.clusters.add(name=name, weight=wire.number(weight))
    if endpoint.declared.sticky_header or endpoint.stateful:
        action.weighted_clusters.use_hash_policy.value = True


def _fraction(percent: float) -> dict[str, Any]:
    return {"numerator": max(round(percent / 100 * TOTAL), 1), "denominator": "MILLION"}


def _duration(value: float) -> Any:
    return Route(route={"timeout": wire.seconds(value)}).route.timeout


def _by_state(actions: Mapping[str, Any], otherwise: Any) -> Any:
    state = FilterStateInput(key=edge.ROUTE_STATE)
    return Matcher(
        matcher_tree={
            "input": wire.extension("endpoint", state),
            "exact_match_map": {"map": actions},
        },
        on_no_match=otherwise,
    )


def _by_path(guard: _Guard) -> Any:
    """Everything that is not an endpoint's call; the same for every topology."""
    registry = guard.everyone(_management_route(edge.REGISTRY, guard))
    exact = {
        methods.path(m): guard.endpoint("", refusals.no_such_endpoint())
        for m in methods.OF_ENDPOINT
    }
    exact |= {methods.path(m): _unless_named(guard) for m in methods.OF_ENDPOINT_OR_ANY_WORKER}
    exact |= {path: guard.everyone(_any_worker_route()) for path in methods.OF_ANY_WORKER}
    exact |= dict.fromkeys(
        methods.OF_DISCOVERY, guard.everyone(_management_route(edge.DISCOVERY, guard))
    )
    exact |= dict.fromkeys(methods.OF_REPOSITORY, registry)
    exact |= dict.fromkeys(
        access.of_metering(), guard.everyone(_management_route(edge.METERING, guard))
    )
    prefixes = {
        methods.OF_REGISTRY_PREFIX: registry,
        methods.OF_ANY_WORKER_PREFIX: guard.everyone(_management_route(edge.ANY_WORKER, guard)),
        **dict.fromkeys(methods.REFUSED_PREFIXES, guard.everyone(refusals.not_here())),
        **dict.fromkeys(
            methods.OF_ROUTER_PREFIXES, guard.everyone(_management_route(edge.ROUTER, guard))
        ),
    }
    path = wire.extension("path", HttpRequestHeaderMatchInput(header_name=":path"))
    by_prefix = Matcher(
        matcher_tree={"input": path, "prefix_match_map": {"map": prefixes}},
        on_no_match=guard.everyone(refusals.no_such_path()),
    )
    return Matcher(
        matcher_tree={"input": path, "exact_match_map": {"map": exact}},
        on_no_match={"matcher": by_prefix},
    )


def _streams_apart(
    streams: Mapping[str, Any], texts: Mapping[str, Any], otherwise: Any, guard: _Guard
) -> Any:
    """Streams, and text that is written, have routes of their own."""
    by_path = {methods.path(methods.STREAM): {"matcher": _by_first_message(streams, guard)}}
    nothing = {edge.route_key(""): guard.everyone(refusals.no_model())}
    missing = guard.endpoint("", refusals.no_such_model())
    text = _by_state({**nothing, **texts}, otherwise=missing)
    by_path |= {
        path: {"matcher": text} for path in (methods.path(methods.TEXT_STREAM), *methods.OF_OPENAI)
    }
    return Matcher(
        matcher_tree={
            "input": wire.extension("path", HttpRequestHeaderMatchInput(header_name=":path")),
            "exact_match_map": {"map": by_path},
        },
        on_no_match={"matcher": _openai_apart(otherwise, guard)},
    )


def _openai_apart(otherwise: Any, guard: _Guard) -> Any:
    """OpenAI's other paths, transcoded or not: a model in their bodies must lead nowhere."""
    others = {
        methods.OPENAI_PREFIX: guard.everyone(refusals.no_such_path()),
        f"/{methods.OPENAI}/": guard.everyone(_models_route(guard)),
    }
    path = wire.extension("path", HttpRequestHeaderMatchInput(header_name=":path"))
    return Matcher(
        matcher_tree={"input": path, "prefix_match_map": {"map": others}},
        on_no_match={"matcher": otherwise},
    )


def _by_first_message(streams: Mapping[str, Any], guard: _Guard) -> Any:
    """Before the first message there is no state; a client may open a stream long before it says anything.

    The route for that time is never taken: with the first message, or the end of the request, there is a state.
    """
    state = wire.extension("endpoint", FilterStateInput(key=edge.ROUTE_STATE))
    there_is_one = {"": guard.endpoint("", refusals.no_such_endpoint())}
    matcher = Matcher(
        matcher_tree={"input": state, "prefix_match_map": {"map": there_is_one}},
        on_no_match=_on_match(_waiting_route(), {}),
    )
    return _by_state(streams, otherwise={"matcher": matcher}) if streams else matcher


def _waiting_route() -> Any:
    route = Route(match={"prefix": "/"}, route={"cluster": edge.ANY_WORKER})
    _let_last(route.route, idle_seconds=_SILENT_STREAM_SECONDS)
    return route


def _unless_named(guard: _Guard) -> dict[str, Any]:
    """Any worker for a call that names no endpoint, and so is about all of them."""
    nothing = {edge.route_key(""): guard.endpoint("", _any_worker_route())}
    missing = guard.endpoint("", refusals.no_such_endpoint())
    return {"matcher": _by_state(nothing, otherwise=missing)}


def _on_match(route: Any, guards_: dict[str, Any]) -> dict[str, Any]:
    guarded = Route(typed_per_filter_config=guards_)
    guarded.MergeFrom(route)
    return {"action": {"name": "route", "typed_config": wire.packed(guarded)}}


def _any_worker_route() -> Any:
    return Route(
        match={"prefix": "/"},
        route={
            "cluster": edge.ANY_WORKER,
            "timeout": wire.seconds(_ANY_WORKER_SECONDS),
            "retry_policy": retries.of_any_worker(),
        },
    )


def _management_route(cluster: str, guard: _Guard) -> Any:
    """Watches and uploads last as long as they last; what a peer has begun is not tried twice."""
    route = Route(match={"prefix": "/"}, route={"cluster": cluster})
    if cluster in guard.several:
        route.route.retry_policy.CopyFrom(retries.of_peers())
    _let_last(route.route, idle_seconds=0)
    route.route.max_stream_duration.grpc_timeout_header_max.CopyFrom(_duration(0))
    return route


def _models_route(guard: _Guard) -> Any:
    """Models in OpenAI's words; the registry tells callers of what they may call."""
    places = guard.places
    route = _management_route(edge.REGISTRY, guard)
    values = [f"%DYNAMIC_METADATA({claims.METADATA}:{':'.join(place.path)})%" for place in places]
    for value in (*values, "[]") if places else ():  # of a token that names none: none
        route.request_headers_to_add.add(
            header={"key": edge.ENDPOINTS_HEADER, "value": value}, append_action="ADD_IF_ABSENT"
        )
    return route


def _let_last(action: Any, idle_seconds: float) -> None:
    """No timeout; `idle_seconds` 0: nor for silence."""
    for_ever = _duration(0)
    action.timeout.CopyFrom(for_ever)
    action.idle_timeout.CopyFrom(_duration(idle_seconds))
    action.max_stream_duration.max_stream_duration.CopyFrom(for_ever)
