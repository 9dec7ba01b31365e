"""`inferplane.metering.v1.LedgerService`: entries, balances, credits, corrections, proof."""

from datetime import UTC, datetime
from typing import Any

import grpc
from inferplane.metering.v1 import ledger_pb2, price_pb2
from inferplane.metering.v1 import ledger_service_pb2 as pb
from inferplane.metering.v1.ledger_service_pb2_grpc import LedgerServiceServicer

from services.metering.domain.ledger import EntryKind, Posting
from services.metering.domain.money import format_amount
from services.metering.domain.usage import Subject
from services.metering.domain.verification import Verification
from services.metering.drivers.ledger import Change, Ledger
from services.metering.ports.ledger_store import StoredEntry
from services.metering.servicers.moments import of_microseconds
from services.rpc.names import parse_project
from services.rpc.page import cut, page_request
from services.rpc.times import timestamp

_Context = grpc.aio.ServicerContext[Any, Any]
_KINDS = {int(kind) for kind in EntryKind}


def entry_message(stored: StoredEntry) -> ledger_pb2.LedgerEntry:
    """The entry as a message."""
    entry = stored.entry
    return ledger_pb2.LedgerEntry(
        name=f"ledgerEntries/{entry.number}",
        kind=ledger_pb2.LedgerEntryKind.ValueType(entry.kind),
        create_time=timestamp(of_microseconds(entry.create_us)),
        reason=entry.reason,
        corrects=f"ledgerEntries/{entry.corrects}" if entry.corrects else "",
        postings=[_posting(p, stored.subjects.get(p.subject)) for p in stored.postings],
        hash=stored.hash.hex(),
    )


def _posting(posting: Posting, subject: Subject | None) -> ledger_pb2.Posting:
    return ledger_pb2.Posting(
        account=posting.account,
        amount=format_amount(posting.amount),
        quantity=posting.quantity,
        unit=price_pb2.PriceUnit.ValueType(posting.unit or 0),
        price=f"prices/{posting.price}" if posting.price else "",
        key=subject.key if subject else "",
        endpoint=subject.endpoint if subject else "",
        version=subject.version_name if subject else "",
    )


def _verification(found: Verification) -> pb.VerifyLedgerResponse:
    message = pb.VerifyLedgerResponse(
        ok=found.ok,
        problem_count=found.problem_count,
        entries=found.entries,
        postings=found.postings,
        rows=found.rows,
        dropped_rows=found.dropped_rows,
        head_entry=f"ledgerEntries/{found.head_number}" if found.head_number else "",
        head_hash=found.head_hash.hex(),
        verify_time=timestamp(datetime.now(UTC)),
    )
    for problem in found.problems:
        message.problems.add(
            reason=problem.reason, subject=problem.subject, description=problem.description
        )
    return message


class LedgerService(LedgerServiceServicer):
    """Reads requests, calls the use cases, writes answers."""

    def __init__(self, ledger: Ledger, currency: str) -> None:
        self._ledger = ledger
        self._currency = currency

    async def GetLedgerEntry(
        self, request: pb.GetLedgerEntryRequest, context: _Context
    ) -> pb.GetLedgerEntryResponse:
        return pb.GetLedgerEntryResponse(entry=entry_message(await self._ledger.get(request.name)))

    async def ListLedgerEntries(
        self, request: pb.ListLedgerEntriesRequest, context: _Context
    ) -> pb.ListLedgerEntriesResponse:
        project = parse_project("project", request.project) if request.project else None
        kind = EntryKind(request.kind) if request.kind in _KINDS else None
        listing = f"{request.project}/ledgerEntries/{request.kind}"
        wanted = page_request(listing, request.page_size, request.page_token)
        before = int(wanted.after) if wanted.after else 0
        found = await self._ledger.entries(project, kind, before, wanted.size + 1)
        page = cut(wanted, found, lambda stored: str(stored.entry.number))
        return pb.ListLedgerEntriesResponse(
            entries=[entry_message(stored) for stored in page.items],
            next_page_token=page.next_page_token,
        )

    async def GetBalance(
        self, request: pb.GetBalanceRequest, context: _Context
    ) -> pb.GetBalanceResponse:
        sums = await self._ledger.balances(parse_project("project", request.project))
        return pb.GetBalanceResponse(
            owed=format_amount(sum(sums.values())),
            accounts=[
                ledger_pb2.AccountBalance(account=account, amount=format_amount(amount))
                for account, amount in sums.items()
            ],
            currency=self._currency,
        )

    async def AddCredit(
        self, request: pb.AddCreditRequest, context: _Context
    ) -> pb.AddCreditResponse:
        change = Change(
            project=parse_project("project", request.project),
            amount=request.amount,
            reason=request.reason,
            request_id=request.request_id,
        )
        return pb.AddCreditResponse(entry=entry_message(await self._ledger.add_credit(change)))

    async def AddCorrection(
        self, request: pb.AddCorrectionRequest, context: _Context
    ) -> pb.AddCorrectionResponse:
        change = Change(
            project=parse_project("project", request.project),
            amount=request.amount,
            reason=request.reason,
            request_id=request.request_id,
            corrects=request.corrects,
        )
        stored = await self._ledger.add_correction(change)
        return pb.AddCorrectionResponse(entry=entry_message(stored))

    async def VerifyLedger(
        self, request: pb.VerifyLedgerRequest, context: _Context
    ) -> pb.VerifyLedgerResponse:
        found = await self._ledger.verify(request.known_entry, request.known_hash)
        return _verification(found)
