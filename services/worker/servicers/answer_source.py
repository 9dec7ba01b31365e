"""What every servicer of inferences answers from."""

from collections.abc import Callable
from dataclasses import dataclass, field

from services.rpc.errors import ResourceExhaustedError
from services.worker.drivers.roster import Roster
from services.worker.drivers.served_text import ServedText
from services.worker.ports.text_watch import NoTextWatch, TextRecord, TextWatch, WatchedCall
from services.worker.servicers.call import Context, caller, request_id
from services.worker.servicers.text_answer import ReaderBounds


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """What both protocols' servicers answer from."""

    roster: Roster
    is_ready: Callable[[], bool]  # whether the worker takes calls and is to stay
    release: str
    max_message_bytes: int
    # Of answers that are sent as they are made.
    reader: ReaderBounds = field(default_factory=ReaderBounds)
    watch: TextWatch = field(default_factory=NoTextWatch)

    def record(self, context: Context, served: ServedText) -> TextRecord:
        """What is to be known of the texts of a call."""
        return self.watch.begin(
            WatchedCall(
                caller=caller(context),
                request_id=request_id(context),
                version=served.spec.name,
                tokenizer=served.tokenizer,
            )
        )

    def check_size(self, size: int) -> None:
        """An answer beyond the limit is refused with the limit named. Raises ResourceExhaustedError."""
        if size > self.max_message_bytes:
            raise ResourceExhaustedError(
                f"the answer has {size} bytes, more than the {self.max_message_bytes} a message may have;"
                " allowed: fewer rows or outputs per call",
                reason="MESSAGE_TOO_LARGE",
                metadata={"size": str(size), "limit": str(self.max_message_bytes)},
            )
