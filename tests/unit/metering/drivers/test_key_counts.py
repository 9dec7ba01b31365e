"""Counting keys, and the metrics that say it."""

import asyncio
from datetime import timedelta

from prometheus_client import CollectorRegistry

from services.metering.adapters.identity_metrics import Gauges, IdentityMetrics
from services.metering.domain.api_key import KeyInput, Role
from services.metering.domain.project import DEFAULT_PROJECT
from services.metering.drivers.key_counts import EVERY, KeyCounts
from tests.unit.metering.drivers.identity_world import IdentityWorld
from tests.unit.metering.identities import DAY

SECONDS = 60


async def test_keys_are_counted_each_minute(world: IdentityWorld) -> None:
    """Each key is in one state, and all states have a value, so that a series never comes or goes."""
    counts = KeyCounts(world.store, world.clock)
    registry = CollectorRegistry()
    registry.register(
        IdentityMetrics(
            Gauges(
                keys=lambda: counts.last,
                facts=lambda: len(world.policy),
                watchers=lambda: world.policy.readers,
                issuer_ages=lambda: {"https://a": 3.0},
            )
        )
    )

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"inferplane_metering_{name}", labels)

    async def until(live: float) -> None:
        async with asyncio.timeout(SECONDS):
            while value("keys", state="live") != live:  # noqa: ASYNC110 - a count tells nobody
                await asyncio.sleep(0)

    caller = KeyInput(role=Role.CALLER, endpoints=("*",))
    made = [(await world.keys.create(DEFAULT_PROJECT, caller, DAY)).key for _ in range(3)]
    running = asyncio.create_task(counts.run())
    await until(4.0)
    await world.keys.revoke(made[0].name)
    await world.keys.rotate(made[1].name, timedelta(hours=1), 2 * DAY)
    world.clock.advance(EVERY)
    await until(3.0)
    states = ("live", "rotated", "revoked", "expired")
    assert [value("keys", state=state) for state in states] == [3.0, 1.0, 1.0, 0.0]
    world.clock.advance(DAY.total_seconds())
    await until(2.0)
    assert value("keys", state="expired") == 3.0
    assert (value("policy_facts"), value("policy_watchers")) == (2.0, 0.0)
    assert value("issuer_age_seconds", issuer="https://a") == 3.0
    running.cancel()
    await asyncio.wait([running])
