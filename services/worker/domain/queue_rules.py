"""What a version's settings make of a request: its priority, how long it may wait, whether it is too large."""

from dataclasses import dataclass

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.assignment import OversizePolicy, RunSettings
from services.worker.domain.request_options import PLAIN, RequestOptions
from services.worker.domain.waiting import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """One version's."""

    priority_levels: int = 0  # 0: priorities mean nothing
    default_priority: int = 0  # 0: the last
    timeout: float = 0.0  # seconds that a request waits; 0: until its deadline
    most_rows: int = 0  # of a request; 0: any number

    @classmethod
    def of(cls, settings: RunSettings, max_rows: int) -> "QueueRules":
        """What settings say; `max_rows`: of a batch."""
        refuses = settings.oversize_policy is OversizePolicy.REFUSE
        return cls(
            priority_levels=settings.priority_levels,
            default_priority=settings.default_priority,
            timeout=settings.queue_timeout,
            most_rows=max_rows if refuses else 0,
        )

    @property
    def levels(self) -> int:
        """How many there are to queue in."""
        return max(1, self.priority_levels)

    def apply(self, terms: Terms, options: RequestOptions) -> None:
        """Fill in level and timeout. Raises InvalidArgumentError."""
        if self.most_rows and terms.rows > self.most_rows:
            raise InvalidArgumentError.of_field(
                "inputs", f"{terms.rows} rows given; allowed: {self.most_rows} (max_batch_size)"
            )
        terms.timeout = self.timeout
        if self.priority_levels:
            terms.level = (self.default_priority or self.priority_levels) - 1
        if options is not PLAIN:
            self._apply_own(terms, options)

    def _apply_own(self, terms: Terms, options: RequestOptions) -> None:
        if options.timeout is not None:
            terms.timeout = min(options.timeout, self.timeout or options.timeout)
        if options.priority and self.priority_levels:
            if options.priority > self.priority_levels:
                raise InvalidArgumentError.of_field(
                    "parameters.priority",
                    f"{options.priority} given; allowed: 1 (first) to {self.priority_levels}, or 0 for the default",
                )
            terms.level = options.priority - 1
