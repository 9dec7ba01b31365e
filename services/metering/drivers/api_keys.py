"""Use cases of API keys."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from services.metering.domain.api_key import (
    DEFAULT_LIFETIME,
    DEFAULT_OVERLAP,
    ApiKey,
    KeyInput,
    KeyIssue,
    changed_key,
    check_key,
    check_lifetime,
    check_overlap,
    check_rotatable,
    new_key,
    revoked,
    rotated,
)
from services.metering.domain.etag import check_etag
from services.metering.domain.policy import key_spans
from services.metering.domain.token import claims_of
from services.metering.drivers.policy import Policy
from services.metering.drivers.projects import existing_project
from services.metering.drivers.signing import current_key
from services.metering.ports.identity_store import (
    IdentityStore,
    IdentityTransaction,
    IdentityView,
    KeyQuery,
    key_sort_key,
)
from services.metering.ports.signer import Signer
from services.rpc.clock import Clock
from services.rpc.errors import NotFoundError
from services.rpc.names import KeyName, ProjectName
from services.rpc.page import Page, PageRequest, cut
from services.rpc.violations import Violations

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key and its secret, which nothing else holds."""

    key: ApiKey
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyListing:
    """Whose keys are listed."""

    project: ProjectName | None  # None: everybody's
    show_ended: bool


async def _existing(view: IdentityView, name: KeyName) -> ApiKey:
    key = await view.key(name)
    if key is None:
        raise NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})
    return key


def draw_key_name(project: ProjectName) -> KeyName:
    """A name that no other key has."""
    return KeyName(project.project, secrets.token_hex(16))


class ApiKeys:
    """Issues, changes, rotates, revokes and lists keys. What the edge must know is told before the caller hears."""

    def __init__(self, store: IdentityStore, signer: Signer, policy: Policy, clock: Clock) -> None:
        self._store = store
        self._signer = signer
        self._policy = policy
        self._clock = clock

    async def create(
        self, project: ProjectName, given: KeyInput, lifetime: timedelta | None
    ) -> IssuedKey:
        """Issue a key; NotFoundError if there is no such project."""
        lasting = DEFAULT_LIFETIME if lifetime is None else lifetime
        check_key(given, lasting)

        async def work(transaction: IdentityTransaction) -> IssuedKey:
            await existing_project(transaction, project)
            issue = await self._issue(transaction, project, lasting)
            return await self._put_new(transaction, new_key(given, issue))

        issued = await self._store.write(work, lambda done: self._tell([done.key]))
        _log.info("key made", key=str(issued.key.name), role=issued.key.role.value)
        return issued

    async def _issue(
        self, view: IdentityView, project: ProjectName, lifetime: timedelta
    ) -> KeyIssue:
        """Drawn inside the write, so that no key is signed by one that was retired meanwhile."""
        signing = await current_key(view)
        return KeyIssue(draw_key_name(project), signing.kid, self._clock.now(), lifetime)

    async def _put_new(self, transaction: IdentityTransaction, key: ApiKey) -> IssuedKey:
        token = self._signer.sign(key.kid, claims_of(key))
        await transaction.put_key(key)
        return IssuedKey(key, token)

    async def get(self, name: KeyName) -> ApiKey:
        return await self._store.read(lambda view: _existing(view, name))

    async def list(self, listing: KeyListing, request: PageRequest) -> Page[ApiKey]:
        query = KeyQuery(
            limit=request.size + 1,
            after=request.after,
            project=listing.project,
            live_at=None if listing.show_ended else self._clock.now(),
        )

        async def work(view: IdentityView) -> Sequence[ApiKey]:
            if listing.project is not None:
                await existing_project(view, listing.project)
            return await view.keys(query)

        return cut(request, await self._store.read(work), key_sort_key)

    async def update(
        self, name: KeyName, given: KeyInput, mask: Sequence[str], etag: str
    ) -> ApiKey:
        """Change the masked ones of label, tags and limits. AbortedError if another etag is stored."""

        async def work(transaction: IdentityTransaction) -> ApiKey:
            key = await _existing(transaction, name)
            check_etag(name, key, etag)
            changed = changed_key(key, given, mask)
            await transaction.put_key(changed)
            return changed

        return await self._store.write(work, lambda key: self._tell([key]))

    async def rotate(
        self, name: KeyName, overlap: timedelta | None, lifetime: timedelta | None
    ) -> IssuedKey:
        """Issue a key with the same rights and, unless told, for as long; the old one goes on for `overlap`."""
        lasting = DEFAULT_OVERLAP if overlap is None else overlap
        violations = Violations()
        check_overlap(violations, lasting)
        if lifetime is not None:
            check_lifetime(violations, lifetime)
        violations.raise_if_any()

        async def work(transaction: IdentityTransaction) -> tuple[ApiKey, IssuedKey]:
            old = await _existing(transaction, name)
            check_rotatable(old, self._clock.now())
            as_long = old.expire_time - old.create_time.replace(microsecond=0)
            issue = await self._issue(transaction, name.parent, lifetime or as_long)
            ended, successor = rotated(old, issue, lasting)
            issued = await self._put_new(transaction, successor)
            await transaction.put_key(ended)
            return ended, issued

        _, issued = await self._store.write(work, lambda done: self._tell([done[1].key, done[0]]))
        _log.info("key rotated", key=str(name), successor=str(issued.key.name))
        return issued

    async def revoke(self, name: KeyName) -> ApiKey:
        """Let it in no more from now on; harmless if that is so already."""

        async def work(transaction: IdentityTransaction) -> ApiKey:
            key = revoked(await _existing(transaction, name), self._clock.now())
            await transaction.put_key(key)
            return key

        key = await self._store.write(work, lambda done: self._tell([done]))
        _log.info("key revoked", key=str(name))
        return key

    def _tell(self, keys: Sequence[ApiKey]) -> None:
        self._policy.put([span for key in keys for span in key_spans(key)])
