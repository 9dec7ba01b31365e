"""The filters that follow the policy, each a resource of its own: they change while the listener stays as it is.

A filter that has not come yet, or that Envoy refused and never had, lets nothing pass (HTTP 500 of Envoy's own, which
the edge calls UNAVAILABLE).
"""

import json
from functools import lru_cache
from typing import Any

import jwt
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from google.protobuf.message import Message
from xds.type.matcher.v3.matcher_pb2 import Matcher

from services.router.domain.policy import Issuer, Policy, SigningKey
from services.router.domain.snapshot import Kind, Resource
from services.router.resources import claims, edge, limit_filter, wire

ISSUER = AUDIENCE = "inferplane"
# Clocks of this machine and metering's may differ so much. (Envoy's own default is a minute.)
_SKEW_SECONDS = 1
# What Envoy verifies, and PyJWT too.
_ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_CACHED_TOKENS = 4096  # verified ones, for each of Envoy's threads
_PROJECT = "^[a-z0-9][a-z0-9-]{0,62}$"


def resources(policy: Policy, *, has_module: bool) -> list[Resource]:
    """All of them."""
    limits = limit_filter.by_module if has_module else limit_filter.by_envoy
    return [
        _keys(policy.signing_keys, policy.issuers),
        _revocations(
            policy.revoked_keys, policy.disabled_projects, has_issuers=bool(policy.issuers)
        ),
        _resource(edge.LIMITS_FILTER, limits(policy.limits)),
    ]


@lru_cache(4)
def _keys(signing_keys: tuple[SigningKey, ...], issuers: tuple[Issuer, ...]) -> Resource:
    """Tokens are verified, and what they claim becomes headers and metadata."""
    jwks = json.dumps({"keys": [json.loads(key.jwk) for key in signing_keys]})
    ours = Issuer(
        issuer=ISSUER,
        jwks=jwks,
        audiences=(AUDIENCE,),
        project_claim="project",
        role_claim="role",
        endpoints_claim="endpoints",
    )
    providers = {claims.OURS: _provider(ours, claims.OURS, key_claim="jti")} if signing_keys else {}
    for index, issuer in enumerate(issuers):
        if not _has_key(issuer.jwks):
            continue
        name = claims.provider(index)
        providers[name] = _provider(issuer, name, key_claim="sub")
    message = JwtAuthentication(
        providers=providers,
        rules=[{"match": {"prefix": "/"}, "requires": _any_of(sorted(providers))}],
    )
    return _resource(edge.KEYS_FILTER, message)


def _has_key(jwks: str) -> bool:
    """Whether some key of the set is one that Envoy takes: without any it refuses all providers, and ours with them."""
    try:
        found = json.loads(jwks)
    except ValueError:
        return False
    keys = found.get("keys") if isinstance(found, dict) else None
    return isinstance(keys, list) and any(map(_is_good, keys))


def _is_good(key: object) -> bool:
    if not isinstance(key, dict):
        return False
    try:
        return jwt.PyJWK(key).algorithm_name in _ALGORITHMS
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        return False  # PyJWT doesn't look whether members are texts before it reads them


def _any_of(providers: list[str]) -> dict[str, Any]:
    if len(providers) == 1:
        return {"provider_name": providers[0]}
    # Without a single provider this names one that is not there, which Envoy refuses.
    requirements = [{"provider_name": name} for name in providers or ["none"]]
    return {"requires_any": {"requirements": requirements}}


def _provider(issuer: Issuer, name: str, key_claim: str) -> dict[str, Any]:
    headers = {
        edge.PROJECT_HEADER: issuer.project_claim,
        edge.ROLE_HEADER: issuer.role_claim,
        edge.KEY_HEADER: key_claim,
    }
    return {
        "issuer": issuer.issuer,
        "audiences": issuer.audiences,
        "local_jwks": {"inline_string": issuer.jwks},
        # Only this header: a token in an address would be in everybody's logs.
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "forward": False,
        "require_expiration": True,
        "payload_in_metadata": name,
        "claim_to_headers": [
            {"header_name": header, "claim_name": claim} for header, claim in headers.items()
        ],
        "clock_skew_seconds": _SKEW_SECONDS,
        "jwt_cache_config": {"jwt_cache_size": _CACHED_TOKENS},
    }


@lru_cache(4)
def _revocations(
    keys: tuple[str, ...], projects: tuple[str, ...], *, has_issuers: bool
) -> Resource:
    """Tokens that are good in themselves, of keys and projects that are not let in."""
    let_in = _on_match("let-in", rbac_pb2.RBAC.ALLOW)
    otherwise = _unless(edge.PROJECT_HEADER, projects, "project", let_in)
    otherwise = _unless(edge.KEY_HEADER, keys, "revoked", otherwise)
    if has_issuers:  # what others' tokens claim may be anything
        plain = {
            "single_predicate": {
                "input": _header(edge.PROJECT_HEADER),
                "value_match": {"safe_regex": {"google_re2": {}, "regex": _PROJECT}},
            }
        }
        refusal = {
            "predicate": {"not_matcher": plain},
            "on_match": _on_match("claims", rbac_pb2.RBAC.DENY),
        }
        otherwise = {
            "matcher": Matcher(matcher_list={"matchers": [refusal]}, on_no_match=otherwise)
        }
    nothing = {"matcher": Matcher(on_no_match=otherwise)} if "matcher" not in otherwise else {}
    matcher = (nothing or otherwise)["matcher"]
    return _resource(edge.REVOCATIONS_FILTER, RBAC(matcher=matcher))


def _unless(
    header: str, values: tuple[str, ...], name: str, otherwise: dict[str, Any]
) -> dict[str, Any]:
    """A step that refuses these values of the header; a lookup costs the same for one and for thousands."""
    if not values:
        return otherwise
    refused = dict.fromkeys(values, _on_match(name, rbac_pb2.RBAC.DENY))
    tree = {"input": _header(header), "exact_match_map": {"map": refused}}
    return {"matcher": Matcher(matcher_tree=tree, on_no_match=otherwise)}


def _header(name: str) -> dict[str, Any]:
    return wire.extension("header", HttpRequestHeaderMatchInput(header_name=name))


def _on_match(name: str, action: Any) -> dict[str, Any]:
    return {"action": wire.extension("action", rbac_pb2.Action(name=name, action=action))}


def _resource(name: str, message: Message) -> Resource:
    body = TypedExtensionConfig(name=name, typed_config=wire.packed(message))
    return Resource.of(Kind.FILTER, name, wire.serialized(body))
