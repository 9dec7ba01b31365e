"""Our module in Envoy that reads endpoint and version from a call's first message, and what it is told."""

from typing import Any

from envoy.extensions.filters.http.dynamic_modules.v3.dynamic_modules_pb2 import (
    DynamicModuleFilter,
)
from google.protobuf.wrappers_pb2 import StringValue
from inference import open_inference_pb2
from inferplane.generation.v1 import generation_service_pb2
from inferplane.oip.v1 import rest_service_pb2

from services.router.resources import edge, methods, wire

NAME = "inferplane_edge"  # Envoy looks for lib{NAME}.so in the folder that ENVOY_DYNAMIC_MODULES_SEARCH_PATH names

_SERVICES = {
    **open_inference_pb2.DESCRIPTOR.services_by_name,
    **rest_service_pb2.DESCRIPTOR.services_by_name,
    **generation_service_pb2.DESCRIPTOR.services_by_name,
}


def filter_() -> dict[str, Any]:
    """The filter; its settings are those of the filters that it makes unnecessary."""
    told = DynamicModuleFilter(
        dynamic_module_config={"name": NAME, "do_not_close": True},
        filter_name="endpoint",
        filter_config=wire.packed(StringValue(value="\n".join(_lines()))),
    )
    return wire.extension("envoy.filters.http.dynamic_modules", told)


def _lines() -> list[str]:
    """Paths with the numbers of their fields, then the keys of the filter state."""
    by_full_name = {service.full_name: service for service in _SERVICES.values()}
    lines = []
    for method, names in sorted(methods.OF_ENDPOINT.items()):
        service, _, name = method.rpartition(".")
        fields = by_full_name[service].methods_by_name[name].input_type.fields_by_name
        numbers = " ".join(str(fields[field].number) for field in names)
        lines.append(f"{methods.path(method)} {numbers}")
    return [*lines, edge.ENDPOINT_STATE, edge.VERSION_STATE, edge.ROUTE_STATE]
