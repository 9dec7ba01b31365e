"""Use cases of tunings: what measuring found of a version is kept with it, or forgotten."""

from dataclasses import dataclass, replace

from services.registry.domain.model import ModelVersion
from services.registry.domain.references import check_ready
from services.registry.domain.tuning import VersionTuning, check_tuning
from services.registry.drivers.lookup import existing
from services.registry.ports.store import Store, Transaction
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError
from services.rpc.names import VersionName


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOrder:
    """What is to become of a version's tuning."""

    tuning: VersionTuning | None  # None: forget what there is
    only_if_unset: bool = False  # a tuning that is there stays
    measure: bool = False  # have it measured, whatever the version's settings say


class Tunings:
    """Keeps tunings with READY versions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(self, name: VersionName, order: TuningOrder) -> ModelVersion:
        """The version as it is afterwards. What changes nothing is no change to anybody who watches."""
        if order.tuning is not None:
            check_tuning(order.tuning)
            if order.measure:
                raise InvalidArgumentError.of_field(
                    "measure", "is set together with tuning; allowed: one of both"
                )

        async def work(transaction: Transaction) -> ModelVersion:
            version = await existing(transaction, ModelVersion, name)
            check_ready("name", version)
            if version.format.is_language and (order.measure or order.tuning is not None):
                raise FailedPreconditionError(
                    f"{version.name} is a language model; allowed: versions that take tensors",
                    reason="LANGUAGE_MODEL",
                    metadata={"resource": str(version.name)},
                )
            if order.only_if_unset and version.tuning is not None:
                return version
            changed = replace(version, tuning=order.tuning, measuring_wanted=order.measure)
            return version if changed == version else await transaction.put(changed)

        return await self._store.write(work)
