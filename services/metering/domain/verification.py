"""What a verification of the ledger finds."""

from dataclasses import dataclass, field

MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that doesn't add up."""

    reason: str  # machine-readable, as ledger_service.proto lists them
    subject: str
    description: str


@dataclass(slots=True)
class Verification:
    """Counts of what was looked at, and what is wrong."""

    entries: int = 0
    postings: int = 0
    rows: int = 0
    dropped_rows: int = 0
    head_number: int = 0
    head_hash: bytes = b""
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problem_count

    def add(self, reason: str, subject: str, description: str) -> None:
        """Note a problem; of very many only the first are kept."""
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(reason, subject, description))
