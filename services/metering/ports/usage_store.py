"""Where usage is kept, and what becomes of a batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from services.metering.domain.charge import Tariff
from services.metering.domain.usage import UsageBatch


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a batch."""

    next_sequence: int  # of its source
    rows: int = 0  # that were new
    lost: int = 0  # attempts that turned out not to be their request
    spent: Mapping[tuple[str, int], int] = field(default_factory=dict)  # (project, month) -> more


class UsageStore(Protocol):
    """Rows, the ledger's entries for them and the sums of them, all in one transaction.

    Any number of callers at once. What was recorded is durable when it returns.
    """

    async def record(
        self,
        batch: UsageBatch,
        tariff: Callable[[], Tariff],
        committed: Callable[[Recorded], None] | None = None,
    ) -> Recorded:
        """Store what is new in a batch. FailedPreconditionError (USAGE_GAP) if rows before it are missing.

        Args:
            batch: checked.
            tariff: asked once the transaction has begun, so that prices come in the order of transactions.
            committed: called once it is durable, before the next transaction.
        """
        ...

    async def drop_before(self, moment_us: int) -> int:
        """Drop some of the rows whose entries were made before then; how many, 0: none are left.

        The ledger and the sums stay.
        """
        ...
