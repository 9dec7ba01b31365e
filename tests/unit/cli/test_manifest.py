"""Endpoints as YAML: what is wrong is told in plain words, by its place, before anything is asked of a mesh."""

import pytest

from services.cli.adapters.failure_text import as_lines
from services.cli.adapters.manifest import parse
from services.cli.domain.exit_code import ExitCode, UsageError, exit_code_of

_GOOD = """
name: e
description: whole
targets: [{target: models/m/versions/1, weight: 1.5}, {target: models/m/aliases/next, weight: 2}]
sticky_header: x-user
mirror: {target: models/m/versions/2, percent: 5}
retry_policy: {num_retries: 1, budget_percent: 10, min_retry_concurrency: 3}
timeout: 2.5s
circuit_limits: {max_requests: 7}
tags: {team: vision}
create_time: "2030-01-31T12:00:00Z"
etag:
---
name: endpoints/other
stickyHeader: x-user
"""


def test_every_field_is_read() -> None:
    """Fields in the proto's names or in those of JSON; null is a field that is not there."""
    whole, other = parse(_GOOD, "f")
    assert (whole.name, other.name) == ("endpoints/e", "endpoints/other")
    assert (whole.targets[0].weight, whole.mirror.percent) == (1.5, 5)
    assert (whole.retry_policy.num_retries, whole.timeout.nanos) == (1, 500_000_000)
    assert (whole.circuit_limits.max_requests, whole.tags["team"]) == (7, "vision")
    assert other.sticky_header == "x-user"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("timeout: 2", "timeout: 2 is not a duration; write 2s"),
        ("timeout: soon", "timeout: soon is not a duration; write seconds, for example 2s or 0.5s"),
        ("targets: 3", "targets: 3 is not a list"),
        (
            "targets: [{target: a}, {wieght: 1}]",
            "unknown field `targets[1].wieght`; allowed: target, weight",
        ),
        ("targets: [{weight: .nan}]", "targets[0].weight: NaN is not a number"),
        ("targets: [{weight: true}]", "targets[0].weight: true is not a number"),
        ("mirror: all", 'mirror: "all" is not a mapping; allowed: target, percent'),
        ("description: 7", 'description: 7 is not a text; write "7"'),
        ("description: [a]", 'description: ["a"] is not a text'),
        ("tags: [a]", 'tags: ["a"] is not a mapping of texts to texts'),
        ("tags: {a: 1}", 'tags.a: 1 is not a text; write "1"'),
        (
            "retry_policy: {num_retries: 1.5}",
            "retry_policy.num_retries: 1.5 is not a whole number of 32 bits",
        ),
        (
            "circuit_limits: {max_requests: 3000000000}",
            "circuit_limits.max_requests: 3000000000 is not a whole number of 32 bits",
        ),
        (
            "create_time: 2030-01-31",
            'create_time: 2030-01-31 is not a time in quotes, for example "2030-01-31T12:00:00Z"',
        ),
    ],
)
def test_wrong_fields(line: str, told: str) -> None:
    """One line with document, path, what is there and what is allowed; a usage error."""
    with pytest.raises(UsageError) as refused:
        parse(f"name: e\n---\nname: e\n{line}\n", "f.yaml")
    assert as_lines(refused.value) == f"error: f.yaml, document 2: {told}"
    assert exit_code_of(refused.value) is ExitCode.USAGE


def test_several_wrong_fields_are_told_once_each() -> None:
    """A line for each."""
    with pytest.raises(UsageError) as refused:
        parse("{name: e, timeout: 2, wieght: 1}", "f")
    assert as_lines(refused.value).splitlines() == [
        "error: f, document 1: 2 fields are wrong",
        "  timeout: 2 is not a duration; write 2s",
        (
            "  unknown field `wieght`; allowed: name, description, targets, sticky_header, mirror,"
            " retry_policy, timeout, circuit_limits, tags, create_time, update_time, etag"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: e\ntargets: [", "f: no YAML: line 2, column 11: "),
        ("a: b: c", "f: no YAML: line 1, column 5: mapping values are not allowed here"),
        ("\x00", "f: no YAML: "),
        ("", "f: holds no endpoint"),
        ("- 1", "f, document 1: needs a mapping with `name: endpoints/…`"),
    ],
)
def test_what_is_no_endpoint(text: str, told: str) -> None:
    """Broken YAML is told in one line, with line and column."""
    with pytest.raises(UsageError) as refused:
        parse(text, "f")
    assert refused.value.message.startswith(told)
    assert "\n" not in refused.value.message
