"""Settings of a version as YAML (`models push --settings`), and what flags say beside it."""

from inferplane.registry.v1 import model_pb2

from services.cli.adapters import yaml_message
from services.cli.domain.exit_code import UsageError


def parse(text: str, source: str) -> model_pb2.VersionSettings:
    """The settings of one YAML document; an empty one leaves all to the worker."""
    found = yaml_message.documents(text, source)
    if len(found) > 1:
        raise UsageError(
            f"{source}: holds {len(found)} documents; allowed: one, the settings of the version",
            reason="YAML_INVALID",
        )
    return yaml_message.read(found[0] if found else {}, model_pb2.VersionSettings(), source)


def with_flags(
    settings: model_pb2.VersionSettings,
    max_batch_size: int | None,
    max_queue_delay_us: int | None,
) -> model_pb2.VersionSettings:
    """The settings with what was typed, which comes before what is in the file."""
    both = model_pb2.VersionSettings()
    both.CopyFrom(settings)
    if max_batch_size is not None:
        both.max_batch_size = max_batch_size
    if max_queue_delay_us is not None:
        both.max_queue_delay_us = max_queue_delay_us
    return both
