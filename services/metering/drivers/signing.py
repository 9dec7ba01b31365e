"""Signing keys: one signs, those before it verify until they are retired."""

import json
from datetime import timedelta

import structlog

from services.metering.domain.api_key import LONGEST_LIFETIME, check_overlap
from services.metering.domain.policy import signing_span
from services.metering.domain.signing_key import SigningKey, retired
from services.metering.drivers.policy import Policy
from services.metering.ports.identity_store import (
    IdentityStore,
    IdentityTransaction,
    IdentityView,
)
from services.metering.ports.signer import Signer
from services.rpc.clock import Clock
from services.rpc.errors import InferplaneError, InternalError
from services.rpc.violations import Violations

_log = structlog.get_logger(__name__)


async def current_key(view: IdentityView) -> SigningKey:
    """The key that signs."""
    keys = [key for key in await view.signing_keys() if key.retire_time is None]
    if not keys:
        raise InternalError("no signing key is in use")
    return keys[-1]


class Signing:
    """Makes, rotates and publishes signing keys.

    A private half is on disk before its public half is stored, and destroyed once another has taken its
    place: killed in between, a file is left over, which the next start removes.
    """

    def __init__(self, store: IdentityStore, signer: Signer, policy: Policy, clock: Clock) -> None:
        self._store = store
        self._signer = signer
        self._policy = policy
        self._clock = clock

    async def start(self) -> None:
        """See to it that one key can sign. Tokens of one whose private half is gone stay good."""
        changed = await self._store.write(self._started, self._tell)
        if changed:
            _log.info("signing key made", kid=changed[-1].kid, retired=len(changed) - 1)
        await self._tidy()

    async def _started(self, transaction: IdentityTransaction) -> list[SigningKey]:
        """In the transaction, for another process may start at the same moment."""
        keys = await transaction.signing_keys()
        current = [key for key in keys if key.retire_time is None]
        if current and self._signer.has(current[-1].kid):
            return []
        if current:
            _log.warning("private half of the signing key is gone", kid=current[-1].kid)
        return await self._made(transaction, LONGEST_LIFETIME)

    async def rotate(self, overlap: timedelta | None) -> str:
        """Sign with a new key from now on; tokens of the others stay good for `overlap`. Returns the new kid."""
        lasting = LONGEST_LIFETIME if overlap is None else overlap
        violations = Violations()
        check_overlap(violations, lasting)
        violations.raise_if_any()
        return await self._replace(lasting)

    async def _replace(self, overlap: timedelta) -> str:
        changed = await self._store.write(lambda t: self._made(t, overlap), self._tell)
        _log.info("signing key made", kid=changed[-1].kid, retired=len(changed) - 1)
        await self._tidy()
        return changed[-1].kid

    async def _made(self, transaction: IdentityTransaction, overlap: timedelta) -> list[SigningKey]:
        """The keys that change: a new one, last, and those that it retires."""
        now = self._clock.now()
        changed = retired(await transaction.signing_keys(), now, overlap)
        kid, jwk = self._signer.make()
        changed.append(SigningKey(kid=kid, jwk=jwk, create_time=now))
        for key in changed:
            await transaction.put_signing_key(key)
        return changed

    def _tell(self, changed: list[SigningKey]) -> None:
        # The new one first: a reader between the two would know of none that signs.
        self._policy.put([signing_span(key) for key in reversed(changed)])

    async def _tidy(self) -> None:
        """Destroy private halves that don't sign any more.

        In a transaction that alone writes: one that another process has made and not yet stored is none of them.
        """

        async def work(transaction: IdentityTransaction) -> None:
            self._signer.keep_only([(await current_key(transaction)).kid])

        try:
            await self._store.write(work)
        except InferplaneError as error:
            _log.warning(
                "old signing keys not destroyed; the next start does", reason=error.message
            )

    async def jwks(self) -> str:
        """The public halves that verify now, as a JSON Web Key Set (RFC 7517)."""
        now = self._clock.now()
        keys = await self._store.read(lambda view: view.signing_keys())
        return json.dumps({"keys": [json.loads(key.jwk) for key in keys if key.verifies(now)]})
