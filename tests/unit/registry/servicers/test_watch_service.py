"""Change sets as responses of bounded size."""

import pytest
from inferplane.registry.v1 import watch_service_pb2 as pb

from services.registry.domain.catalog import (
    KIND_OF,
    Change,
    ChangeSet,
    Record,
    ResourceKind,
)
from services.registry.servicers.watch_service import RESPONSE_BYTES, change_message, responses
from tests.unit.registry import records


def change(record: Record) -> Change:
    return Change(KIND_OF[type(record)], str(record.name), record)


@pytest.mark.parametrize(
    ("record", "field", "kind"),
    [
        (records.model(), "model", pb.RESOURCE_KIND_MODEL),
        (records.version(), "model_version", pb.RESOURCE_KIND_MODEL_VERSION),
        (records.alias(), "alias", pb.RESOURCE_KIND_ALIAS),
        (records.placement(), "placement", pb.RESOURCE_KIND_PLACEMENT),
        (records.endpoint(), "endpoint", pb.RESOURCE_KIND_ENDPOINT),
    ],
)
def test_every_kind_has_its_field(record: Record, field: str, kind: int) -> None:
    """The resource is in the field of its kind; a deletion names the kind and sets nothing."""
    message = change_message(change(record))
    assert (message.kind, message.WhichOneof("resource")) == (kind, field)
    assert getattr(message, field).name == message.name == str(record.name)
    deleted = change_message(Change(KIND_OF[type(record)], str(record.name), None))
    assert (deleted.kind, deleted.WhichOneof("resource")) == (kind, None)


def test_nothing_is_one_synced_response() -> None:
    """An empty set says where the reader is."""
    (only,) = responses(ChangeSet(7, []))
    assert (only.revision, only.synced, len(only.changes)) == (7, True, 0)


def test_many_changes_come_in_pieces() -> None:
    """No piece is much over the bound, all are there in order, and only the last is synced."""
    changes = [change(records.model(f"m{n}", "d" * 4000)) for n in range(1000)]
    pieces = list(responses(ChangeSet(7, changes)))
    assert len(pieces) > 3
    assert all(piece.ByteSize() < RESPONSE_BYTES + 10_000 for piece in pieces)
    assert [piece.synced for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {piece.revision for piece in pieces} == {7}
    names = [c.name for piece in pieces for c in piece.changes]
    assert names == [f"models/m{n}" for n in range(1000)]


def test_a_set_that_fills_a_piece_exactly_is_synced() -> None:
    """Whatever the sizes, the last response is the synced one and none is empty before it."""
    for count in range(255, 270):
        changes = [change(records.model(f"m{n}", "d" * 4000)) for n in range(count)]
        pieces = list(responses(ChangeSet(1, changes)))
        assert pieces[-1].synced
        assert all(piece.changes for piece in pieces)


def test_all_kinds_can_be_sent() -> None:
    """No kind is missing from the mapping."""
    for kind in ResourceKind:
        assert change_message(Change(kind, "x", None)).kind
