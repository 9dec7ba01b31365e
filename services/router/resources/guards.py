"""The filters of the edge that let callers in: who calls, whether he still may, how much, what, and where."""

from typing import Any

from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.common.matching.v3.extension_matcher_pb2 import ExtensionWithMatcher
from envoy.extensions.filters.http.composite.v3.composite_pb2 import Composite, ExecuteFilterAction
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC, RBACPerRoute
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from xds.type.matcher.v3.matcher_pb2 import Matcher

from services.router.domain.policy import SHARDS
from services.router.resources import access, claims, edge, wire

_JWT = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
_RBAC = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
_MODULE = "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
_LOCAL_RATE_LIMIT = (
    "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
)
# Before the filters have come the listener waits so long; then it serves and refuses.
_FIRST_SECONDS = 1.0
_ANYTHING = {"permissions": [{"any": True}], "principals": [{"any": True}]}


def of_callers(*, has_module: bool) -> list[dict[str, Any]]:
    """Who calls, and how much: before anything of a call but its head is looked at."""
    limits = _MODULE if has_module else _LOCAL_RATE_LIMIT
    return [
        wire.extension("inferplane.one_token", _one_token()),
        _discovered(edge.KEYS_FILTER, _JWT),
        wire.extension("envoy.filters.http.match_delegate", _revoked_keys()),
        _discovered(edge.REVOCATIONS_FILTER, _RBAC),
        _discovered(edge.LIMITS_FILTER, limits),
    ]


def of_methods() -> dict[str, Any]:
    """What is called: the path is that of a gRPC method, REST's calls have been transcoded."""
    by_role = {
        who: _step(_map(edge.ROLE_HEADER, dict.fromkeys(who.roles(), _ALLOW)), _deny("role"))
        for who in access.Access
        if who.roles()
    }
    by_role[access.Access.NOBODY] = _deny("internal")
    paths = {path: by_role[who] for path, who in access.table().items()}
    matcher = Matcher(matcher_tree=_map(":path", paths), on_no_match=_deny("unlisted"))
    return wire.extension("inferplane.roles", RBAC(matcher=matcher))


def of_endpoints() -> dict[str, Any]:
    """Where it goes: the route that was chosen says who may take it. One that says nothing is nobody's."""
    return wire.extension(
        edge.ENDPOINTS_FILTER, RBAC(rules=rbac_pb2.RBAC(action=rbac_pb2.RBAC.ALLOW))
    )


def for_everyone() -> dict[str, Any]:
    """A route's word: whoever may call the method may take it."""
    return {edge.ENDPOINTS_FILTER: wire.packed(RBACPerRoute())}


def for_endpoint(endpoint: str, places: tuple[claims.Claim, ...]) -> dict[str, Any]:
    """A route's word: only keys for this endpoint, or for all; empty: only those for all."""
    values = (claims.EVERY_ENDPOINT, *([endpoint] if endpoint else ()))
    policy = {
        "permissions": [{"any": True}],
        "principals": [one for place in places for value in values for one in place.has(value)],
    }
    rules = rbac_pb2.RBAC(action=rbac_pb2.RBAC.ALLOW, policies={"endpoint": policy})
    return {edge.ENDPOINTS_FILTER: wire.packed(RBACPerRoute(rbac={"rules": rules}))}


def _one_token() -> Any:
    """Envoy would take the first of several tokens, which another reader would not."""
    several = {"header": {"name": "authorization", "string_match": {"contains": ","}}}
    policy = {"permissions": [several], "principals": [{"any": True}]}
    return RBAC(rules=rbac_pb2.RBAC(action=rbac_pb2.RBAC.DENY, policies={"several": policy}))


def _revoked_keys() -> Any:
    """Of the filters that know revoked keys, the one that knows those that begin as this one does.

    What begins otherwise passes: the filter behind this one knows it. A filter that has not come lets nobody pass.
    """
    filters = {
        shard: {
            "action": wire.extension(
                "composite-action",
                ExecuteFilterAction(
                    dynamic_config=_discovered(edge.revocations_filter(shard), _RBAC)
                ),
            )
        }
        for shard in SHARDS
    }
    tree = {
        "input": wire.extension("header", HttpRequestHeaderMatchInput(header_name=edge.KEY_HEADER)),
        "prefix_match_map": {"map": filters},
    }
    return ExtensionWithMatcher(
        extension_config=wire.extension("composite", Composite()),
        xds_matcher=Matcher(matcher_tree=tree),
    )


def _discovered(name: str, type_url: str) -> dict[str, Any]:
    return {
        "name": name,
        "config_discovery": {
            "config_source": {
                "ads": {},
                "resource_api_version": "V3",
                "initial_fetch_timeout": wire.seconds(_FIRST_SECONDS),
            },
            "type_urls": [type_url],
        },
    }


def _action(name: str, action: Any) -> dict[str, Any]:
    return {"action": wire.extension("action", rbac_pb2.Action(name=name, action=action))}


_ALLOW = _action("allowed", rbac_pb2.RBAC.ALLOW)


def _deny(name: str) -> dict[str, Any]:
    return _action(name, rbac_pb2.RBAC.DENY)


def _map(header: str, values: dict[str, Any]) -> dict[str, Any]:
    of = wire.extension("header", HttpRequestHeaderMatchInput(header_name=header))
    return {"input": of, "exact_match_map": {"map": values}}


def _step(tree: dict[str, Any], otherwise: dict[str, Any]) -> dict[str, Any]:
    return {"matcher": Matcher(matcher_tree=tree, on_no_match=otherwise)}
