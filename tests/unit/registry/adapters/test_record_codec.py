"""Records as JSON."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from services.registry.adapters.record_codec import decode, encode
from services.registry.domain.catalog import Record
from services.registry.domain.endpoint import CircuitLimits, Endpoint, Mirror, RetryPolicy, Target
from services.registry.domain.model import Alias, LanguageModel, ModelVersion, TensorSpec
from services.registry.domain.version_settings import VersionSettings
from services.rpc.names import AliasName, VersionName
from tests.unit.registry import records
from tests.unit.registry.full_settings import FULL_SETTINGS, FULL_TUNING

V1 = VersionName("m", "1")
FULL_ENDPOINT = replace(
    records.endpoint(),
    description="ünï",
    targets=(Target(V1, 0.1), Target(AliasName("m", "champion"), 5e-324)),
    sticky_header="x-user",
    mirror=Mirror(AliasName("m", "1"), 99.9),
    retry_policy=RetryPolicy(num_retries=0, budget_percent=0.0),
    timeout=timedelta(microseconds=1),
    circuit_limits=CircuitLimits(max_requests=1),
    tags={"a": "b"},
)
FULL_VERSION = replace(
    records.version(files=(records.file("a.onnx"), records.file("b", b""))),
    inputs=(TensorSpec("x", "FP32", (-1, 2)),),
    outputs=(TensorSpec("y", "BYTES", ()),),
    settings=FULL_SETTINGS,
    tuning=FULL_TUNING,
    measuring_wanted=True,
    language_model=LanguageModel(
        architecture="llama",
        parameter_count=135_000_000,
        context_length=8192,
        vocabulary_size=49_152,
        layer_count=30,
        precision="Q4_1",
        has_chat_template=True,
    ),
    lineage={"source": "file:/x"},
)


@pytest.mark.parametrize(
    "record",
    [
        records.model("m", "d"),
        records.version(),
        FULL_VERSION,
        records.alias(),
        records.placement("gpu"),
        records.endpoint(),
        FULL_ENDPOINT,
    ],
    ids=lambda record: f"{type(record).__name__} {record.name}",
)
def test_a_record_comes_back_equal(record: Record) -> None:
    """Every field survives, with its type: versions stay versions, aliases aliases."""
    back = decode(type(record), encode(record))  # type: ignore[type-var] # one of them, not their union
    assert back == record
    assert type(back) is type(record)


def test_text_of_an_older_release_is_read() -> None:
    """A field that has a default may be missing; one that is unknown is passed over."""
    text = json.loads(encode(FULL_ENDPOINT))
    del text["circuit_limits"], text["tags"]
    text["from_the_future"] = 1
    back = decode(Endpoint, json.dumps(text))
    assert back == replace(FULL_ENDPOINT, circuit_limits=None, tags={})


def test_a_version_of_the_first_release_is_read() -> None:
    """Text as it was written before versions had a tuning and most of their settings means their defaults."""
    text = (
        '{"name":{"model":"m","version":"1"},"state":"READY","format":"ONNX","files":[],"digest":"d",'
        '"size_bytes":0,"inputs":[],"outputs":[],"settings":{"max_batch_size":3,"max_queue_delay_us":0,'
        '"intra_op_threads":0,"execution_providers":["CPUExecutionProvider"]},"lineage":{},'
        '"create_time":"2030-01-01T00:00:00Z","declare_time":"2030-01-01T00:00:00Z","etag":"e"}'
    )
    back = decode(ModelVersion, text)
    assert back.settings == VersionSettings(
        max_batch_size=3, execution_providers=("CPUExecutionProvider",)
    )
    assert back.tuning is None
    assert not back.measuring_wanted
    assert back.language_model is None


def test_broken_text_is_an_error() -> None:
    """Text that is no record of its kind never becomes one."""
    text = encode(records.model())
    with pytest.raises(ValueError, match="validation error"):
        decode(Alias, text)
    with pytest.raises(ValueError, match="validation error"):
        decode(ModelVersion, text)
