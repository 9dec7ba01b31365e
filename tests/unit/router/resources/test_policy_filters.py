"""The filters of a policy: what they say, and that they are made only of what changed."""

import json
from dataclasses import replace
from typing import Any

import pytest
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.extensions.filters.http.dynamic_modules.v3.dynamic_modules_pb2 import (
    DynamicModuleFilter,
)
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from google.protobuf.wrappers_pb2 import StringValue

from services.router.domain.policy import Issuer, Limits, Policy, SigningKey
from services.router.resources import edge
from services.router.resources.policy_filters import PolicyFilters
from tests.metering_keys import KeyMint

MINT = KeyMint()
POLICY = Policy(
    signing_keys=(SigningKey(MINT.kid, MINT.jwk),),
    revoked_keys=tuple(sorted(f"{i:0{1 + i % 150}x}" for i in range(300))),
    disabled_projects=("gone",),
    limits=(("projects/p", Limits(requests_per_second=0.25)),),
)


def issuer(jwks: str) -> Issuer:
    return Issuer(
        issuer="https://issuer.example",
        jwks=jwks,
        audiences=("inferplane",),
        project_claim="project",
        role_claim="role",
        endpoints_claim="endpoints",
    )


def built(policy: Policy, name: str, into: Any) -> Any:
    """The filter of this name."""
    (body,) = [
        one.body for one in PolicyFilters(has_module=True).resources(policy) if one.name == name
    ]
    assert TypedExtensionConfig.FromString(body).typed_config.Unpack(into)
    return into


def test_every_revoked_key_is_in_the_map() -> None:
    """All ids, whatever their length, then projects, then all others are let in."""
    first = built(POLICY, edge.REVOCATIONS_FILTER, RBAC()).matcher
    refused = first.matcher_tree.exact_match_map.map
    assert sorted(refused) == sorted(set(POLICY.revoked_keys))
    assert {entry.action.name for entry in refused.values()} == {"action"}
    second = first.on_no_match.matcher
    assert list(second.matcher_tree.exact_match_map.map) == ["gone"]
    assert second.on_no_match.HasField("action")


def test_without_revocations_there_is_no_map() -> None:
    """Envoy takes no empty one."""
    policy = Policy(signing_keys=POLICY.signing_keys)
    matcher = built(policy, edge.REVOCATIONS_FILTER, RBAC()).matcher
    assert not matcher.HasField("matcher_tree")
    assert matcher.on_no_match.HasField("action")


@pytest.mark.parametrize("jwks", ["", "{", "[]", "7", '{"keys": 7}', '{"keys": [7, {"kty": 7}]}'])
def test_issuers_without_good_keys_are_left_out(jwks: str) -> None:
    """Envoy would refuse all providers for one of them."""
    policy = replace(POLICY, issuers=(issuer(jwks),))
    providers = built(policy, edge.KEYS_FILTER, JwtAuthentication()).providers
    assert list(providers) == ["token"]


def test_an_issuer_with_one_good_key_is_believed() -> None:
    """Beside ours, and both keep to their own issuer and audience."""
    jwks = json.dumps({"keys": [{"kty": "odd"}, json.loads(MINT.jwk)]})
    policy = replace(POLICY, issuers=(issuer(jwks),))
    told = built(policy, edge.KEYS_FILTER, JwtAuthentication())
    assert sorted(told.providers) == ["issuer0", "token"]
    assert {one.issuer for one in told.providers.values()} == {
        "inferplane",
        "https://issuer.example",
    }
    for provider in told.providers.values():
        assert provider.audiences == ["inferplane"]
        assert provider.require_expiration
        assert not provider.forward
        assert [one.name for one in provider.from_headers] == ["Authorization"]
        assert 0 < provider.clock_skew_seconds <= 5  # 0 would be a minute


def test_limits_are_told_in_lines() -> None:
    """A burst that is not said is that of one second, and at least 1."""
    told = built(POLICY, edge.LIMITS_FILTER, DynamicModuleFilter())
    text = StringValue()
    told.filter_config.Unpack(text)
    assert (told.filter_name, text.value) == ("limits", "projects/p 0.25 1 0 0")


def test_only_what_changed_is_made_anew() -> None:
    """A revocation leaves keys and limits the very same resources."""
    filters = PolicyFilters(has_module=True)
    before = {one.name: one for one in filters.resources(POLICY)}
    after = {one.name: one for one in filters.resources(replace(POLICY, revoked_keys=("another",)))}
    same = {name for name, one in after.items() if one is before[name]}
    assert same == {edge.KEYS_FILTER, edge.LIMITS_FILTER}
