"""Keys of trusted issuers, fetched again and again; the last good ones stay in use while an issuer fails."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from services.metering.domain.issuer import TrustedIssuer, usable_keys
from services.metering.domain.policy import FactKind, IssuerKeys, Span
from services.metering.drivers.policy import Policy
from services.metering.ports.jwks_source import FetchedKeys, JwksSource
from services.rpc.clock import Clock
from services.rpc.errors import InferplaneError

_log = structlog.get_logger(__name__)

EVERY = 60.0  # seconds between two looks
_WHOLE_EVERY = 5  # looks; between them only a changed key set is sent
_FIRST_RETRY = 1.0  # seconds; doubles until there are keys


class Issuers:
    """Asks each issuer in a task of its own, so that a slow one holds up none."""

    def __init__(
        self, trusted: Sequence[TrustedIssuer], source: JwksSource, policy: Policy, clock: Clock
    ) -> None:
        self._trusted = trusted
        self._source = source
        self._policy = policy
        self._clock = clock
        self._asked: dict[str, float] = {}  # issuer: monotonic time of its last good answer

    def ages(self) -> Mapping[str, float]:
        """Seconds since the last good answer, by issuer; one that never gave any is missing."""
        now = self._clock.monotonic()
        return {issuer: now - asked for issuer, asked in self._asked.copy().items()}

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for issuer in self._trusted:
                tasks.create_task(self._follow(issuer))

    async def _follow(self, issuer: TrustedIssuer) -> None:
        known: FetchedKeys | None = None
        look, retry = 0, _FIRST_RETRY
        never = asyncio.Event()
        while True:
            try:
                whole = look % _WHOLE_EVERY == 0
                known = await self._look(issuer, known, whole=whole)
                look += 1
            except InferplaneError as error:
                _log.warning("issuer not read", issuer=issuer.issuer, why=error.message)
            wait = EVERY
            if known is None:
                wait, retry = retry, min(2 * retry, EVERY)
            await self._clock.wait(never, self._clock.monotonic() + wait)

    async def _look(
        self, issuer: TrustedIssuer, known: FetchedKeys | None, *, whole: bool
    ) -> FetchedKeys:
        """Fetch and publish; returns what to compare with the next time."""
        fetched = await self._source.fetch(issuer, None if whole else known)
        if fetched is None:
            assert known is not None
            fetched = known
        else:
            self._publish(issuer, usable_keys(fetched.jwks))
        self._asked[issuer.issuer] = self._clock.monotonic()
        return fetched

    def _publish(self, issuer: TrustedIssuer, jwks: str) -> None:
        keys = IssuerKeys(
            jwks=jwks,
            audiences=issuer.audiences,
            project_claim=issuer.project_claim,
            role_claim=issuer.role_claim,
            endpoints_claim=issuer.endpoints_claim,
        )
        self._policy.put([Span((FactKind.ISSUER, issuer.issuer), keys)])
