"""The state that a version keeps between requests of a sequence: which tensors it is, how it begins, what follows."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from services.rpc.errors import InternalError, InvalidArgumentError
from services.worker.domain.assignment import SequenceState
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BYTES
from services.worker.domain.load_state import LoadError
from services.worker.domain.raw_contents import raw_size
from services.worker.domain.signature import FREE, Signature, TensorSpec

State = Mapping[str, Array]  # by input


@dataclass(frozen=True, slots=True)
class StatePlan:
    """How a version's signature divides into what callers see and what is kept for them."""

    whole: Signature
    seen: Signature  # inputs that callers give, outputs that they get
    states: tuple[SequenceState, ...]
    first: State  # of every sequence
    one_row: bool  # states have a row for a request's one row

    @classmethod
    def of(cls, signature: Signature, states: tuple[SequenceState, ...]) -> "StatePlan":
        """Raises LoadError with the first thing that is wrong."""
        first: dict[str, Array] = {}
        for state in states:
            if state.input in first:
                raise LoadError(f"state {state.input!r} is declared twice")
            taken, given = _specs(signature, state)
            first[state.input] = _zeros(taken)
            _check_fits(taken, given)
        hidden = {state.output for state in states}
        seen = Signature(
            tuple(spec for spec in signature.inputs if spec.name not in first),
            tuple(spec for spec in signature.outputs if spec.name not in hidden),
        )
        one_row = any(signature.inputs[signature.input_index[n]].has_free_rows for n in first)
        return cls(signature, seen, states, first, one_row)

    def check_rows(self, feeds: Mapping[str, Array]) -> None:
        """A request of a sequence is one row. Raises InvalidArgumentError."""
        if not self.one_row:
            return
        for index, spec in enumerate(self.seen.inputs):
            if spec.has_free_rows and feeds[spec.name].shape[0] != 1:
                raise InvalidArgumentError.of_field(
                    f"inputs[{index}].shape",
                    f"{spec.name!r} has {feeds[spec.name].shape[0]} rows; allowed: 1,"
                    " since the state of a sequence is of one row",
                )

    def feeds(self, given: Mapping[str, Array], state: State) -> dict[str, Array]:
        """All inputs of the model, in its order."""
        return {
            s.name: state[s.name] if s.name in state else given[s.name] for s in self.whole.inputs
        }

    def outputs(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """What a caller wants, and the state after it."""
        return (*wanted, *dict.fromkeys(state.output for state in self.states))

    def following(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The state after a run, of arrays that keep nothing else alive. Raises InternalError if it is no state."""
        state: dict[str, Array] = {}
        for named in self.states:
            array, first = outputs[named.output], self.first[named.input]
            if array.shape != first.shape or array.dtype != first.dtype:
                raise InternalError(
                    f"the model gave state {named.output!r} as {array.dtype} {list(array.shape)};"
                    f" {named.input!r} takes {first.dtype} {list(first.shape)}",
                    reason="STATE_UNFIT",
                    metadata={"output": named.output, "input": named.input},
                )
            state[named.input] = array.copy()
        return state


def size_of(state: State) -> int:
    """Bytes of its values."""
    return raw_size(state.values())


def _specs(signature: Signature, state: SequenceState) -> tuple[TensorSpec, TensorSpec]:
    taken, given = (
        signature.input_index.get(state.input),
        signature.output_index.get(state.output),
    )
    if taken is None:
        raise LoadError(f"state {state.input!r} is no input of the model")
    if given is None:
        raise LoadError(f"state {state.output!r} is no output of the model")
    return signature.inputs[taken], signature.outputs[given]


def _zeros(spec: TensorSpec) -> Array:
    """Zeros, or empty strings; a free first dimension is 1, another free one has no size to begin with."""
    if FREE in spec.shape[1:]:
        axis = spec.shape.index(FREE, 1)
        raise LoadError(
            f"state {spec} has a free dimension at axis {axis}; a state's sizes are fixed, but for the first"
        )
    shape = [1 if dim == FREE else dim for dim in spec.shape]
    if spec.datatype is BYTES:
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, spec.datatype.dtype)


def _check_fits(taken: TensorSpec, given: TensorSpec) -> None:
    fits = taken.datatype is given.datatype and (
        not given.shape
        or (
            len(taken.shape) == len(given.shape)
            and all(a == b or FREE in (a, b) for a, b in zip(taken.shape, given.shape, strict=True))
        )
    )
    if not fits:
        raise LoadError(f"state output {given} does not fit state input {taken}")
