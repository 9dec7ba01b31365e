"""Endpoints whose models write text: what OpenAI's clients see as a list of models."""

from services.registry.domain.catalog import Query
from services.registry.domain.endpoint import Endpoint
from services.registry.domain.model import ModelVersion
from services.registry.domain.references import not_found
from services.registry.drivers.lookup import existing, resolve
from services.registry.ports.store import Store, View
from services.rpc.names import EndpointName


class LanguageEndpoints:
    """Lists and finds them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> list[Endpoint]:
        """All of them, by name."""

        async def work(view: View) -> list[Endpoint]:
            endpoints = await view.find(Endpoint, Query())
            return [endpoint for endpoint in endpoints if await _texts(view, endpoint)]

        return await self._store.read(work)

    async def get(self, name: EndpointName, version: str) -> Endpoint:
        """One of them, that has a target of this version id, if it isn't empty; NotFoundError if there is none."""

        async def work(view: View) -> Endpoint:
            endpoint = await existing(view, Endpoint, name)
            texts = await _texts(view, endpoint)
            if version and version not in [text.name.version for text in texts]:
                raise not_found(f"{name} with a version {version!a}")
            if not texts:
                raise not_found(f"{name} as one of a language model")
            return endpoint

        return await self._store.read(work)


async def _texts(view: View, endpoint: Endpoint) -> list[ModelVersion]:
    """Its targets that are language models."""
    targets = [await resolve(view, field, target) for field, target in endpoint.references]
    return [
        target.version
        for target in targets
        if target.version is not None and target.version.format.is_language
    ]
