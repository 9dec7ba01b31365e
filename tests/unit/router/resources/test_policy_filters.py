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

from services.router.domain.policy import (
    OTHERS,
    SHARDS,
    Issuer,
    Limits,
    LimitsChange,
    Policy,
    PolicyBook,
    PolicyChange,
    PolicyUpdate,
    RevocationChange,
    SigningKey,
    SigningKeyChange,
)
from services.router.domain.snapshot import Resource
from services.router.resources import edge
from services.router.resources.policy_filters import PolicyFilters
from tests.metering_keys import KeyMint

MINT = KeyMint()
SLOW = Limits(requests_per_second=0.25)
POLICY = Policy(
    signing_keys=(SigningKey(MINT.kid, MINT.jwk),),
    revoked_keys={
        **{shard: tuple(f"{shard}{i:0{1 + i % 150}x}" for i in range(300)) for shard in SHARDS},
        OTHERS: ("zz-top",),
    },
    disabled_projects=("gone",),
    limits={OTHERS: (("projects/p", SLOW),)},
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


@pytest.mark.parametrize("shard", [*SHARDS, OTHERS])
def test_every_revoked_key_is_in_the_map_of_its_shard(shard: str) -> None:
    """All ids, whatever their length."""
    matcher = built(POLICY, edge.revocations_filter(shard), RBAC()).matcher
    refused = matcher.matcher_tree.exact_match_map.map
    assert sorted(refused) == sorted(POLICY.revoked_keys[shard])
    assert {entry.action.name for entry in refused.values()} == {"action"}


def test_who_is_in_no_map_is_let_in() -> None:
    """By the filter of a shard at once, by the last one if the project is not disabled."""
    assert built(POLICY, edge.revocations_filter("a"), RBAC()).matcher.on_no_match.HasField(
        "action"
    )
    last = built(POLICY, edge.REVOCATIONS_FILTER, RBAC()).matcher.on_no_match.matcher
    assert list(last.matcher_tree.exact_match_map.map) == ["gone"]
    assert last.on_no_match.HasField("action")


@pytest.mark.parametrize("shard", ["0", OTHERS])
def test_without_revocations_there_is_no_map(shard: str) -> None:
    """Envoy takes no empty one."""
    policy = Policy(signing_keys=POLICY.signing_keys)
    matcher = built(policy, edge.revocations_filter(shard), RBAC()).matcher
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
    """Of all shards; a burst that is not said is that of one second, and at least 1."""
    limits = {
        OTHERS: (("projects/p", SLOW),),
        "a": (("projects/p/keys/a0", Limits(concurrent_requests=3, shadow=True)),),
    }
    told = built(replace(POLICY, limits=limits), edge.LIMITS_FILTER, DynamicModuleFilter())
    text = StringValue()
    told.filter_config.Unpack(text)
    lines = "projects/p 0.25 1 0 0\nprojects/p/keys/a0 0 1 3 1"
    assert (told.filter_name, text.value) == ("limits", lines)


def heard(book: PolicyBook, filters: PolicyFilters, *changes: PolicyChange) -> dict[str, Resource]:
    """The filters after some more was said."""
    book.apply(PolicyUpdate(changes=changes, synced=True))
    assert book.current is not None
    return {one.name: one for one in filters.resources(book.current)}


def revocation(ident: str, *, revoked: bool = True) -> RevocationChange:
    return RevocationChange(f"projects/p/keys/{ident}", revoked=revoked)


_ONE_FILTER = {
    "a key of ours": (revocation("5f00"), "policy/revocations/5"),
    "a key of ours that is let in again": (
        revocation("3aaa", revoked=False),
        "policy/revocations/3",
    ),
    "another key": (revocation("x5"), "policy/revocations/others"),
    "a project": (RevocationChange("projects/5", revoked=True), "policy/revocations/others"),
    "limits of a key": (LimitsChange("projects/p/keys/5f", SLOW), "policy/limits"),
}


@pytest.mark.parametrize(("change", "name"), _ONE_FILTER.values(), ids=_ONE_FILTER.keys())
def test_only_what_changed_is_made_anew(change: PolicyChange, name: str) -> None:
    """One filter of all; the others are the very same resources."""
    book, filters = PolicyBook(), PolicyFilters(has_module=True)
    key = SigningKeyChange(MINT.kid, SigningKey(MINT.kid, MINT.jwk))
    known = [revocation(f"{shard}aaa") for shard in SHARDS]
    before = heard(book, filters, key, *known, LimitsChange("projects/p", SLOW))
    after = heard(book, filters, change)
    assert list(after) == list(edge.policy_filters())
    assert [one for one in after if after[one] is not before[one]] == [name]
    assert after[name].version != before[name].version


def test_routers_that_heard_it_differently_say_the_same() -> None:
    """In any order, at once or one by one, also of what was let in again meanwhile."""
    keys = [revocation(f"{i * 7919 % 65536:04x}") for i in range(200)]
    limits = [LimitsChange(f"projects/p/keys/{i * 31 % 256:02x}", SLOW) for i in range(100)]
    one = heard(PolicyBook(), PolicyFilters(has_module=True), *keys, *limits)
    book, filters = PolicyBook(), PolicyFilters(has_module=True)
    heard(book, filters, revocation("0aff"), LimitsChange("projects/p/keys/b", SLOW), *limits[50:])
    for key in reversed(keys):
        heard(book, filters, key)
    other = heard(
        book,
        filters,
        revocation("0aff", revoked=False),
        LimitsChange("projects/p/keys/b", None),
        *limits,
    )
    assert {name: at.version for name, at in one.items()} == {
        name: at.version for name, at in other.items()
    }
