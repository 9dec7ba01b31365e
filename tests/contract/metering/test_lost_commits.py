"""Connections that are lost in the midst of a commit: what was written is there once, and its caller is told so."""

from pathlib import Path

import pytest

from services.metering.domain.unit import Unit
from services.metering.drivers.ledger import Change, Ledger
from services.rpc.clock import SystemClock
from services.rpc.names import ProjectName
from tests.contract.metering.ledger_world import KNOWN, opened
from tests.contract.metering.shared_desks import NAME, Holder, processes, tokens
from tests.metering_postgres import target_of
from tests.metering_usage import Told, batch_of
from tests.postgres_proxy import Cut, between

CUTS = pytest.mark.parametrize("cut", list(Cut), ids=[cut.name.lower() for cut in Cut])


@CUTS
async def test_the_ledger_has_everything_once(metering_url: str, tmp_path: Path, cut: Cut) -> None:
    """Usage, credits without a request id and prices, each with its commit's connection cut."""
    async with between(metering_url, tmp_path) as (proxy, url), opened(target_of(url)) as world:
        proxy.cut = cut
        await world.price(Unit.REQUEST, "1")
        proxy.cut = cut
        recorded = await world.record(batch_of([Told(request=1), Told(request=2)]))
        assert (recorded.next_sequence, recorded.rows) == (2, 2)
        ledger = Ledger(world.ledger, KNOWN, world.clock)
        credit = Change(project=ProjectName("acme"), amount="0.5", reason="r", request_id="")
        proxy.cut = cut
        await ledger.add_credit(credit)
        assert proxy.cuts == 3
        assert sum((await ledger.balances(ProjectName("acme"))).values()) == 15 * 10**11
        assert len(world.prices.book.prices) == 1
        assert await world.problems() == []
        assert await world.sql("SELECT count(*) FROM ledger_entries") == [(3,)]


@CUTS
async def test_grants_and_budgets_are_what_they_were_told_to_be(
    metering_url: str, tmp_path: Path, cut: Cut
) -> None:
    """A grant whose commit was cut counts once, and a budget is made once."""
    async with (
        between(metering_url, tmp_path) as (proxy, url),
        processes(target_of(url), 1, SystemClock()) as (one,),
        processes(target_of(metering_url), 1, SystemClock()) as (other,),
    ):
        proxy.cut = cut
        await one.budgets.create(NAME, tokens(1000))
        holder = Holder("w", (await other.budgets.get(NAME)).budget.uid)
        proxy.cut = cut
        holder.hears((await one.desk.exchange(holder.says(300))).grants[0])
        assert proxy.cuts == 2
        for process in (one, other):
            assert (await process.budgets.get(NAME)).standing.held == holder.granted
