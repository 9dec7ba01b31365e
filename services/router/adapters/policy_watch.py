"""Follows metering's policy, resuming after the last revision it has read."""

import grpc
from inferplane.metering.v1 import policy_service_pb2 as pb
from inferplane.metering.v1.policy_service_pb2_grpc import PolicyServiceStub

from services.router.adapters.watch import Progress, keep_up
from services.router.domain.policy import (
    Issuer,
    IssuerChange,
    Limits,
    LimitsChange,
    PolicyChange,
    PolicyUpdate,
    RevocationChange,
    SigningKey,
    SigningKeyChange,
)
from services.router.ports.feeds import PolicySink


class PolicyWatch:
    """Feeds a sink from `PolicyService.WatchPolicy`."""

    def __init__(self, channel: grpc.aio.Channel, sink: PolicySink) -> None:
        self._stub = PolicyServiceStub(channel)
        self._sink = sink
        self._revision = 0

    async def run(self) -> None:
        """Follow for ever."""
        await keep_up("metering", self._follow, self._sink.lose_metering)

    async def _follow(self, progress: Progress) -> None:
        request = pb.WatchPolicyRequest(after_revision=self._revision)
        restart = self._revision == 0
        try:
            async for message in self._stub.WatchPolicy(request):
                progress.heard = True
                changes = tuple(found for c in message.changes if (found := _change(c)) is not None)
                self._sink.hear_policy(
                    PolicyUpdate(changes=changes, synced=message.synced, restart=restart)
                )
                restart = False
                if message.synced:
                    self._revision = message.revision
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.OUT_OF_RANGE or restart:
                raise
            # The revision is no longer kept, or the store is another one: all from the beginning.
            self._revision = 0
            progress.heard = True


def _change(message: pb.PolicyChange) -> PolicyChange | None:
    """The change; None: a kind of fact that a newer metering knows and this router does not."""
    gone = message.removed
    match message.WhichOneof("fact"):
        case "signing_key":
            key = message.signing_key
            return SigningKeyChange(key.kid, None if gone else SigningKey(key.kid, key.jwk))
        case "revocation":
            return RevocationChange(message.revocation.name, revoked=not gone)
        case "subject_limits":
            of = message.subject_limits
            return LimitsChange(of.name, None if gone else _limits(of))
        case "issuer":
            issuer = message.issuer
            return IssuerChange(issuer.issuer, None if gone else _issuer(issuer))
    return None


def _limits(message: pb.SubjectLimits) -> Limits:
    limits = message.limits
    return Limits(
        requests_per_second=limits.requests_per_second,
        burst=limits.burst,
        concurrent_requests=limits.concurrent_requests,
        shadow=limits.shadow,
    )


def _issuer(message: pb.Issuer) -> Issuer:
    return Issuer(
        issuer=message.issuer,
        jwks=message.jwks,
        audiences=tuple(message.audiences),
        project_claim=message.project_claim,
        role_claim=message.role_claim,
        endpoints_claim=message.endpoints_claim,
    )
