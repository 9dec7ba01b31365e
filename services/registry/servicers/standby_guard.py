"""The guard of a registry that may stand by: refuses calls until this process serves."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

from typing import Any

import grpc

from services.registry.domain.standby import standby_error
from services.rpc.interceptor import Guard

_ALWAYS = ("/grpc.health.", "/grpc.reflection.")  # what may be asked of one that stands by


class StandbyGuard:
    """Looks at each call first."""

    def __init__(self, guard: Guard | None) -> None:
        """Begin standing by.

        Args:
            guard: looks at the calls before this one does.
        """
        self._guard = guard
        self.serving = False

    def __call__(self, context: grpc.aio.ServicerContext[Any, Any], method: str) -> None:
        """Raise what refuses the call."""
        if self._guard is not None:
            self._guard(context, method)
        if not self.serving and not method.startswith(_ALWAYS):
            raise standby_error()
