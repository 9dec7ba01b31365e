"""All that REST and OpenAI's clients may call, as their protos say."""

import re
from collections.abc import Iterator

from google.api import annotations_pb2
from google.protobuf.descriptor import MethodDescriptor
from inferplane.oip.v1 import rest_service_pb2
from inferplane.openai.v1 import openai_service_pb2

from services.router.resources import access, methods
from services.router.resources.access import Access


def rest_calls() -> Iterator[tuple[str, str, Access]]:
    """Verb and path of all that REST and OpenAI's clients may call, and who may."""
    for file in (rest_service_pb2.DESCRIPTOR, openai_service_pb2.DESCRIPTOR):
        for service in file.services_by_name.values():
            for method in service.methods:
                for verb, path in bindings(method):
                    who = access.table()[methods.path(f"{service.full_name}.{method.name}")]
                    yield verb, path, who


def bindings(method: MethodDescriptor) -> Iterator[tuple[str, str]]:
    first = method.GetOptions().Extensions[annotations_pb2.http]
    for rule in (first, *first.additional_bindings):
        verb = rule.WhichOneof("pattern")
        yield verb.upper(), re.sub(r"\{\w+\}", "digits", getattr(rule, verb))
