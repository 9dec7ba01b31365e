"""`inferplane.metering.v1.BudgetService`: budgets of projects."""

from typing import Any

import grpc
from inferplane.metering.v1 import budget_service_pb2 as pb
from inferplane.metering.v1.budget_service_pb2_grpc import BudgetServiceServicer

from services.metering.domain.budget import BudgetName, parse_budget, parse_parent
from services.metering.drivers.budgets import Budgets
from services.metering.servicers.budget_messages import budget_input, budget_message
from services.rpc import names
from services.rpc.page import page_request

_Context = grpc.aio.ServicerContext[Any, Any]


class BudgetService(BudgetServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets

    async def CreateBudget(
        self, request: pb.CreateBudgetRequest, context: _Context
    ) -> pb.CreateBudgetResponse:
        project = names.parse_project("parent", request.parent).project
        name = BudgetName(project, names.check_id("budget_id", request.budget_id))
        state = await self._budgets.create(name, budget_input(request.budget))
        return pb.CreateBudgetResponse(budget=budget_message(state))

    async def GetBudget(
        self, request: pb.GetBudgetRequest, context: _Context
    ) -> pb.GetBudgetResponse:
        state = await self._budgets.get(parse_budget("name", request.name))
        return pb.GetBudgetResponse(budget=budget_message(state))

    async def ListBudgets(
        self, request: pb.ListBudgetsRequest, context: _Context
    ) -> pb.ListBudgetsResponse:
        project = parse_parent("parent", request.parent)
        wanted = page_request(f"budgets of {project}", request.page_size, request.page_token)
        page = await self._budgets.list(project, wanted)
        return pb.ListBudgetsResponse(
            budgets=[budget_message(state) for state in page.items],
            next_page_token=page.next_page_token,
        )

    async def UpdateBudget(
        self, request: pb.UpdateBudgetRequest, context: _Context
    ) -> pb.UpdateBudgetResponse:
        state = await self._budgets.update(
            parse_budget("budget.name", request.budget.name),
            budget_input(request.budget),
            tuple(request.update_mask.paths),
            request.budget.etag,
            create=request.allow_missing,
        )
        return pb.UpdateBudgetResponse(budget=budget_message(state))

    async def DeleteBudget(
        self, request: pb.DeleteBudgetRequest, context: _Context
    ) -> pb.DeleteBudgetResponse:
        await self._budgets.delete(parse_budget("name", request.name), request.etag)
        return pb.DeleteBudgetResponse()
