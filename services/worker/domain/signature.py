"""What a version takes and gives: names, datatypes and shapes of its inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.worker.domain.datatype import BY_NAME, BYTES, Datatype

FREE = -1  # a dimension that may have any size


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]  # FREE: any size

    @property
    def has_free_rows(self) -> bool:
        """Whether the first dimension is free, so that it may count rows of a batch."""
        return bool(self.shape) and self.shape[0] == FREE

    def __str__(self) -> str:
        return f"{self.name!r} {self.datatype.name} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs of one version, in the model's order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_index: Mapping[str, int] = field(init=False, compare=False)
    output_index: Mapping[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_index", {s.name: i for i, s in enumerate(self.inputs)})
        object.__setattr__(self, "output_index", {s.name: i for i, s in enumerate(self.outputs)})

    @property
    def has_free_rows(self) -> bool:
        """Whether every input and output counts rows in its first dimension."""
        return all(spec.has_free_rows for spec in (*self.inputs, *self.outputs))

    @property
    def has_fixed_rows(self) -> bool:
        """Whether a row of each input always has the same size: numbers, and no free dimension but the first."""
        return all(s.datatype is not BYTES and FREE not in s.shape[1:] for s in self.inputs)

    @property
    def has_fixed_inputs(self) -> bool:
        """Whether no dimension of any input is free."""
        return all(FREE not in spec.shape for spec in self.inputs)


def spec_of(name: str, datatype: str, shape: tuple[int, ...]) -> TensorSpec:
    """A spec from the protocol's words; KeyError if the datatype is unknown."""
    return TensorSpec(name, BY_NAME[datatype], shape)


def disagreements(registered: Signature, loaded: Signature) -> list[str]:
    """What a loaded model has otherwise than the registry says, in words; empty: nothing."""
    found = []
    for kind, said, has in (
        ("input", registered.inputs, loaded.inputs),
        ("output", registered.outputs, loaded.outputs),
    ):
        if [s.name for s in said] != [s.name for s in has]:
            names = f"{[s.name for s in has]}, registered {[s.name for s in said]}"
            found.append(f"the model's {kind}s are {names}")
            continue
        found += [
            f"the model's {kind} is {b}, registered {a}"
            for a, b in zip(said, has, strict=True)
            if a.datatype != b.datatype or not _fits(a.shape, b.shape, strict=kind == "input")
        ]
    return found


def _fits(registered: tuple[int, ...], loaded: tuple[int, ...], *, strict: bool) -> bool:
    """Outputs may be told more or less exactly: a runtime infers shapes that the file leaves open."""
    if strict:
        return registered == loaded
    if not registered or not loaded:
        return True
    return len(registered) == len(loaded) and all(
        a == b or FREE in (a, b) for a, b in zip(registered, loaded, strict=True)
    )
