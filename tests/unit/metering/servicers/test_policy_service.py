"""Facts as messages."""

from datetime import timedelta

from inferplane.metering.v1 import limits_pb2
from inferplane.metering.v1 import policy_service_pb2 as pb

from services.metering.domain.policy import FactKind, IssuerKeys, PublicKey, Revocation
from services.metering.domain.policy_table import PolicyChange
from services.metering.drivers.policy import PolicyNews
from services.metering.servicers.policy_service import RESPONSE_BYTES, change_message, responses
from services.rpc.times import timestamp
from tests.unit.metering.identities import NOW, SLOW

KEYS = IssuerKeys("{}", ("a", "b"), "p", "r", "e")


def test_every_kind_of_fact() -> None:
    """What it says and of whom."""
    moment = NOW + timedelta(days=1)
    assert change_message(
        PolicyChange((FactKind.SIGNING_KEY, "k"), PublicKey("{}"))
    ) == pb.PolicyChange(signing_key=pb.SigningKey(kid="k", jwk="{}"))
    assert change_message(
        PolicyChange((FactKind.REVOCATION, "n"), Revocation(moment))
    ) == pb.PolicyChange(revocation=pb.Revocation(name="n", expire_time=timestamp(moment)))
    assert change_message(
        PolicyChange((FactKind.REVOCATION, "n"), Revocation(None))
    ) == pb.PolicyChange(revocation=pb.Revocation(name="n"))
    assert change_message(PolicyChange((FactKind.LIMITS, "n"), SLOW)) == pb.PolicyChange(
        subject_limits=pb.SubjectLimits(name="n", limits=limits_pb2.Limits(requests_per_second=1.0))
    )
    assert change_message(PolicyChange((FactKind.ISSUER, "i"), KEYS)) == pb.PolicyChange(
        issuer=pb.Issuer(
            issuer="i",
            jwks="{}",
            audiences=["a", "b"],
            project_claim="p",
            role_claim="r",
            endpoints_claim="e",
        )
    )


def test_what_went_is_only_named() -> None:
    """By the field that says which fact it was."""
    messages = [change_message(PolicyChange((kind, "n"), None)) for kind in FactKind]
    assert messages == [
        pb.PolicyChange(removed=True, signing_key=pb.SigningKey(kid="n")),
        pb.PolicyChange(removed=True, issuer=pb.Issuer(issuer="n")),
        pb.PolicyChange(removed=True, revocation=pb.Revocation(name="n")),
        pb.PolicyChange(removed=True, subject_limits=pb.SubjectLimits(name="n")),
    ]


def test_a_hundred_thousand_facts_come_in_responses_of_bounded_size() -> None:
    """Only the last is synced; together they are all of it; one response is made at a time."""
    changes = [
        PolicyChange((FactKind.LIMITS, f"projects/p/keys/{number:032x}"), SLOW)
        for number in range(100_000)
    ]
    seen, synced = 0, []
    for response in responses(PolicyNews(7, changes)):
        assert response.ByteSize() < 1.1 * RESPONSE_BYTES
        assert response.revision == 7
        seen += len(response.changes)
        synced.append(response.synced)
    assert seen == 100_000
    assert synced == [False] * (len(synced) - 1) + [True]


def test_no_news_are_still_an_answer() -> None:
    """A reader that missed nothing hears that."""
    assert list(responses(PolicyNews(7, []))) == [pb.WatchPolicyResponse(revision=7, synced=True)]
