"""An edge that asks for keys, what metering would tell it, and calls with keys."""

from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from services.router.domain.policy import PolicyChange, PolicyUpdate, SigningKey, SigningKeyChange
from services.router.domain.topology import Endpoint, Target
from services.rpc.interceptor import DETAILS_KEY
from services.rpc.names import EndpointName
from tests.integration.router.edge import DIGITS, V1, V2, EdgeUnderTest
from tests.metering_keys import KeyMint

OTHER = EndpointName("other")
REVOKED = "UNAUTHENTICATED API_KEY_REVOKED"


def signing(mint: KeyMint) -> SigningKeyChange:
    """The fact that this mint signs."""
    return SigningKeyChange(mint.kid, SigningKey(mint.kid, mint.jwk))


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of a gRPC call."""
    return (("authorization", f"Bearer {token}"),)


def head(token: str) -> dict[str, str]:
    """Headers of an HTTP call."""
    return dict(bearer(token))


async def start(folder: Path, mint: KeyMint | None, **settings: Any) -> EdgeUnderTest:
    """An edge that asks for keys, with endpoints `digits` and `other`; without a mint its policy is unknown."""
    edge = await EdgeUnderTest.start(folder, asks_for_keys=True, **settings)
    worker = await edge.add_worker("a", V1, V2)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_endpoint(Endpoint(name=OTHER, targets=(Target(V2, 1),)))
    edge.set_workers({worker.address: {V1, V2}})
    if mint is not None:
        await tell(edge, signing(mint), restart=True)
    return edge


async def tell(edge: EdgeUnderTest, *changes: PolicyChange, restart: bool = False) -> None:
    """What metering says, and Envoy has taken."""
    edge.publisher.hear_policy(PolicyUpdate(changes=changes, synced=True, restart=restart))
    await edge.in_sync()


async def answer(edge: EdgeUnderTest, token: str, name: str = "digits", **how: Any) -> str:
    """OK, or the code and reason of a refusal."""
    try:
        await edge.infer(name, metadata=bearer(token), **how)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name} {reason(error)}"
    return "OK"


def reason(error: grpc.aio.AioRpcError) -> str:
    """ErrorInfo's reason; empty: there is none."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            status = status_pb2.Status.FromString(value)
            info = error_details_pb2.ErrorInfo()
            assert status.code == error.code().value[0]
            assert status.details[0].Unpack(info)
            assert info.domain == "inferplane"
            return str(info.reason)
    return ""
