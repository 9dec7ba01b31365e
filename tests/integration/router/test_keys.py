"""Who is let in: tokens that are good, and none other, as the policy says now."""

import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.router.domain.policy import (
    Issuer,
    IssuerChange,
    PolicyUpdate,
    RevocationChange,
    SigningKeyChange,
)
from services.router.domain.snapshot import Kind, Resource
from services.router.domain.topology import Endpoint, Target
from services.router.ports.feeds import Builder
from services.router.resources import edge as names
from tests.integration.router import keys
from tests.integration.router.edge import V1, EdgeUnderTest
from tests.integration.router.keys import REVOKED, answer, bearer, head, signing, tell
from tests.integration.router.waiting import until
from tests.metering_keys import BAD_TOKENS, KeyMint

INVALID, EXPIRED = "UNAUTHENTICATED API_KEY_INVALID", "UNAUTHENTICATED API_KEY_EXPIRED"
_REASONS = {
    "expired": EXPIRED,
    "not yet good": "UNAUTHENTICATED API_KEY_NOT_YET_VALID",
}


@pytest.fixture
def mint() -> KeyMint:
    """Signs tokens."""
    return KeyMint()


@pytest.fixture
async def edge(folder: Path, mint: KeyMint) -> AsyncIterator[EdgeUnderTest]:
    """Asks for keys of the mint."""
    edge = await keys.start(folder, mint)
    yield edge
    await edge.stop()


async def test_workers_hear_who_calls(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Project, key and role reach the worker, the token doesn't; what a client says of itself is nothing."""
    token = mint.token(project="acme", jti="one", role="viewer")
    forged = [
        ("x-inferplane-project", "victim"),
        ("x-inferplane-key", "victim"),
        ("x-inferplane-role", "admin"),
        ("x-inferplane-shadow", "1"),
        ("x-inferplane-endpoints", "[]"),
        ("x-request-id", "00000000-0000-4000-8000-000000000000"),
    ]
    await edge.infer(metadata=(*bearer(token), *forged))
    heard = edge.workers[0].headers
    assert heard["x-inferplane-project"] == "acme"
    assert heard["x-inferplane-key"] == "one"
    assert heard["x-inferplane-role"] == "viewer"
    assert "x-inferplane-shadow" not in heard
    assert "authorization" not in heard
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", heard["x-request-id"])
    assert not heard["x-request-id"].startswith("00000000")


async def test_bad_tokens(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Expired, forged, unsigned, twice said, too long: refused, and no worker hears of it."""
    wrong = {}
    for name in sorted({*BAD_TOKENS} - {"1 MB"}):  # that one is below
        got = await answer(edge, BAD_TOKENS[name](mint))
        if got != _REASONS.get(name, INVALID):
            wrong[name] = got
    assert wrong == {}
    assert edge.workers[0].calls.total() == 0


async def test_long_tokens(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """A token of 1 MB ends with HTTP's own status for it; the edge goes on."""
    status, _, body = await edge.http("GET", "/v2", headers=head(BAD_TOKENS["1 MB"](mint)))
    assert status == 431
    assert "error" in json.loads(body)
    assert await answer(edge, mint.token()) == "OK"


async def test_where_tokens_are_looked_for(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """One authorization header, and nowhere else."""
    good, bad = mint.token(), BAD_TOKENS["expired"](mint)
    assert (await edge.http("GET", "/v2", headers=head(good)))[0] == 200
    assert (await edge.http("GET", "/v2", headers={"AUTHORIZATION": f"Bearer {good}"}))[0] == 200
    refused: list[dict[str, str]] = [
        {},
        {"authorization": good},
        {"authorization": f"Basic {good}"},
        {"cookie": f"access_token={good}; token={good}"},
        {"x-api-key": good},
        {"proxy-authorization": f"Bearer {good}"},
        {"authorization": f"Bearer {good},Bearer {bad}"},
        {"authorization": f"Bearer {good}", "Authorization": f"Bearer {bad}"},
        {"authorization": f"Bearer {bad}", "Authorization": f"Bearer {good}"},
        {"authorization": f"Bearer {good}", "Authorization": f"Bearer {good}"},
    ]
    for headers in refused:
        status, answered, body = await edge.http("GET", "/v2", headers=headers)
        assert status == 401, headers
        assert answered["www-authenticate"] == 'Bearer realm="inferplane"'
        assert list(json.loads(body)) == ["error"]
    for query in (f"access_token={good}", f"authorization=Bearer%20{good}"):
        assert (await edge.http("GET", f"/v2?{query}"))[0] == 401


async def test_openai_s_clients_hear_it_in_their_words(edge: EdgeUnderTest) -> None:
    """`invalid_api_key`, as their libraries know it."""
    body = b'{"model": "digits", "messages": []}'
    status, _, answered = await edge.http("POST", "/v1/chat/completions", body)
    assert status == 401
    error = json.loads(answered)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


async def test_revoking(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """A revoked key, and all keys of a disabled project, are out; others are in; what ends is in again."""
    one, two, three = (mint.token(jti=jti, project=p) for jti, p in ("1a", "2a", "3b"))
    for token in (one, two, three):
        assert await answer(edge, token) == "OK"
    await tell(edge, RevocationChange("projects/a/keys/1", revoked=True))
    assert await answer(edge, one) == "UNAUTHENTICATED API_KEY_REVOKED"
    assert await answer(edge, two) == "OK"
    await tell(edge, RevocationChange("projects/a", revoked=True))
    assert await answer(edge, two) == "PERMISSION_DENIED PROJECT_DISABLED"
    assert await answer(edge, three) == "OK"
    await tell(edge, RevocationChange("projects/a", revoked=False))
    assert await answer(edge, two) == "OK"
    assert await answer(edge, one) == "UNAUTHENTICATED API_KEY_REVOKED"


async def test_signing_keys_come_and_go(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Tokens of both keys are good while both hold; one that is gone signs for nobody, though it was seen before."""
    other = KeyMint()
    old, new = mint.token(), other.token()
    assert [await answer(edge, token) for token in (old, new)] == ["OK", INVALID]
    await tell(edge, signing(other))
    assert [await answer(edge, token) for token in (old, new)] == ["OK", "OK"]
    await tell(edge, SigningKeyChange(mint.kid, None))
    assert [await answer(edge, token) for token in (old, new)] == [INVALID, "OK"]
    # With none left nobody is let in, though Envoy can't verify by nothing and keeps what it had.
    edge.publisher.hear_policy(
        PolicyUpdate(changes=(SigningKeyChange(other.kid, None),), synced=True)
    )

    async def is_out() -> bool:
        return await answer(edge, new) == REVOKED

    await until(is_out, seconds=60)


async def test_the_listener_stays(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """However the policy changes, listener and routes are the same, so that no stream ends of it."""
    before = edge.board.current
    await tell(edge, signing(KeyMint()), RevocationChange("projects/a/keys/1", revoked=True))
    after = edge.board.current
    assert before is not None
    assert after is not None
    assert before.snapshot.version != after.snapshot.version
    for kind in {*Kind} - {Kind.FILTER}:
        assert before.snapshot.of_kind(kind) == after.snapshot.of_kind(kind)


async def test_other_issuers(edge: EdgeUnderTest) -> None:
    """Tokens of a believed issuer are read by its claims; those of another issuer or audience are not."""
    theirs = KeyMint()
    issuer = Issuer(
        issuer="https://issuer.example",
        jwks=theirs.jwks,
        audiences=("inferplane", "tools"),
        project_claim="org.project",
        role_claim="org.role",
        endpoints_claim="org.models",
    )
    await tell(edge, IssuerChange(issuer.issuer, issuer))

    def token(**changed: Any) -> str:
        org = {"project": "acme", "role": "caller", "models": ["digits"], **changed.pop("org", {})}
        none = dict.fromkeys(("project", "role", "endpoints"))
        claims = {"iss": issuer.issuer, "sub": "alice@acme", "aud": ["tools"], **none, **changed}
        return theirs.token(org=org, **claims)

    assert await answer(edge, token()) == "OK"
    assert edge.workers[0].headers["x-inferplane-project"] == "acme"
    assert edge.workers[0].headers["x-inferplane-key"] == "alice@acme"
    assert await answer(edge, token(org={"models": "digits"})) == "OK"
    assert await answer(edge, token(), "other") == "PERMISSION_DENIED ENDPOINT_NOT_ALLOWED"
    # Only our own tokens say it in our claims.
    forged = token(endpoints=["*"], role="admin", project="victim", org={"role": "nobody"})
    assert await answer(edge, forged) == "PERMISSION_DENIED ROLE_NOT_ALLOWED"
    assert await answer(edge, token(endpoints=["*"]), "other") == (
        "PERMISSION_DENIED ENDPOINT_NOT_ALLOWED"
    )
    for project in (None, "", "A", "a/b", "x" * 64, ["acme"], {"a": 1}):
        got = await answer(edge, token(org={"project": project}))
        assert got == "PERMISSION_DENIED PROJECT_MISSING", project
    for sub in ("ålice", "a\nb", "", None, "x" * 256):
        assert await answer(edge, token(sub=sub)) == "PERMISSION_DENIED PROJECT_MISSING", sub
    assert await answer(edge, token(aud="somebody")) == INVALID
    assert await answer(edge, theirs.token()) == INVALID  # says that it is ours
    assert await answer(edge, theirs.token(iss="https://other.example")) == INVALID
    await tell(edge, IssuerChange(issuer.issuer, None))
    assert await answer(edge, token()) == INVALID


async def test_an_issuer_without_good_keys_harms_nobody(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Its tokens are refused; ours are not."""
    for jwks in ('{"keys": []}', "{", '{"keys": [{"kty": "OKP"}]}', "[]", '{"keys": [7]}'):
        bad = Issuer(
            issuer="https://issuer.example",
            jwks=jwks,
            audiences=("inferplane",),
            project_claim="project",
            role_claim="role",
            endpoints_claim="endpoints",
        )
        await tell(edge, IssuerChange(bad.issuer, bad))
        assert await answer(edge, mint.token()) == "OK"
        assert await answer(edge, KeyMint().token(iss=bad.issuer)) == INVALID


@pytest.mark.parametrize("has_key", [True, False])
async def test_nobody_is_let_in_before_the_policy_is_known(
    folder: Path, mint: KeyMint, has_key: bool
) -> None:
    """An edge that has heard nothing of metering refuses everything and says that trying again may help."""
    edge = await keys.start(folder, None)
    try:
        await until(lambda: listens(edge), seconds=60)
        headers = head(mint.token()) if has_key else {}
        status, _, body = await edge.http("GET", "/v2", headers=headers)
        assert status == 503
        assert json.loads(body)["error"].startswith("the edge does not know yet who may call")
        assert await answer(edge, mint.token() if has_key else "") == "UNAVAILABLE POLICY_UNKNOWN"
        assert edge.workers[0].calls.total() == 0
        await tell(edge, signing(mint), restart=True)
        assert await answer(edge, mint.token()) == "OK"
    finally:
        await edge.stop()


async def test_a_router_that_knows_no_policy_changes_none(
    edge: EdgeUnderTest, mint: KeyMint
) -> None:
    """Metering is away and the router new: keys and revocations hold as they did, and endpoints go on changing."""
    await tell(edge, RevocationChange("projects/default/keys/gone", revoked=True))
    await edge.server.stop(0)
    edge.publishing.cancel()
    await edge.restart_control_plane()
    worker = edge.workers[0]
    edge.set_endpoint(Endpoint(name=keys.OTHER, targets=(Target(V1, 1),)))
    edge.set_workers({worker.address: {V1}})
    await edge.in_sync(seconds=60)
    assert (await edge.infer("other", metadata=bearer(mint.token()))).model_version == str(V1)
    assert await answer(edge, mint.token(jti="gone")) == "UNAUTHENTICATED API_KEY_REVOKED"
    assert await answer(edge, KeyMint().token()) == INVALID


async def listens(edge: EdgeUnderTest) -> bool:
    """Whether the edge takes connections."""
    try:
        await edge.http("GET", "/v2")
    except ConnectionError:
        return False
    return True


class Broken:
    """A builder that makes one filter something that Envoy can't take."""

    def __init__(self, builder: Builder, name: str) -> None:
        self._builder, self.name = builder, name

    def build(self, *what: Any) -> list[Resource]:
        return [
            Resource.of(one.kind, one.name, b"\xff") if one.name == self.name else one
            for one in self._builder.build(*what)
        ]


@pytest.mark.parametrize(
    "name",
    [
        names.KEYS_FILTER,
        names.REVOCATIONS_FILTER,
        names.revocations_filter("0"),
        names.LIMITS_FILTER,
    ],
)
async def test_a_filter_that_is_bad_lets_nobody_in(folder: Path, mint: KeyMint, name: str) -> None:
    """Whichever of the policy's filters Envoy has never had: nobody is let in."""

    def wrap(builder: Builder) -> Builder:
        return Broken(builder, name)

    edge = await EdgeUnderTest.start(folder, wrap, asks_for_keys=True)
    try:
        edge.publisher.hear_policy(
            PolicyUpdate(changes=(signing(mint),), synced=True, restart=True)
        )
        edge.set_workers({})
        await until(lambda: listens(edge), seconds=60)
        status, _, _ = await edge.http("GET", "/v2", headers=head(mint.token(jti="0a")))
        assert status == 503
    finally:
        await edge.stop()


async def test_revoked_keys_of_every_kind(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Keys whose ids begin with any digit, or with something else, are out one by one; others are in all the while."""
    tokens = {ident: mint.token(jti=ident) for ident in [*(f"{i:x}7" for i in range(16)), "x", "-"]}
    stays = [mint.token(jti=ident) for ident in ("0", "7", "f70", "xx")]
    for ident, token in tokens.items():
        assert await answer(edge, token) == "OK"
        await tell(edge, RevocationChange(f"projects/default/keys/{ident}", revoked=True))
        assert await answer(edge, token) == REVOKED
    assert [await answer(edge, token) for token in stays] == ["OK"] * len(stays)
    await tell(edge, RevocationChange("projects/default/keys/77", revoked=False))
    assert [i for i, token in tokens.items() if await answer(edge, token) == "OK"] == ["77"]


async def test_a_shard_that_envoy_refuses_stays_as_it_was(folder: Path, mint: KeyMint) -> None:
    """Whom it knew stays out and whom it let in is in; all other shards go on changing."""
    wrapped: list[Broken] = []

    def wrap(builder: Builder) -> Builder:
        wrapped.append(Broken(builder, ""))
        return wrapped[0]

    edge = await keys.start(folder, mint, wrap=wrap)
    try:
        tokens = [mint.token(jti=ident) for ident in ("a1", "a2", "b1")]
        await tell(edge, RevocationChange("projects/default/keys/a1", revoked=True))
        assert [await answer(edge, token) for token in tokens] == [REVOKED, "OK", "OK"]
        wrapped[0].name = names.revocations_filter("a")
        for ident in ("a2", "b1"):
            change = RevocationChange(f"projects/default/keys/{ident}", revoked=True)
            edge.publisher.hear_policy(PolicyUpdate(changes=(change,), synced=True))

        async def is_out() -> bool:
            return await answer(edge, tokens[2]) == REVOKED

        await until(is_out, seconds=60)
        assert [await answer(edge, token) for token in tokens] == [REVOKED, "OK", REVOKED]
        wrapped[0].name = ""
        await tell(edge, RevocationChange("projects/default/keys/a3", revoked=True))
        assert [await answer(edge, token) for token in tokens] == [REVOKED] * 3
    finally:
        await edge.stop()


async def test_tokens_end_by_the_clock(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """A token that was good, and is kept as verified, is refused from its end on."""
    end = int(time.time()) + 2
    token = mint.token(exp=end)
    assert await answer(edge, token) == "OK"
    await until(lambda: time.time() > end + 2)
    assert await answer(edge, token) == EXPIRED
