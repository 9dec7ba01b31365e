"""Reads from a request's inputs how many rows it has, and with whom it may share a run."""

from collections.abc import Hashable, Mapping

from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.ragged import Lengths, Padding
from services.worker.domain.raw_contents import raw_size
from services.worker.domain.signature import Signature
from services.worker.domain.waiting import Terms


class Grouping:
    """One version's; requests are told apart no further than their shapes may differ."""

    def __init__(self, signature: Signature, padding: Padding | None, *, batched: bool) -> None:
        """What can be known of all requests is looked up once."""
        self._padding = padding
        self._batched = batched
        self._is_fixed = signature.has_fixed_rows

    def terms(self, request: InferRequest) -> Terms:
        """What is fixed of a request when it is admitted."""
        feeds = request.feeds
        rows, group = self._group(feeds)
        lengths: Lengths = ()
        area = 0
        if self._padding is not None and group is not None:
            lengths = self._padding.lengths(feeds)
            group = self._padding.group(feeds, lengths)
            area = self._padding.area(lengths)
        return Terms(
            outputs=request.outputs,
            rows=rows,
            size=raw_size(feeds.values()),
            group=group,
            lengths=lengths,
            area=area,
            tenant=request.tenant,
        )

    def rows(self, request: InferRequest) -> int:
        """Rows of a request."""
        return self._group(request.feeds)[0]

    def _group(self, feeds: Mapping[str, Array]) -> tuple[int, Hashable]:
        """Rows and group: equal shapes of single rows. None: inputs differ in rows, compute it alone."""
        if not self._batched:
            return 1, None
        shapes = [array.shape for array in feeds.values()]
        rows = shapes[0][0]
        for shape in shapes:
            if shape[0] != rows:
                return 1, None
        return rows, () if self._is_fixed else tuple([shape[1:] for shape in shapes])
