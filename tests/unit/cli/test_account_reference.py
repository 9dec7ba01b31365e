"""Projects, keys, budgets and dimensions as they are typed."""

from collections.abc import Callable

import pytest

from services.cli.adapters.alerts import parse_alert
from services.cli.domain.account_reference import (
    parse_key,
    parse_parent,
    parse_project,
    parse_subject,
    short_key,
)
from services.cli.domain.budget_reference import parse_budget
from services.cli.domain.exit_code import UsageError
from services.cli.domain.usage_dimension import parse_dimensions
from services.rpc.errors import InferplaneError


@pytest.mark.parametrize(
    ("parse", "text", "name"),
    [
        (parse_project, "atlas", "projects/atlas"),
        (parse_project, "projects/atlas", "projects/atlas"),
        (parse_key, "4f", "projects/default/keys/4f"),
        (parse_key, "atlas/4f", "projects/atlas/keys/4f"),
        (parse_key, "projects/atlas/keys/4f", "projects/atlas/keys/4f"),
        (parse_subject, "atlas", "projects/atlas"),
        (parse_subject, "projects/atlas", "projects/atlas"),
        (parse_subject, "atlas/4f", "projects/atlas/keys/4f"),
        (parse_subject, "projects/atlas/keys/4f", "projects/atlas/keys/4f"),
        (parse_parent, "-", "projects/-"),
        (parse_parent, "atlas", "projects/atlas"),
        (parse_budget, "daily", "projects/default/budgets/daily"),
        (parse_budget, "atlas/daily", "projects/atlas/budgets/daily"),
        (parse_budget, "projects/atlas/budgets/daily", "projects/atlas/budgets/daily"),
        (parse_alert, "atlas/spent", "projects/atlas/spendingAlerts/spent"),
        (parse_alert, "spent", "projects/default/spendingAlerts/spent"),
    ],
)
def test_names(parse: Callable[[str], object], text: str, name: str) -> None:
    """Short forms and whole names mean the same."""
    assert str(parse(text)) == name


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_project, "Atlas"),
        (parse_project, ""),
        (parse_key, "a/b/c"),
        (parse_key, "a/"),
        (parse_key, "projects/a/budgets/b"),
        (parse_budget, "a/b/c"),
        (parse_alert, "a/b/c"),
    ],
)
def test_what_names_nothing(parse: Callable[[str], object], text: str) -> None:
    """Is refused before anything is asked of a server."""
    with pytest.raises(InferplaneError):
        parse(text)


def test_keys_are_shown_as_they_are_typed() -> None:
    """So what a table shows can be typed again."""
    assert short_key("projects/atlas/keys/4f") == "atlas/4f"
    assert parse_key(short_key("projects/atlas/keys/4f")).key == "4f"


def test_dimensions() -> None:
    """One or two, a tag with its key, which is then the column's title."""
    asked = parse_dimensions(["day", "tag:team"])
    assert (asked.by, asked.tag, asked.titles) == (("day", "tag"), "team", ("day", "team"))


@pytest.mark.parametrize(
    "typed", [["colour"], ["tag"], ["tag:"], ["day:x"], ["day", "day"], ["day", "key", "model"]]
)
def test_what_is_no_dimension(typed: list[str]) -> None:
    """Is refused with those that are."""
    with pytest.raises(UsageError, match="--by"):
        parse_dimensions(typed)
