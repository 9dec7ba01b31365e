"""What both stores say about revisions: the etags they give and the ones they can't resume after."""

from services.rpc.errors import InternalError, OutOfRangeError

KEPT_CHANGES = 10_000


def etag_at(revision: int) -> str:
    """The etag of a resource that was written at this revision."""
    return f"{revision:x}"


def check_resumable(after: int, oldest: int, newest: int) -> None:
    """Refuse to resume after a revision that the log doesn't reach.

    A store's revisions begin at the microsecond of its making. So a revision of a store that was there
    before lies below `oldest`, and one of a store made later, or of the same store before an older copy
    of it was put back, above `newest`.
    """
    if oldest <= after <= newest:
        return
    where = "lies in the future" if after > newest else "is no longer kept"
    raise OutOfRangeError(
        f"after_revision: {after} {where}; allowed: {oldest} to {newest}, or 0 to begin again",
        reason="REVISION_UNAVAILABLE",
        metadata={"after_revision": str(after), "oldest": str(oldest), "newest": str(newest)},
    )


def broken_reference(source: object, target: object) -> InternalError:
    """A write would leave a reference to nothing; the rules before it should have refused it."""
    return InternalError(f"{source} refers to {target}, which is not there")
