"""Failures to reach a mesh, in the same words for gRPC and for REST."""

from services.rpc.errors import UnavailableError

NOT_LISTENING = "NOT_LISTENING"
NO_EDGE = "NO_EDGE"
NOT_TRUSTED = "NOT_TRUSTED"
_OF_ROLE = "may not call this method"  # how the edge ends a refusal for the key's role


def not_listening(address: str) -> UnavailableError:
    """The connection was refused."""
    return UnavailableError(
        f"nothing listens at {address}; start it with: inferplane up",
        reason=NOT_LISTENING,
        metadata={"address": address},
    )


def no_edge(address: str) -> UnavailableError:
    """Something answers, and not as an edge does."""
    return UnavailableError(
        f"what answers at {address} is no inferplane edge;"
        " say where yours is with --address or INFERPLANE_ADDRESS",
        reason=NO_EDGE,
        metadata={"address": address},
    )


def closes(address: str, why: str) -> UnavailableError:
    """Connections end before anything was said, as they do where TLS is spoken and we spoke plain."""
    return UnavailableError(
        f"can't connect to {address}: {why}; if it speaks TLS: --address https://{address}",
        reason=NO_EDGE,
        metadata={"address": address},
    )


def not_trusted(address: str, why: str) -> UnavailableError:
    """No TLS came about."""
    return UnavailableError(
        f"{address}: {why}\nIf its certificate is of your own authority, name that with --ca or INFERPLANE_CA; if it"
        " is for another name or IP, call that, or issue one for this too; if it asks for one of yours, name its"
        " folder with INFERPLANE_CLIENT_CERTIFICATE; if it speaks no TLS, leave out https://",
        reason=NOT_TRUSTED,
        metadata={"address": address},
    )


def about_key(text: str, origin: str | None) -> str:
    """A refusal by the edge, with which key was sent and what to do."""
    if origin is None:
        return (
            f"{text}\nNo API key was sent. Try: --api-key or INFERPLANE_API_KEY; an admin makes keys with"
            " inferplane keys create, the first one lies in admin.key of the mesh's state directory"
        )
    sent = f"The API key that was sent is that of {origin}"
    if _OF_ROLE in text:
        sent += (
            "; a viewer's reads state and usage, a deployer's changes what is served, an admin's all:"
            " inferplane keys create --role"
        )
    return f"{text}\n{sent}"
