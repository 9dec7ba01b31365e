"""Parts of budgets from metering's LeaseService."""

import grpc
from inferplane.metering.v1 import lease_service_pb2 as pb
from inferplane.metering.v1 import lease_service_pb2_grpc

from services.rpc.calendar_window import WindowKind
from services.rpc.errors import UnavailableError
from services.worker.domain.budget_share import BudgetUse, Grant, LeaseUse
from services.worker.domain.budget_terms import BudgetTerms, BudgetUnit, Rates
from services.worker.ports.lease_exchange import CallerTerms, LeaseAnswer, LeaseReport

_SECONDS = 2.0  # for one exchange
_WINDOWS = {kind.value: kind for kind in WindowKind}
_UNITS = {
    pb.BUDGET_UNIT_TOKENS: BudgetUnit.TOKENS,
    pb.BUDGET_UNIT_REQUESTS: BudgetUnit.REQUESTS,
    pb.BUDGET_UNIT_MONEY: BudgetUnit.MONEY,
}


class LeaseClient:
    """LeaseExchange over gRPC."""

    def __init__(self, channel: grpc.aio.Channel, holder: str) -> None:
        """Assign only.

        Args:
            channel: to metering.
            holder: this run of this worker; no other has the same name, ever.
        """
        self._stub = lease_service_pb2_grpc.LeaseServiceStub(channel)
        self._holder = holder

    async def exchange(self, report: LeaseReport) -> LeaseAnswer:
        """Raises UnavailableError if there is no answer."""
        request = pb.ExchangeLeasesRequest(
            holder=self._holder,
            sequence=report.sequence,
            revision=report.revision,
            subjects=[
                pb.BudgetSubject(project=c.project, key=c.key, endpoint=c.endpoint)
                for c in report.callers
            ],
            uses=[_use(use) for use in report.uses],
            rates=[
                pb.RateSubject(project=project, model=version.model, version=version.version)
                for project, version in report.rates
            ],
        )
        try:
            return _answer(await self._stub.ExchangeLeases(request, timeout=_SECONDS))
        except grpc.aio.AioRpcError as error:
            raise UnavailableError(
                f"metering: {error.code().name}: {error.details()}", reason="METERING_UNAVAILABLE"
            ) from error


def _use(use: BudgetUse) -> pb.BudgetUse:
    return pb.BudgetUse(
        uid=use.uid,
        leases=[_lease(lease) for lease in use.leases],
        needed=use.needed,
        wanted=use.wanted,
        least=use.least,
    )


def _lease(lease: LeaseUse) -> pb.LeaseUse:
    return pb.LeaseUse(
        window_start=lease.window_start,
        granted=lease.granted,
        used=lease.used,
        refused=lease.refused,
        closed=lease.is_closed,
        serial=lease.serial,
    )


def _answer(response: pb.ExchangeLeasesResponse) -> LeaseAnswer:
    return LeaseAnswer(
        lease_seconds=response.lease.ToNanoseconds() / 1e9,
        next_seconds=response.next.ToNanoseconds() / 1e9,
        revision=response.revision,
        changed_projects=None if response.all_changed else tuple(response.changed_projects),
        callers=[
            CallerTerms([_terms(terms) for terms in found.budgets], found.project_has_none)
            for found in response.subjects
        ],
        grants=[_grant(grant) for grant in response.grants],
        rates=[
            Rates(
                request=rates.request,
                input_token=rates.input_token,
                cached_token=rates.cached_token,
                output_token=rates.output_token,
                compute_second=rates.compute_second,
                row=rates.row,
            )
            for rates in response.rates
        ],
        price_revision=response.price_revision,
    )


def _terms(terms: pb.BudgetTerms) -> BudgetTerms:
    return BudgetTerms(
        uid=terms.uid,
        name=terms.name,
        unit=_UNITS[terms.unit],
        window=_WINDOWS[terms.window],
        amount=terms.amount,
        shadow=terms.shadow,
        stop_streams=terms.stop_streams,
    )


def _grant(grant: pb.BudgetGrant) -> Grant:
    return Grant(
        uid=grant.uid,
        terms=None if grant.gone else _terms(grant.terms),
        window_start=grant.window_start,
        window_left=grant.window_left.ToNanoseconds() / 1e9,
        granted=grant.granted,
        available=grant.available,
        held_by_others=grant.held_by_others,
        scarce=grant.scarce,
    )
