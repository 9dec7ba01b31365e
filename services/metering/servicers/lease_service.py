"""`inferplane.metering.v1.LeaseService`: parts of budgets for workers."""

from datetime import timedelta
from typing import Any

import grpc
from inferplane.metering.v1 import lease_service_pb2 as pb
from inferplane.metering.v1.lease_service_pb2_grpc import LeaseServiceServicer

from services.metering.domain.budget import Budget, BudgetUnit
from services.metering.domain.lease_exchange import (
    BudgetUse,
    Exchange,
    Grant,
    LeaseUse,
    Subject,
    SubjectBudgets,
)
from services.metering.drivers.desk import Desk
from services.metering.ports.rates import RateBook
from services.rpc import names
from services.rpc.errors import InvalidArgumentError
from services.rpc.times import duration

_Context = grpc.aio.ServicerContext[Any, Any]

_NEXT = timedelta(seconds=1)
_LONGEST_HOLDER = 128  # characters
_UNITS = {
    BudgetUnit.TOKENS: pb.BUDGET_UNIT_TOKENS,
    BudgetUnit.REQUESTS: pb.BUDGET_UNIT_REQUESTS,
    BudgetUnit.MONEY: pb.BUDGET_UNIT_MONEY,
}


class LeaseService(LeaseServiceServicer):
    """Reads requests, calls the desk, writes answers."""

    def __init__(self, desk: Desk, rates: RateBook) -> None:
        self._desk = desk
        self._rates = rates

    async def ExchangeLeases(
        self, request: pb.ExchangeLeasesRequest, context: _Context
    ) -> pb.ExchangeLeasesResponse:
        answer = await self._desk.exchange(_said(request))
        changed = answer.changed_projects
        return pb.ExchangeLeasesResponse(
            lease=duration(timedelta(seconds=self._desk.lease_seconds)),
            next=duration(_NEXT),
            revision=answer.revision,
            changed_projects=changed or (),
            all_changed=changed is None,
            subjects=[_subject_message(found) for found in answer.subjects],
            grants=[_grant_message(grant) for grant in answer.grants],
            rates=[self._rates_message(subject) for subject in request.rates],
            price_revision=self._rates.revision,
        )

    def _rates_message(self, subject: pb.RateSubject) -> pb.Rates:
        rates = self._rates.rates(subject.project, subject.model, subject.version)
        return pb.Rates(
            request=rates.request,
            input_token=rates.input_token,
            cached_token=rates.cached_token,
            output_token=rates.output_token,
            compute_second=rates.compute_second,
            row=rates.row,
        )


def _said(request: pb.ExchangeLeasesRequest) -> Exchange:
    holder = request.holder
    if not holder or len(holder) > _LONGEST_HOLDER or not holder.isprintable():
        raise InvalidArgumentError.of_field(
            "holder", f"{names.shown(holder)}; allowed: 1 to {_LONGEST_HOLDER} printable characters"
        )
    return Exchange(
        holder=request.holder,
        sequence=request.sequence,
        revision=request.revision,
        subjects=[Subject(s.project, s.key, s.endpoint) for s in request.subjects],
        uses=[_use(use) for use in request.uses],
    )


def _use(message: pb.BudgetUse) -> BudgetUse:
    return BudgetUse(
        uid=message.uid,
        leases=[
            LeaseUse(
                window_start=lease.window_start,
                granted=lease.granted,
                used=lease.used,
                refused=lease.refused,
                is_closed=lease.closed,
                serial=lease.serial,
            )
            for lease in message.leases
        ],
        needed=max(0, message.needed),
        wanted=max(0, message.wanted),
        least=max(0, message.least),
    )


def _subject_message(found: SubjectBudgets) -> pb.SubjectBudgets:
    return pb.SubjectBudgets(
        budgets=[_terms(budget) for budget in found.budgets],
        project_has_none=found.project_has_none,
    )


def _terms(budget: Budget) -> pb.BudgetTerms:
    return pb.BudgetTerms(
        uid=budget.uid,
        name=str(budget.name),
        window=budget.window.value,
        unit=_UNITS[budget.unit],
        amount=budget.amount,
        shadow=budget.shadow,
        stop_streams=budget.stop_streams,
    )


def _grant_message(grant: Grant) -> pb.BudgetGrant:
    if grant.budget is None:
        return pb.BudgetGrant(uid=grant.uid, gone=True)
    return pb.BudgetGrant(
        uid=grant.uid,
        window_start=grant.window_start,
        window_left=duration(timedelta(seconds=grant.window_left)),
        granted=grant.granted,
        terms=_terms(grant.budget),
        available=grant.available,
        held_by_others=grant.held_by_others,
        scarce=grant.scarce,
    )
