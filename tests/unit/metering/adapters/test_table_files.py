"""Tables as files: what people's tools make of them."""

import csv
import io

import pytest

from services.metering.adapters.table_files import open_table
from services.metering.domain.export import Format, Holds, TableColumn

_COLUMNS = [TableColumn("note", Holds.TEXT), TableColumn("cost", Holds.DECIMAL)]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_of_a_caller_is_a_formula(text: str) -> None:
    """An apostrophe stands before what a spreadsheet would compute."""
    lines = list(csv.reader(io.StringIO(open_csv([(text, 0)]), newline="")))
    assert lines[1][0] == f"'{text}"


@pytest.mark.parametrize("text", ["a=b", "key, with comma", 'say "no"', "", "München"])
def test_other_text_is_as_it_was(text: str) -> None:
    """Whatever has to be quoted in it."""
    lines = list(csv.reader(io.StringIO(open_csv([(text, 0)]), newline="")))
    assert lines[1][0] == text


def test_amounts_below_zero_stay_numbers() -> None:
    """A credit can be summed."""
    lines = list(csv.reader(io.StringIO(open_csv([("credit", -1_500_000_000_000)]), newline="")))
    assert lines[1] == ["credit", "-1.5"]


def open_csv(lines: list[tuple[str, int]]) -> str:
    table = open_table(_COLUMNS, Format.CSV)
    return (table.write(lines) + table.end()).decode()
