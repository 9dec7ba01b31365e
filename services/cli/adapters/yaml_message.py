"""Messages written as YAML in the proto's own field names; what is wrong is told by document and field."""

from typing import Any, TypeVar, cast

import yaml
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from services.cli.adapters.manifest_check import check
from services.cli.domain.exit_code import UsageError

M = TypeVar("M", bound=Message)


def documents(text: str, source: str) -> list[Any]:
    """The documents of a text that aren't empty; UsageError if it is no YAML."""
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: no YAML: {_problem(error)}", reason="YAML_INVALID") from error


def _problem(error: yaml.YAMLError) -> str:
    """What the parser says, in one line."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"


def read(document: Any, message: M, where: str) -> M:
    """`message`, filled with what the document says; UsageError names every wrong field by its path."""
    wrong = list(check(document, cast(Descriptor, message.DESCRIPTOR)))
    if wrong:
        text = "; ".join(violation.description for violation in wrong)
        raise UsageError(f"{where}: {text}", reason="FIELD_INVALID", violations=wrong)
    try:
        return json_format.ParseDict(document, message)
    except json_format.ParseError as error:
        text = " ".join(str(error).split())
        raise UsageError(f"{where}: {text}", reason="FIELD_INVALID") from error
