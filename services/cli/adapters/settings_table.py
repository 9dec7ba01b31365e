"""What tables show of a version's settings and tuning: all that is set, in the proto's field names."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from inferplane.registry.v1 import model_pb2


def settings_fields(settings: model_pb2.VersionSettings) -> dict[str, str]:
    """Every setting that was given, in the proto's order."""
    return shown(settings)


def shown(message: Message) -> dict[str, str]:
    """Every field that is set, as a table shows it."""
    return {field.name: _shown(field, value) for field, value in message.ListFields()}


def _shown(field: FieldDescriptor, value: Any) -> str:
    if not field.is_repeated:
        return _one(field, value)
    cells = [_one(field, each) for each in value]
    return ", ".join(f"({cell})" if field.message_type else cell for cell in cells)


def _one(field: FieldDescriptor, value: Any) -> str:
    if isinstance(value, Message):
        return _message(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return f"{value:g}" if isinstance(value, float) else str(value)


def _message(message: Message) -> str:
    fields = [f"{field.name} {_shown(field, value)}" for field, value in message.ListFields()]
    return ", ".join(fields) or "as by default"


def tuning_line(version: model_pb2.ModelVersion) -> str:
    """What measuring found, in a line; empty if nobody measured or asked for it."""
    if version.measuring_wanted:
        return "to be measured"
    if not version.HasField("tuning"):
        return ""
    found = version.tuning
    return (
        f"threads {found.intra_op_threads}, instances {found.instances},"
        f" max batch {found.max_batch_size}: {found.rows_per_second:.0f} rows/s,"
        f" {found.rows_per_second / found.baseline_rows_per_second:.1f} × one thread without batches"
        f" ({found.machine_cpus} CPUs)"
    )
