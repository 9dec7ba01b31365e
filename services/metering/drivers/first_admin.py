"""The first admin: without one nobody could be let in to make the others."""

from dataclasses import dataclass, replace

import structlog

from services.metering.domain.api_key import (
    ALL_ENDPOINTS,
    LONGEST_LIFETIME,
    ApiKey,
    KeyInput,
    KeyIssue,
    KeyState,
    Role,
    new_key,
)
from services.metering.domain.policy import Span, key_spans, project_spans
from services.metering.domain.project import DEFAULT_PROJECT, Project, ProjectInput, new_project
from services.metering.domain.signing_key import SigningKey
from services.metering.domain.token import claims_of, key_of
from services.metering.drivers.api_keys import draw_key_name
from services.metering.drivers.policy import Policy
from services.metering.drivers.signing import current_key
from services.metering.ports.admin_file import AdminFile
from services.metering.ports.identity_store import IdentityStore, IdentityTransaction
from services.metering.ports.signer import Signer
from services.rpc.clock import Clock

_log = structlog.get_logger(__name__)

_LABEL = "first admin"
_INPUT = KeyInput(label=_LABEL, role=Role.ADMIN, endpoints=(ALL_ENDPOINTS,))


@dataclass(frozen=True, slots=True)
class Secrets:
    """Where the first admin's secret is made and put."""

    signer: Signer
    file: AdminFile


class FirstAdmin:
    """Makes an admin's key at a start that finds no file, or no admin who is let in: so nobody is locked out for good.

    The file is written before the key is stored: killed in between, the next start takes the key of the
    token in the file.
    """

    def __init__(
        self, store: IdentityStore, secrets: Secrets, policy: Policy, clock: Clock
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._policy = policy
        self._clock = clock

    async def ensure(self) -> None:
        """See to it that an admin is let in, and that the default project is there."""
        await self._store.write(self._work, self._policy.put)

    async def _work(self, transaction: IdentityTransaction) -> list[Span]:
        project = await self._project(transaction)
        spans = list(project_spans(project))
        if await self._is_enough(transaction):
            return spans
        if project.disabled:
            _log.warning("no admin was let in: the default project is enabled again")
            project = replace(project, disabled=False)
            await transaction.put_project(project)
        key = await self._key(transaction)
        await transaction.put_key(key)
        _log.info("admin key made", key=str(key.name))
        return [*project_spans(project), *key_spans(key)]

    async def _is_enough(self, transaction: IdentityTransaction) -> bool:
        """Whether an admin is let in and the file is there; what is in it is its owner's affair."""
        return self._secrets.file.read() is not None and await transaction.admin_lives(
            self._clock.now()
        )

    async def _project(self, transaction: IdentityTransaction) -> Project:
        project = await transaction.project(DEFAULT_PROJECT)
        if project is None:
            project = new_project(DEFAULT_PROJECT, ProjectInput(), self._clock.now())
            await transaction.put_project(project)
        return project

    async def _key(self, transaction: IdentityTransaction) -> ApiKey:
        signing = await current_key(transaction)
        left_over = await self._left_over(transaction, signing)
        if left_over is not None:
            return left_over
        name = draw_key_name(DEFAULT_PROJECT)
        key = new_key(_INPUT, KeyIssue(name, signing.kid, self._clock.now(), LONGEST_LIFETIME))
        self._secrets.file.write(self._secrets.signer.sign(key.kid, claims_of(key)))
        return key

    async def _left_over(
        self, transaction: IdentityTransaction, signing: SigningKey
    ) -> ApiKey | None:
        """The key of the token in the file, if a start that was killed put it there and didn't store it."""
        token = self._secrets.file.read()
        claims = None if token is None else self._secrets.signer.read(signing, token)
        key = None if claims is None else key_of(signing.kid, claims)
        if key is None or key.role is not Role.ADMIN or key.name.parent != DEFAULT_PROJECT:
            return None
        if key.state(self._clock.now()) is not KeyState.LIVE:
            return None
        if await transaction.key(key.name) is not None:
            return None
        return replace(key, label=_LABEL)
