"""Tags of projects and keys, for reports by them."""

import asyncio
from collections.abc import Collection, Mapping

from services.metering.ports.identity_store import IdentityStore, Owner, Tags

_NONE: Tags = {}


class TagReads:
    """Looks tags up as they are now, however many are asked for in one read."""

    def __init__(self, store: IdentityStore) -> None:
        self._store = store

    async def of(self, keys: Collection[Owner]) -> Mapping[Owner, Tags]:
        """Of each key (empty: of none) its tags, and those of its project that it doesn't have itself.

        A key that is not ours, because another issuer made its token, has its project's.
        """
        named = [one for one in keys if one[0]]
        owners = {*named, *((project, "") for project, _ in named)}
        found = await self._store.read(lambda view: view.tags(owners))
        return await asyncio.to_thread(_joined, keys, found)  # of many keys it takes long


def _joined(keys: Collection[Owner], found: Mapping[Owner, Tags]) -> Mapping[Owner, Tags]:
    return {
        (project, key): {**found.get((project, ""), _NONE), **found.get((project, key), _NONE)}
        for project, key in keys
    }
