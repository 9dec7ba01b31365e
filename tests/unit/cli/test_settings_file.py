"""Settings of a version as YAML, and what flags say beside it."""

import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from inferplane.registry.v1 import model_pb2

from services.cli.adapters import settings_file
from services.cli.adapters.settings_table import settings_fields, tuning_line
from services.cli.commands import endpoints
from services.cli.domain.exit_code import UsageError

_GOOD = """
max_batch_size: 32
preferred_batch_sizes: [8, 16]
max_queue_bytes: 5000000000
queue_timeout_us: "250000"
batch_axis: BATCH_AXIS_FIRST
padded_inputs:
- {name: ids, axis: 1}
- {name: mask, axis: 1, mask: true}
trimmed_outputs: [{name: states, axis: 1, input: ids, input_axis: 1}]
cpus: [0, 1]
tuning_mode: TUNING_MODE_AUTO
response_cache: {max_bytes: 1048576, ttl_ms: 1500}
"""


def test_settings_are_read() -> None:
    """Numbers of 64 bits also as text, enums by name, messages and lists of them."""
    found = settings_file.parse(_GOOD, "s.yaml")
    assert (found.max_batch_size, list(found.preferred_batch_sizes)) == (32, [8, 16])
    assert (found.max_queue_bytes, found.queue_timeout_us) == (5_000_000_000, 250_000)
    assert found.batch_axis == model_pb2.BATCH_AXIS_FIRST
    assert [(p.name, p.mask) for p in found.padded_inputs] == [("ids", False), ("mask", True)]
    assert found.response_cache.ttl_ms == 1500


def test_what_is_printed_as_json_is_read() -> None:
    """Settings out of `models get --output json` are settings again: JSON is YAML."""
    found = settings_file.parse(_GOOD, "s.yaml")
    printed = MessageToDict(
        found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert settings_file.parse(json.dumps(printed), "s.json") == found


def test_nothing_is_the_worker_s_defaults() -> None:
    """No file, and an empty one, set nothing."""
    assert settings_file.parse("", "s") == model_pb2.VersionSettings()
    assert settings_file.parse("# nothing yet\n", "s") == model_pb2.VersionSettings()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("batch_size: 3", "unknown field `batch_size`; allowed: max_batch_size,"),
        ("padded_inputs: [{name: a, axes: 1}]", "unknown field `padded_inputs[0].axes`; allowed:"),
        ("padded_inputs: [{mask: 1}]", "padded_inputs[0].mask: 1 is neither true nor false"),
        (
            "tuning_mode: AUTO",
            'tuning_mode: "AUTO" is unknown; allowed: TUNING_MODE_UNSPECIFIED, TUNING_MODE_OFF',
        ),
        ("max_queue_bytes: 1.5", "max_queue_bytes: 1.5 is not a whole number of 64 bits"),
        ("max_queue_bytes: 1e30", 'max_queue_bytes: "1e30" is not a whole number of 64 bits'),
        ("max_queue_bytes: 9223372036854775808", "is not a whole number of 64 bits"),
        ("max_batch_size: true", "max_batch_size: true is not a whole number of 32 bits"),
        ("preferred_batch_sizes: 8", "preferred_batch_sizes: 8 is not a list"),
        ("[1]", ": [1] is not a mapping; allowed: max_batch_size,"),
        ("a: 1\n---\nb: 1", "holds 2 documents; allowed: one"),
    ],
)
def test_wrong_settings(line: str, told: str) -> None:
    """What is wrong is told by its path before anything is asked of a mesh."""
    with pytest.raises(UsageError) as refused:
        settings_file.parse(line, "s.yaml")
    assert refused.value.message.startswith("s.yaml: ")
    assert told in refused.value.message


def test_flags_win_over_the_file() -> None:
    """What was typed replaces what is in the file, also by zero; the rest of the file stays."""
    given = settings_file.parse("{max_batch_size: 8, max_queue_delay_us: 100, instances: 2}", "s")
    typed = settings_file.with_flags(given, 0, None)
    assert (typed.max_batch_size, typed.max_queue_delay_us, typed.instances) == (0, 100, 2)
    assert given.max_batch_size == 8
    assert settings_file.with_flags(given, None, None) == given


def test_all_that_is_set_is_shown() -> None:
    """A table has each setting by its name, and what measuring found."""
    shown = settings_fields(settings_file.parse(_GOOD, "s"))
    assert shown["preferred_batch_sizes"] == "8, 16"
    assert shown["padded_inputs"] == "(name ids, axis 1), (name mask, axis 1, mask True)"
    assert shown["batch_axis"] == "BATCH_AXIS_FIRST"
    assert shown["response_cache"] == "max_bytes 1048576, ttl_ms 1500"
    assert "instances" not in shown
    version = model_pb2.ModelVersion()
    assert tuning_line(version) == ""
    version.tuning.MergeFrom(
        model_pb2.VersionTuning(
            intra_op_threads=1,
            instances=2,
            max_batch_size=64,
            rows_per_second=4321.4,
            baseline_rows_per_second=1000,
            machine_cpus=2,
        )
    )
    assert tuning_line(version) == (
        "threads 1, instances 2, max batch 64: 4321 rows/s, 4.3 × one thread without batches (2 CPUs)"
    )


def test_the_document_s_example() -> None:
    """What docs/cli.md shows is read as it stands there."""
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    example = text.partition("## Settings of a version")[2].split("```yaml\n")[1].split("```")[0]
    found = settings_file.parse(example, "docs/cli.md")
    assert [padded.name for padded in found.padded_inputs] == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
    ]
    assert found.tuning_mode == model_pb2.TUNING_MODE_AUTO


_HOSTILE = [
    ("padded_inputs: &a [*a]", "padded_inputs[0]: "),
    ("[" * 5000, "nested too deeply"),
    ("max_batch_size: " + "9" * 5000, "no YAML: "),
    ("max_batch_size: 2020-13-45", "no YAML: month must be in 1..12"),
    ("max_batch_size: 1\nmax_batch_size: 2", "line 2, column 1: max_batch_size is there twice"),
    ("maxBatchSize: 1\nmax_batch_size: 2", "max_batch_size: is there as maxBatchSize too"),
    ("[1, 2]", "s.yaml: [1, 2] is not a mapping"),
    ("a: b\n" * 1_000_000, "5000000 characters; allowed: 4194304"),
    ("\n".join(f"k{index}: 1" for index in range(100)), "; and more"),
]


@pytest.mark.parametrize(("text", "told"), _HOSTILE, ids=[told for _, told in _HOSTILE])
def test_what_no_person_writes_is_refused_in_a_short_line(text: str, told: str) -> None:
    """Loops, depth, numbers and files without end, and keys that come twice are usage errors."""
    with pytest.raises(UsageError) as caught:
        settings_file.parse(text, "s.yaml")
    assert told in str(caught.value)
    assert len(str(caught.value)) < 20_000


def test_a_file_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is read up to the bound, not for ever."""
    monkeypatch.setattr(endpoints, "_LONGEST_TEXT", 1000)
    with pytest.raises(UsageError, match="/dev/zero: is longer than 1000 bytes"):
        endpoints.read_text("/dev/zero")


def test_aliases_that_multiply_are_not_expanded() -> None:
    """A value of 10 to the 8 texts by aliases is told by its beginning."""
    levels = ["[x, x, x, x, x, x, x, x, x, x]"]
    for level in range(8):
        levels.append(f"[{', '.join([f'*a{level}'] * 10)}]")
    listed = ", ".join(f"{{name: &a{level} {text}}}" for level, text in enumerate(levels))
    with pytest.raises(UsageError, match=r"padded_inputs\[8\].name: \[\[\[") as caught:
        settings_file.parse(f"padded_inputs: [{listed}]", "s.yaml")
    assert len(str(caught.value)) < 2_000
