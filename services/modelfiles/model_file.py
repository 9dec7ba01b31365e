"""A language model's files, as far as their headers go: what it is, and where each of its tensors lies."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.modelfiles.architecture import Architecture
from services.modelfiles.errors import ModelFileError
from services.modelfiles.tensor_info import TYPES, TensorInfo, TensorType
from services.modelfiles.tensor_plan import Part, TensorKey, planned_tensors

_FLOATS = {TensorType.F32, TensorType.F16, TensorType.BF16}
_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """Checked: every tensor that the architecture needs is there, of a type and shape that can be served."""

    architecture: Architecture
    tensors: Mapping[TensorKey, TensorInfo]
    interleaved: bool  # queries' and keys' rows
    norm_offset: float = 0.0  # what is added to stored norms
    has_chat_template: bool

    @property
    def tied(self) -> bool:
        """Whether the embedding is the head, too."""
        return TensorKey(Part.HEAD) not in self.tensors

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors.values())

    @property
    def precision(self) -> str:
        """The type of most weights of layers."""
        counts: Counter[str] = Counter()
        for key, tensor in self.tensors.items():
            if key.layer is not None:
                counts[tensor.type_name] += tensor.elements
        return counts.most_common(1)[0][0]


def matched(
    architecture: Architecture,
    present: Mapping[str, TensorInfo],
    name: Callable[[TensorKey], str],
) -> dict[TensorKey, TensorInfo]:
    """The tensors that are there by what they are for. Raises ModelFileError for one missing, unknown or unfit."""
    found: dict[TensorKey, TensorInfo] = {}
    missing, used = [], set()
    for planned in planned_tensors(architecture):
        tensor = present.get(name(planned.key))
        if tensor is not None:
            _check_tensor(tensor, planned.shape)
            found[planned.key] = tensor
            used.add(tensor.name)
        elif planned.required:
            missing.append(name(planned.key))
    if missing:
        raise ModelFileError(
            "tensors", f"{_listed(missing)} missing", f"all that {architecture.family.name} has"
        )
    unknown = [known for known in present if known not in used]
    if unknown:
        raise ModelFileError(
            "tensors",
            f"{_listed(unknown)} not known in {architecture.family.name}",
            "no others: leaving them out would give wrong text",
        )
    return found


def _check_tensor(tensor: TensorInfo, shape: tuple[int, ...]) -> None:
    place = f"tensor {tensor.name!a}"
    if tensor.type is None:
        raise ModelFileError(place, f"type {tensor.type_name} is not supported", TYPES)
    if len(shape) == 1 and tensor.type not in _FLOATS:
        allowed = ", ".join(sorted(kind.name for kind in _FLOATS))
        raise ModelFileError(place, f"type {tensor.type_name} for a vector", allowed)
    if tensor.shape != shape:
        raise ModelFileError(place, f"shape {list(tensor.shape)}", f"{list(shape)} by its metadata")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    verb = "are" if len(names) > 1 else "is"
    return f"{', '.join(ascii(name) for name in names[:_LISTED])}{more} {verb}"
