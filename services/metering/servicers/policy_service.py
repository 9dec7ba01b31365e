"""`inferplane.metering.v1.PolicyService`: what the edge must know, as it changes."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from inferplane.metering.v1 import policy_service_pb2 as pb
from inferplane.metering.v1.policy_service_pb2_grpc import PolicyServiceServicer

from services.metering.domain.limits import Limits
from services.metering.domain.policy import FactKind, IssuerKeys, PublicKey, Revocation
from services.metering.domain.policy_table import PolicyChange
from services.metering.drivers.policy import Policy, PolicyNews
from services.metering.servicers.identity_messages import limits_message
from services.rpc.times import timestamp

_Context = grpc.aio.ServicerContext[Any, Any]

# A response is closed once it has this many: while one is made, nobody else is served.
RESPONSE_BYTES = 128 * 1024


class PolicyService(PolicyServiceServicer):
    """Carries news to readers, in responses of bounded size."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def WatchPolicy(
        self, request: pb.WatchPolicyRequest, context: _Context
    ) -> AsyncIterator[pb.WatchPolicyResponse]:
        async for news in self._policy.follow(request.after_revision):
            for response in responses(news):
                yield response


def responses(news: PolicyNews) -> Iterator[pb.WatchPolicyResponse]:
    """News in responses of bounded size; only the last one is `synced`: half of them are no consistent state."""
    response = pb.WatchPolicyResponse(revision=news.revision)
    size = 0
    for change in news.changes:
        if size >= RESPONSE_BYTES:
            yield response
            response, size = pb.WatchPolicyResponse(revision=news.revision), 0
        message = change_message(change)
        size += message.ByteSize()
        response.changes.append(message)
    response.synced = True
    yield response


def change_message(change: PolicyChange) -> pb.PolicyChange:
    """One change as a message; of a fact that went only what names it."""
    kind, name = change.key
    message = pb.PolicyChange(removed=change.fact is None)
    match kind:
        case FactKind.SIGNING_KEY:
            message.signing_key.kid = name
        case FactKind.ISSUER:
            message.issuer.issuer = name
        case FactKind.REVOCATION:
            message.revocation.name = name
        case FactKind.LIMITS:
            message.subject_limits.name = name
    _fill(message, change)
    return message


def _fill(message: pb.PolicyChange, change: PolicyChange) -> None:
    match change.fact:
        case PublicKey(jwk):
            message.signing_key.jwk = jwk
        case Revocation(expire_time):
            if expire_time is not None:
                message.revocation.expire_time.CopyFrom(timestamp(expire_time))
        case Limits():
            message.subject_limits.limits.CopyFrom(limits_message(change.fact))
        case IssuerKeys():
            issuer = message.issuer
            issuer.jwks = change.fact.jwks
            issuer.audiences.extend(change.fact.audiences)
            issuer.project_claim = change.fact.project_claim
            issuer.role_claim = change.fact.role_claim
            issuer.endpoints_claim = change.fact.endpoints_claim
        case None:
            pass
