"""BudgetService over the wire: what people do with budgets, right and wrong."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.metering.v1 import (
    budget_pb2,
    budget_service_pb2,
    lease_service_pb2,
    lease_service_pb2_grpc,
)

from services.rpc import channel
from tests.integration.metering.budget_world import make_budget, metering, stub

MONTH = budget_pb2.BUDGET_WINDOW_MONTH


def budget(**fields: Any) -> budget_pb2.Budget:
    return budget_pb2.Budget(**{"window": MONTH, **fields})


def named(name: str, **fields: Any) -> budget_pb2.Budget:
    return budget(name=f"projects/acme/budgets/{name}", **fields)


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(metering(tmp_path))
        yield await stack.enter_async_context(channel.connect(service.address))


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def test_a_budget_is_what_was_asked_for(people: grpc.aio.Channel) -> None:
    """Every field comes back, in each unit, with where it stands."""
    for name, amount in (("t", {"tokens": 5}), ("r", {"requests": 6}), ("m", {"money": "0.07"})):
        fields: dict[str, Any] = {
            **amount,
            "key": "k",
            "endpoint": "e",
            "shadow": True,
            "stop_streams": True,
            "alert_percents": [50, 100],
        }
        made = await make_budget(people, budget(**fields), name=name)
        expected = named(name, **fields)
        assert made.HasField("create_time")
        assert made.HasField("status")
        assert made.etag
        expected.MergeFrom(
            budget_pb2.Budget(create_time=made.create_time, status=made.status, etag=made.etag)
        )
        assert made == expected


async def test_listings_come_in_pages_by_name(people: grpc.aio.Channel) -> None:
    """Of one project, or of all."""
    for project in ("acme", "acme-2"):
        for name in ("b", "a", "c"):
            await make_budget(people, budget(tokens=1), project=project, name=name)
    request = budget_service_pb2.ListBudgetsRequest(parent="projects/acme", page_size=2)
    first = await stub(people).ListBudgets(request)
    request.page_token = first.next_page_token
    second = await stub(people).ListBudgets(request)
    found = [b.name.rpartition("/")[2] for page in (first, second) for b in page.budgets]
    assert (found, second.next_page_token) == (["a", "b", "c"], "")
    everything = budget_service_pb2.ListBudgetsRequest(parent="projects/-")
    assert len((await stub(people).ListBudgets(everything)).budgets) == 6


async def test_changes_need_the_etag_that_is_stored(people: grpc.aio.Channel) -> None:
    """Given, it must be the stored one; only masked fields change; what is missing may be made."""
    made = await make_budget(people, budget(tokens=5))
    service = stub(people)
    update = budget_service_pb2.UpdateBudgetRequest(
        budget=named("b", tokens=7, shadow=True), update_mask=FieldMask(paths=["tokens"])
    )
    changed = (await service.UpdateBudget(update)).budget
    assert (changed.tokens, changed.shadow) == (7, False)
    update.budget.etag = made.etag
    assert await code_of(service.UpdateBudget(update)) is grpc.StatusCode.ABORTED
    delete = budget_service_pb2.DeleteBudgetRequest(name=made.name, etag=made.etag)
    assert await code_of(service.DeleteBudget(delete)) is grpc.StatusCode.ABORTED
    delete.etag = changed.etag
    await service.DeleteBudget(delete)
    assert await code_of(service.DeleteBudget(delete)) is grpc.StatusCode.NOT_FOUND
    update.budget.etag = ""
    assert await code_of(service.UpdateBudget(update)) is grpc.StatusCode.NOT_FOUND
    update.allow_missing = True
    assert (await service.UpdateBudget(update)).budget.shadow


@pytest.mark.parametrize(
    ("project", "name", "given", "code"),
    [
        pytest.param("unknown", "b", {"tokens": 1}, grpc.StatusCode.NOT_FOUND, id="no project"),
        pytest.param("acme", "B!", {"tokens": 1}, grpc.StatusCode.INVALID_ARGUMENT, id="no id"),
        pytest.param("acme", "b", {}, grpc.StatusCode.INVALID_ARGUMENT, id="no amount"),
        pytest.param("acme", "b", {"tokens": 0}, grpc.StatusCode.INVALID_ARGUMENT, id="nothing"),
        pytest.param(
            "acme", "b", {"money": "1e3"}, grpc.StatusCode.INVALID_ARGUMENT, id="no decimal"
        ),
        pytest.param(
            "acme",
            "b",
            {"tokens": 1, "window": 9},
            grpc.StatusCode.INVALID_ARGUMENT,
            id="no window",
        ),
    ],
)
async def test_what_is_wrong_is_refused(
    people: grpc.aio.Channel, project: str, name: str, given: Any, code: grpc.StatusCode
) -> None:
    """Nothing is made of it."""
    assert await code_of(make_budget(people, budget(**given), project=project, name=name)) is code
    everything = budget_service_pb2.ListBudgetsRequest(parent="projects/-")
    assert not (await stub(people).ListBudgets(everything)).budgets


async def test_a_name_is_taken_once(people: grpc.aio.Channel) -> None:
    """A second budget of the name is refused."""
    await make_budget(people, budget(tokens=1))
    again = make_budget(people, budget(tokens=1))
    assert await code_of(again) is grpc.StatusCode.ALREADY_EXISTS


async def test_an_exchange_needs_a_holder(people: grpc.aio.Channel) -> None:
    """Leases of nobody could never be told apart."""
    leases = lease_service_pb2_grpc.LeaseServiceStub(people)
    nobody = leases.ExchangeLeases(lease_service_pb2.ExchangeLeasesRequest(sequence=1))
    assert await code_of(nobody) is grpc.StatusCode.INVALID_ARGUMENT
    one = lease_service_pb2.ExchangeLeasesRequest(holder="w", sequence=1)
    assert (await leases.ExchangeLeases(one)).lease.seconds == 10
    assert await code_of(leases.ExchangeLeases(one)) is grpc.StatusCode.ABORTED
