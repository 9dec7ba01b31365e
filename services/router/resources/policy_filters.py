"""The filters that follow the policy, each a resource of its own: they change while the listener stays as it is.

A filter that has not come yet, or that Envoy refused and never had, lets nothing pass (HTTP 500 of Envoy's own, which
the edge calls UNAVAILABLE).
"""

import json
from collections.abc import Callable
from typing import Any

import jwt
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from google.protobuf.message import Message
from xds.type.matcher.v3.matcher_pb2 import Matcher

from services.router.domain.policy import OTHERS, SHARDS, Issuer, Policy, SigningKey
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
_CACHED_TOKENS = 1024  # verified ones, for each of Envoy's threads
# Together the rule for ids (services.rpc.names): what is no id would be refused where usage is counted.
_ID = ("^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$", r"^[^.]+(\.[^.]+)*$")
# And who it is: what is no text for headers and rows is nobody.
_PLAIN = (*((edge.PROJECT_HEADER, rule) for rule in _ID), (edge.KEY_HEADER, "^[ -~]{1,255}$"))


class PolicyFilters:
    """Makes them anew only of parts of the policy that have changed, of which each may be large."""

    def __init__(self, *, has_module: bool) -> None:
        self._limits = limit_filter.ByModule() if has_module else limit_filter.by_envoy
        # By filter: the parts that it was made of, and what became of them.
        self._made: dict[str, tuple[tuple[object, ...], Resource]] = {}

    def resources(self, policy: Policy) -> list[Resource]:
        """All of them."""
        keys, issuers, disabled = policy.signing_keys, policy.issuers, policy.disabled_projects
        revoked = policy.revoked_keys
        others = revoked.get(OTHERS, ())
        return [
            self._once(edge.KEYS_FILTER, _keys, keys, issuers),
            *(
                self._once(edge.revocations_filter(shard), _revoked_keys, revoked.get(shard, ()))
                for shard in SHARDS
            ),
            self._once(edge.REVOCATIONS_FILTER, _revocations, others, disabled, issuers, keys),
            self._once(edge.LIMITS_FILTER, self._limits, policy.limits),
        ]

    def _once(self, name: str, make: Callable[..., Any], *parts: object) -> Resource:
        made = self._made.get(name)
        # Compared by what they are, not by what is in them: that would take as long as making them.
        if made is None or any(a is not b for a, b in zip(made[0], parts, strict=True)):
            made = self._made[name] = parts, _resource(name, make(*parts))
        return made[1]


def _keys(signing_keys: tuple[SigningKey, ...], issuers: tuple[Issuer, ...]) -> Any:
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
    return JwtAuthentication(
        providers=providers,
        rules=[{"match": {"prefix": "/"}, "requires": _any_of(sorted(providers))}],
    )


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


def _revoked_keys(keys: tuple[str, ...]) -> Any:
    """Tokens that are good in themselves, of keys that are not let in."""
    return _rbac(_unless(edge.KEY_HEADER, keys, "revoked", _LET_IN))


def _revocations(
    keys: tuple[str, ...],
    projects: tuple[str, ...],
    issuers: tuple[Issuer, ...],
    signing_keys: tuple[SigningKey, ...],
) -> Any:
    """Tokens that are good in themselves, of projects and of other keys that are not let in."""
    if not (signing_keys or any(_has_key(issuer.jwks) for issuer in issuers)):
        # Envoy refuses to verify by nothing and goes on with the keys that it had.
        return RBAC(matcher=Matcher(on_no_match=_on_match("revoked", rbac_pb2.RBAC.DENY)))
    otherwise = _unless(edge.PROJECT_HEADER, projects, "project", _LET_IN)
    otherwise = _unless(edge.KEY_HEADER, keys, "revoked", otherwise)
    if issuers:  # what others' tokens claim may be anything
        plain = [
            {
                "single_predicate": {
                    "input": _header(header),
                    "value_match": {"safe_regex": {"google_re2": {}, "regex": rule}},
                }
            }
            for header, rule in _PLAIN
        ]
        refusal = {
            "predicate": {"not_matcher": {"and_matcher": {"predicate": plain}}},
            "on_match": _on_match("claims", rbac_pb2.RBAC.DENY),
        }
        otherwise = {
            "matcher": Matcher(matcher_list={"matchers": [refusal]}, on_no_match=otherwise)
        }
    return _rbac(otherwise)


def _rbac(step: dict[str, Any]) -> Any:
    return RBAC(matcher=step.get("matcher") or Matcher(on_no_match=step))


def _unless(
    header: str, values: tuple[str, ...], name: str, otherwise: dict[str, Any]
) -> dict[str, Any]:
    """A step that refuses these values of the header; a lookup costs the same for one and for thousands."""
    values = tuple(
        value for value in values if value.isascii()
    )  # others are no ids, nor in headers
    if not values:
        return otherwise
    matcher = Matcher(matcher_tree={"input": _header(header)}, on_no_match=otherwise)
    refused = Matcher.OnMatch(**_on_match(name, rbac_pb2.RBAC.DENY)).SerializeToString()
    # As protobuf writes a map; entry by entry through Python's messages it takes many times as long.
    tail = _field(2, refused)
    heads = {size: _head(1, size) for size in set(map(len, values))}
    around = {size: _head(1, len(head) + size + len(tail)) + head for size, head in heads.items()}
    entries = b"".join([around[len(value)] + value.encode() + tail for value in values])
    matcher.matcher_tree.exact_match_map.MergeFromString(entries)
    return {"matcher": matcher}


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, size: int) -> bytes:
    """What stands before so many bytes of a field."""
    length = []
    while size > 127:
        length.append(128 | size & 127)
        size >>= 7
    return bytes([number << 3 | 2, *length, size])


def _header(name: str) -> dict[str, Any]:
    return wire.extension("header", HttpRequestHeaderMatchInput(header_name=name))


def _on_match(name: str, action: Any) -> dict[str, Any]:
    return {"action": wire.extension("action", rbac_pb2.Action(name=name, action=action))}


_LET_IN = _on_match("let-in", rbac_pb2.RBAC.ALLOW)


def _resource(name: str, message: Message) -> Resource:
    body = TypedExtensionConfig(name=name, typed_config=wire.packed(message))
    return Resource.of(Kind.FILTER, name, wire.serialized(body))
