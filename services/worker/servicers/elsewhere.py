"""What a worker says of methods that its services have but another process answers."""

from services.rpc.errors import UnimplementedError


def of_registry(method: str) -> UnimplementedError:
    """The registry answers this method; the edge knows."""
    return UnimplementedError(
        f"{method}: a worker loads what the registry places; call it at the edge, where the"
        " registry answers",
        reason="NOT_A_WORKERS_METHOD",
        metadata={"method": method},
    )
