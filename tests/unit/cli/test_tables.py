"""What tables show of resources."""

from google.protobuf.duration_pb2 import Duration
from inferplane.registry.v1 import endpoint_pb2, model_pb2

from services.cli.adapters.tables import VERSIONS, policy_fields, version_fields


def test_whole_policy() -> None:
    """Every part of an endpoint's policy, as it is set."""
    endpoint = endpoint_pb2.Endpoint(
        name="endpoints/e",
        sticky_header="x-user",
        timeout=Duration(seconds=2, nanos=500_000_000),
        mirror=endpoint_pb2.Mirror(target="models/m/versions/2", percent=12.5),
        retry_policy=endpoint_pb2.RetryPolicy(
            num_retries=1, budget_percent=10, min_retry_concurrency=3
        ),
        circuit_limits=endpoint_pb2.CircuitLimits(max_requests=7, max_mirror_requests=8),
    )
    endpoint.targets.add(target="models/m/versions/1", weight=3)
    fields = policy_fields(endpoint)
    assert fields["traffic"] == "m@1 100 %"
    assert fields["sticky"] == "x-user"
    assert fields["mirror"] == "12.5 % to m@2"
    assert fields["timeout"] == "2.5 s"
    assert fields["retries"] == "1 of a call; in flight at once 10 % of the calls, and always 3"
    assert fields["limits"] == "calls in flight 7, mirrored 8"


def test_policy_that_is_not_set() -> None:
    """What holds then is shown, and that it is the default."""
    endpoint = endpoint_pb2.Endpoint(name="endpoints/e")
    fields = policy_fields(endpoint)
    assert fields["timeout"] == "60 s (default)"
    assert fields["retries"].startswith("2 (default) of a call")
    assert fields["limits"] == "calls in flight 1024 (default), mirrored 64 (default)"
    assert (fields["mirror"], fields["sticky"]) == ("off", "off: each call by chance")
    endpoint.retry_policy.num_retries = 0
    assert policy_fields(endpoint)["retries"] == "off"


def test_digest_is_that_of_json() -> None:
    """A digest can be copied from the table and compared with the API's."""
    version = model_pb2.ModelVersion(name="models/m/versions/1", digest="ab" * 32)
    assert version_fields(version)["digest"] == version.digest


def test_a_language_model_is_told_as_one() -> None:
    """Text goes in and comes out; what it is stands in the words of its file."""
    version = model_pb2.ModelVersion(
        name="models/smol/versions/1",
        format=model_pb2.FORMAT_GGUF,
        language_model=model_pb2.LanguageModel(
            architecture="llama",
            parameter_count=134_515_008,
            context_length=8192,
            vocabulary_size=49152,
            layer_count=30,
            precision="Q4_1",
            has_chat_template=True,
        ),
    )
    cells = {header: cell(version) for header, cell in VERSIONS}
    assert cells["INPUTS"] == "text (llama, Q4_1, 8,192 tokens)"
    assert cells["OUTPUTS"] == "text"
    fields = version_fields(version)
    assert fields["architecture"] == "llama, 30 layers"
    assert fields["parameters"] == "134,515,008"
    assert fields["conversations"] == "by its chat template"
    version.settings.generation.max_running_requests = 8
    assert version_fields(version)["generation"] == "max_running_requests 8"
