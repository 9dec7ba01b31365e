"""Messages written as YAML in the proto's own field names; what is wrong is told by document and field."""

from itertools import islice
from typing import Any, TypeVar, cast

import yaml
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from services.cli.adapters.manifest_check import check
from services.cli.domain.exit_code import UsageError

M = TypeVar("M", bound=Message)

_MOST_CHARACTERS = 4 << 20  # what is longer was meant to be another argument
_MOST_WRONG = 20  # fields that are told at once


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key that comes twice is a mistake: of the two only the last would count."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                problem = f"{key.value[:40]} is there twice"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return node


def documents(text: str, source: str) -> list[Any]:
    """The documents of a text that aren't empty; UsageError if it is no YAML."""
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(
            f"{source}: {len(text)} characters; allowed: {_MOST_CHARACTERS}", reason="YAML_INVALID"
        )
    try:
        found = yaml.load_all(text, _Loader)  # a SafeLoader
        return [document for document in found if document is not None]
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: no YAML: {_problem(error)}", reason="YAML_INVALID") from error
    except RecursionError as error:
        raise UsageError(f"{source}: nested too deeply", reason="YAML_INVALID") from error
    except ValueError as error:  # what looks like a date or number, and is none
        raise UsageError(f"{source}: no YAML: {error}", reason="YAML_INVALID") from error


def _problem(error: yaml.YAMLError) -> str:
    """What the parser says, in one line."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"


def read(document: Any, message: M, where: str) -> M:
    """`message`, filled with what the document says; UsageError names every wrong field by its path."""
    wrong = list(islice(check(document, cast(Descriptor, message.DESCRIPTOR)), _MOST_WRONG + 1))
    if wrong:
        more = "; and more" if len(wrong) > _MOST_WRONG else ""
        wrong = wrong[:_MOST_WRONG]
        text = "; ".join(violation.description for violation in wrong) + more
        raise UsageError(f"{where}: {text}", reason="FIELD_INVALID", violations=wrong)
    try:
        return json_format.ParseDict(document, message)
    except json_format.ParseError as error:
        text = " ".join(str(error).split())
        raise UsageError(f"{where}: {text}", reason="FIELD_INVALID") from error
