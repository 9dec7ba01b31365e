"""Where the worker counts what it computes, and what callers may use: part of its composition root."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import prometheus_client
import structlog

from services.rpc import channel
from services.rpc.clock import SystemClock
from services.rpc.names import WorkerName
from services.worker.adapters.allowance_metrics import AllowanceMetrics
from services.worker.adapters.lease_client import LeaseClient
from services.worker.adapters.usage_client import MeteringUsage, Scores
from services.worker.adapters.usage_journal import JournalLimits
from services.worker.adapters.usage_metrics import UsageMetrics
from services.worker.adapters.usage_outbox import Outbox, Outboxes
from services.worker.drivers.allowance import Allowances
from services.worker.drivers.lease_rounds import LeaseRounds
from services.worker.drivers.usage_sender import UsageSender
from services.worker.drivers.usage_upkeep import UsageUpkeep
from services.worker.drivers.version_usage import Accounts
from services.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)

_LAST_SECONDS = 5.0  # for sending what is left at the end


@dataclass(frozen=True, slots=True)
class Accounting:
    """`accounts` for versions; its loops are to be run, `finish` is the last thing."""

    accounts: Accounts
    _outbox: Outbox
    _outboxes: Outboxes
    _sender: UsageSender
    _rounds: LeaseRounds
    _syncs: bool

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Each for a task of its own."""
        journal = self._outbox.journal
        return [
            self._sender.run(self._outbox, journal.flushed),
            self._sender.rescue(self._outboxes),
            UsageUpkeep(journal, syncs=self._syncs).run(),
            self._rounds.run(),
        ]

    async def finish(self) -> None:
        """No call runs any more, and no loop: send what is left; what can't be sent is taken over by another worker."""
        outbox, journal = self._outbox, self._outbox.journal
        journal.flush()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._rounds.end()
                await self._sender.drain(outbox)
        except TimeoutError:
            _log.warning("usage is left to another worker", rows=journal.next, size=journal.size)
            outbox.leave()
            return
        if journal.is_taken:
            outbox.remove()
        else:
            outbox.leave()


async def accounting(
    config: WorkerSettings, name: WorkerName, scores: Scores, stack: AsyncExitStack
) -> Accounting | None:
    """None: there is no metering, and nothing is counted. Raises OSError if the disk has no room."""
    if not config.metering_address:
        return None
    connected = await stack.enter_async_context(
        channel.connect(config.metering_address, security=config.security())
    )
    limits = JournalLimits(log_bytes=config.usage_outbox_bytes)
    outboxes = Outboxes(config.state_dir / "usage", limits, config.usage_fsync)
    try:
        outbox = outboxes.own()
    except OSError as error:
        # What is computed must be counted: without a place for that nothing is; whoever started us tries again.
        _log.error("usage can't be counted: no outbox", folder=config.state_dir, reason=str(error))
        raise
    sender = UsageSender(MeteringUsage(connected, name.worker, config.pool, scores))
    UsageMetrics(outbox.journal, sender, prometheus_client.REGISTRY)
    allowances = Allowances(SystemClock(), config.budget_failure)
    prometheus_client.REGISTRY.register(AllowanceMetrics(allowances))
    return Accounting(
        accounts=Accounts(outbox.journal, allowances),
        _outbox=outbox,
        _outboxes=outboxes,
        _sender=sender,
        _rounds=LeaseRounds(allowances, LeaseClient(connected, holder=name.worker)),
        _syncs=config.usage_fsync == "interval",
    )
