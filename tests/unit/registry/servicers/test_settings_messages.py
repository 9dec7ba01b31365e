"""Settings and tuning between messages and the domain."""

import pytest
from inferplane.registry.v1 import model_pb2 as pb

from services.registry.servicers.settings_messages import (
    read_settings,
    read_tuning,
    settings_message,
    tuning_message,
)
from services.rpc.errors import InvalidArgumentError
from tests.unit.registry import records
from tests.unit.registry.full_settings import FULL_SETTINGS, FULL_TUNING


def test_every_setting_goes_both_ways() -> None:
    """No field of the message is left out, and what comes back is what was written."""
    message = settings_message(FULL_SETTINGS)
    written = {field.name for field, _ in message.ListFields()}
    assert written == {field.name for field in pb.VersionSettings.DESCRIPTOR.fields}
    assert read_settings(message) == FULL_SETTINGS


def test_what_is_unset_stays_unset() -> None:
    """An empty message comes back empty, and an empty cache or sequence is still one."""
    assert settings_message(read_settings(pb.VersionSettings())) == pb.VersionSettings()
    bare = pb.VersionSettings(
        response_cache=pb.ResponseCacheSettings(), sequence=pb.SequenceSettings()
    )
    assert settings_message(read_settings(bare)) == bare


def test_unknown_values_of_enums_are_refused() -> None:
    """A value of a newer release is named with those that there are, all at once."""
    wrong = pb.VersionSettings()
    for field in ("oversize_policy", "batch_axis", "tuning_mode"):
        setattr(wrong, field, 9)
    with pytest.raises(InvalidArgumentError) as refused:
        read_settings(wrong)
    assert [violation.field for violation in refused.value.violations] == [
        "settings.oversize_policy",
        "settings.batch_axis",
        "settings.tuning_mode",
    ]
    assert "9; allowed: 0 (unset), 1 (SPLIT), 2 (REFUSE)" in str(refused.value)


def test_a_tuning_goes_both_ways() -> None:
    """Every field arrives; a measurement without a time was made now."""
    message = tuning_message(FULL_TUNING)
    assert len(message.ListFields()) == len(pb.VersionTuning.DESCRIPTOR.fields)
    assert read_tuning(message, records.NOW) == FULL_TUNING
    message.ClearField("measure_time")
    assert read_tuning(message, records.NOW).measure_time == records.NOW
