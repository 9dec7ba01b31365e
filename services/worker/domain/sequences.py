"""All sequences of a version: whose turn it is, what state each is in, which have been idle too long. It has no clock.

One request of a sequence runs at a time, in the order of arrival; the state changes only when its run has succeeded.
"""

from collections import deque
from dataclasses import dataclass, field

from services.rpc.errors import FailedPreconditionError, ResourceExhaustedError
from services.worker.domain.assignment import SequenceLimits
from services.worker.domain.contents import shown
from services.worker.domain.sequence_part import SequenceId, SequencePart
from services.worker.domain.sequence_state import State, size_of

Key = tuple[str, SequenceId]  # tenant and id: two tenants' sequences never meet

_OVERHEAD = 512  # bytes that a sequence costs beside its values
_LEAST_RETRY = 0.1  # seconds


@dataclass(slots=True, eq=False)
class Turn:
    """One request of a sequence, equal only to itself."""

    key: Key
    part: SequencePart
    size: int  # bytes of its inputs


@dataclass(slots=True)
class _Sequence:
    """State and line of one; it is forgotten when it has neither."""

    state: State | None = None  # None: not begun
    size: int = 0  # bytes that are charged for it
    line: deque[Turn] = field(default_factory=deque)  # the first one runs


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Bounds of what waits for its turn, of all sequences together."""

    max_turns: int
    max_bytes: int


class Sequences:
    """Turns arrive, begin, maybe commit, and end; or leave."""

    def __init__(self, limits: SequenceLimits, line: LineLimits, first: State) -> None:
        """Assign only; `first` is the state in which every sequence begins."""
        self._limits = limits
        self._line = line
        self._first = first
        self._sequences: dict[Key, _Sequence] = {}
        self._idle: dict[Key, float] = {}  # since when, longest first
        self._turns = 0
        self._turn_bytes = 0
        self.size = 0  # bytes of all states

    def __len__(self) -> int:
        """Sequences that have begun."""
        return sum(s.state is not None for s in self._sequences.values())

    def arrive(self, turn: Turn, now: float) -> bool:
        """Stand in line; whether it is its turn now: then `begin` follows. Raises ResourceExhaustedError."""
        self.expire(now)
        if self._turns:
            self._check_room("requests", self._turns + 1, self._line.max_turns)
            self._check_room("bytes", self._turn_bytes + turn.size, self._line.max_bytes)
        sequence = self._sequences.setdefault(turn.key, _Sequence())
        self._idle.pop(turn.key, None)
        sequence.line.append(turn)
        self._turns += 1
        self._turn_bytes += turn.size
        return len(sequence.line) == 1

    def begin(self, turn: Turn, now: float) -> State:
        """The state for a turn that has come. `end` follows whatever happens.

        Raises FailedPreconditionError if there is no such sequence, ResourceExhaustedError if there is no room for one.
        """
        sequence = self._sequences[turn.key]
        assert sequence.line[0] is turn
        if turn.part.starts:
            if sequence.state is None:
                self._charge(sequence, size_of(self._first) + _OVERHEAD, now)
            return self._first
        if sequence.state is None:
            raise self._unknown(turn)
        return sequence.state

    def commit(self, turn: Turn, state: State, now: float) -> None:
        """Its run has succeeded. Raises ResourceExhaustedError if the new state has no room; the old one stays."""
        sequence = self._sequences[turn.key]
        assert sequence.line[0] is turn
        if turn.part.ends:
            sequence.state = None
            return
        self._charge(sequence, size_of(state) + _OVERHEAD, now)
        sequence.state = state

    def end(self, turn: Turn, now: float) -> Turn | None:
        """The turn is over, or its caller has gone; whose turn it is now, if that changes."""
        sequence = self._sequences.get(turn.key)
        if sequence is None:
            return None
        line = sequence.line
        ran = bool(line) and line[0] is turn
        if ran:
            line.popleft()
        elif turn in line:
            line.remove(turn)
        else:
            return None
        self._turns -= 1
        self._turn_bytes -= turn.size
        if line:
            return line[0] if ran else None
        if sequence.state is None:
            self.size -= sequence.size
            del self._sequences[turn.key]
        else:
            self._idle[turn.key] = now
        return None

    def has_begun(self, key: Key) -> bool:
        """Whether a sequence has a state."""
        sequence = self._sequences.get(key)
        return sequence is not None and sequence.state is not None

    def expire(self, now: float) -> None:
        """Forget what nobody has asked for longer than the idle timeout."""
        while self._idle:
            key, since = next(iter(self._idle.items()))
            if since + self._limits.idle_timeout > now:
                return
            del self._idle[key]
            self.size -= self._sequences.pop(key).size

    def next_expiry(self) -> float | None:
        """When `expire` has something to do next, unless somebody asks before."""
        since = next(iter(self._idle.values()), None)
        return None if since is None else since + self._limits.idle_timeout

    def check(self) -> None:
        """Raise AssertionError if the sums are not those of what is here."""
        lines = [turn for s in self._sequences.values() for turn in s.line]
        if (
            self._turns != len(lines)
            or self._turn_bytes != sum(turn.size for turn in lines)
            or self.size != sum(s.size for s in self._sequences.values())
            or self._idle.keys() != {k for k, s in self._sequences.items() if not s.line}
            or any(s.state is None and not s.line for s in self._sequences.values())
        ):
            raise AssertionError("sums differ from the sequences that are here")

    def _charge(self, sequence: _Sequence, size: int, now: float) -> None:
        more = size - sequence.size
        limit = self._limits.max_bytes
        if more > 0 and self.size + more > limit:
            free_at = self.next_expiry()
            raise ResourceExhaustedError(
                f"the states of sequences have {self.size} bytes; {more} more would exceed the {limit} allowed;"
                " end sequences that are not needed any more",
                reason="SEQUENCES_FULL",
                metadata={"size": str(self.size), "more": str(more), "limit": str(limit)},
                retry_after=max(
                    _LEAST_RETRY, self._limits.idle_timeout if free_at is None else free_at - now
                ),
            )
        sequence.size = size
        self.size += more

    def _check_room(self, unit: str, wanted: int, limit: int) -> None:
        if wanted > limit:
            raise ResourceExhaustedError(
                f"{wanted} {unit} would wait for their sequences' turn; allowed: {limit}",
                reason="QUEUE_FULL",
                metadata={"unit": unit, "limit": str(limit)},
                retry_after=_LEAST_RETRY,
            )

    def _unknown(self, turn: Turn) -> FailedPreconditionError:
        idle = self._limits.idle_timeout
        return FailedPreconditionError(
            f"sequence {shown(turn.part.id)} has not begun on this worker, or has ended (also after {idle:g} s without"
            " a request); begin it with sequence_start. Calls outside a stream need the header x-sequence-id to"
            " reach the same worker each time",
            reason="SEQUENCE_UNKNOWN",
            metadata={"sequence_id": str(turn.part.id)[:256], "idle_timeout": f"{idle:g}"},
        )
