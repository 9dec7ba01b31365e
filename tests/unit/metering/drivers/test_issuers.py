"""Keys of issuers, asked for again and again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.metering.domain.issuer import TrustedIssuer
from services.metering.domain.policy import FactKind, IssuerKeys
from services.metering.drivers.issuers import EVERY, Issuers
from services.metering.drivers.policy import Policy, PolicyNews
from services.metering.ports.jwks_source import FetchedKeys
from services.rpc.errors import UnavailableError
from tests.manual_clock import ManualClock
from tests.metering_keys import KeyMint

ISSUER = TrustedIssuer(
    issuer="https://issuer.example",
    audiences=("inferplane",),
    project_claim="org.id",
    role_claim="r",
    endpoints_claim="e",
)
SECONDS = 60


class ScriptedSource:
    """Answers as it is told, when it is told; an ear hears what it was asked."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[FetchedKeys | None] = asyncio.Queue()
        self.answers: asyncio.Queue[FetchedKeys | UnavailableError | None] = asyncio.Queue()

    async def fetch(
        self, issuer: TrustedIssuer, known: FetchedKeys | None = None
    ) -> FetchedKeys | None:
        self.asked.put_nowait(known)
        answer = await self.answers.get()
        if isinstance(answer, UnavailableError):
            raise answer
        return answer


class Asking:
    """A running Issuers and its surroundings."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.source = ScriptedSource()
        self.policy = Policy(self.clock, first_revision=100)
        self.issuers = Issuers([ISSUER], self.source, self.policy, self.clock)

    async def answer(self, answer: FetchedKeys | UnavailableError | None) -> FetchedKeys | None:
        """Wait for the next question, whatever time passes until it comes, and answer it; returns what was known."""
        async with asyncio.timeout(SECONDS):
            known = await self.source.asked.get()
        self.source.answers.put_nowait(answer)
        for _ in range(10):  # the answer is taken, and the next wait has begun
            await asyncio.sleep(0)
        return known


@asynccontextmanager
async def asking() -> AsyncIterator[Asking]:
    parts = Asking()
    running = asyncio.create_task(parts.issuers.run())
    try:
        yield parts
    finally:
        running.cancel()
        await asyncio.wait([running])


async def told(parts: Asking) -> PolicyNews:
    async with asyncio.timeout(SECONDS):
        return await anext(parts.policy.follow(0))


def fetched(mint: KeyMint, etag: str = "1") -> FetchedKeys:
    return FetchedKeys(mint.jwks, "https://issuer.example/jwks", etag)


async def test_an_issuers_keys_are_published_with_its_claims() -> None:
    """As the settings say them."""
    mint = KeyMint()
    async with asking() as parts:
        assert await parts.answer(fetched(mint)) is None
        (change,) = (await told(parts)).changes
    assert change.key == (FactKind.ISSUER, ISSUER.issuer)
    assert isinstance(change.fact, IssuerKeys)
    assert [key["kid"] for key in json.loads(change.fact.jwks)["keys"]] == [mint.kid]
    assert (change.fact.audiences, change.fact.project_claim) == (("inferplane",), "org.id")


async def test_each_minute_it_is_asked_whether_anything_changed() -> None:
    """And every fifth time for all, discovery included."""
    first = fetched(KeyMint())
    async with asking() as parts:
        await parts.answer(first)
        for number in range(1, 10):
            parts.clock.advance(EVERY)
            whole = number % 5 == 0
            known = await parts.answer(first if whole else None)
            assert known == (None if whole else first)
        assert (await told(parts)).revision == 101


async def test_new_keys_take_the_place_of_the_old() -> None:
    """At the next look."""
    new = KeyMint()
    async with asking() as parts:
        await parts.answer(fetched(KeyMint()))
        parts.clock.advance(EVERY)
        await parts.answer(fetched(new, "2"))
        (change,) = (await told(parts)).changes
        assert isinstance(change.fact, IssuerKeys)
        assert new.kid in change.fact.jwks
        parts.clock.advance(EVERY)
        assert await parts.answer(None) == fetched(new, "2")


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(UnavailableError("gone"), id="unavailable"),
        pytest.param(FetchedKeys('{"keys": []}', "u", "2"), id="without keys"),
        pytest.param(FetchedKeys("oops", "u", "2"), id="no JSON"),
    ],
)
async def test_the_last_good_keys_stay_while_an_issuer_fails(
    failure: FetchedKeys | UnavailableError,
) -> None:
    """Its age tells; then it is asked against what is in use, not against what was refused."""
    good = fetched(KeyMint())
    async with asking() as parts:
        await parts.answer(good)
        before = await told(parts)
        parts.clock.advance(EVERY)
        await parts.answer(failure)
        assert await told(parts) == before
        assert parts.issuers.ages() == {ISSUER.issuer: EVERY}
        parts.clock.advance(EVERY)
        assert await parts.answer(None) == good
        assert parts.issuers.ages() == {ISSUER.issuer: 0}


async def test_until_there_are_keys_it_is_asked_sooner() -> None:
    """After 1, 2, 4 … seconds, at most each minute."""
    async with asking() as parts:
        for wait in (1, 2, 4, 8, 16, 32, 60, 60):
            await parts.answer(UnavailableError("not yet"))
            parts.clock.advance(wait - 0.001)
            await asyncio.sleep(0)
            assert parts.source.asked.empty()
            parts.clock.advance(0.001)
        await parts.answer(fetched(KeyMint()))
        assert len((await told(parts)).changes) == 1
