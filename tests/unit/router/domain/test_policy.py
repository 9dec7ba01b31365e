"""The picture of who may call: changes, gaps, beginnings anew."""

import pytest

from services.router.domain.policy import (
    OTHERS,
    Issuer,
    IssuerChange,
    Limits,
    LimitsChange,
    PolicyBook,
    PolicyChange,
    PolicyUpdate,
    RevocationChange,
    SigningKey,
    SigningKeyChange,
    shard_of,
)

KEY = SigningKey("k1", "{}")
ISSUER = Issuer(
    issuer="https://issuer.example",
    jwks="{}",
    audiences=("inferplane",),
    project_claim="project",
    role_claim="role",
    endpoints_claim="endpoints",
)


def book(*changes: PolicyChange) -> PolicyBook:
    made = PolicyBook()
    made.apply(PolicyUpdate(changes=changes, synced=True, restart=True))
    return made


def test_nothing_is_known_before_all_was_said() -> None:
    """Parts of the initial state are no policy."""
    made = PolicyBook()
    first = PolicyUpdate(changes=(SigningKeyChange("k1", KEY),), synced=False, restart=True)
    assert not made.apply(first)
    assert made.current is None
    assert made.apply(PolicyUpdate(changes=(), synced=True))
    assert made.current is not None
    assert made.current.signing_keys == (KEY,)


def test_facts_come_and_go() -> None:
    """Each fact is there until it is said to hold no longer; saying so twice is harmless."""
    made = book(
        SigningKeyChange("k1", KEY),
        IssuerChange(ISSUER.issuer, ISSUER),
        RevocationChange("projects/a/keys/one", revoked=True),
        RevocationChange("projects/b", revoked=True),
        LimitsChange("projects/a", Limits(requests_per_second=2)),
    )
    assert made.current is not None
    assert made.current.issuers == (ISSUER,)
    assert made.current.revoked_keys == {OTHERS: ("one",)}
    assert made.current.disabled_projects == ("b",)
    assert made.current.limits == {OTHERS: (("projects/a", Limits(requests_per_second=2)),)}
    gone = PolicyUpdate(
        changes=(
            SigningKeyChange("k1", None),
            IssuerChange(ISSUER.issuer, None),
            RevocationChange("projects/a/keys/one", revoked=False),
            RevocationChange("projects/b", revoked=False),
            LimitsChange("projects/a", None),
        ),
        synced=True,
    )
    for _ in range(2):
        assert made.apply(gone)
        assert made.current == book().current


def test_a_new_beginning_replaces_all_at_once() -> None:
    """While everything is said again the old picture stays; then what was not said again is gone."""
    made = book(RevocationChange("projects/a/keys/one", revoked=True))
    old = made.current
    again = RevocationChange("projects/a/keys/two", revoked=True)
    assert not made.apply(PolicyUpdate(changes=(again,), synced=False, restart=True))
    assert made.current == old
    made.apply(PolicyUpdate(changes=(), synced=True))
    assert made.current is not None
    assert made.current.revoked_keys == {OTHERS: ("two",)}


def test_a_beginning_that_broke_off_leaves_nothing_behind() -> None:
    """The stream ended in the middle of the initial state; the next one begins anew."""
    made = PolicyBook()
    half = (RevocationChange("projects/a/keys/one", revoked=True),)
    made.apply(PolicyUpdate(changes=half, synced=False, restart=True))
    made.apply(PolicyUpdate(changes=(), synced=True, restart=True))
    assert made.current is not None
    assert made.current.revoked_keys == {}


def test_what_did_not_change_is_the_same_object() -> None:
    """Of a large policy only the part that changed is made anew by those who read it."""
    made = book(SigningKeyChange("k1", KEY), LimitsChange("projects/a", Limits()))
    before = made.current
    change = RevocationChange("projects/a/keys/one", revoked=True)
    made.apply(PolicyUpdate(changes=(change,), synced=True))
    after = made.current
    assert before is not None
    assert after is not None
    assert after.revoked_keys == {OTHERS: ("one",)}
    assert after.limits is before.limits
    assert after.signing_keys is before.signing_keys


def test_of_many_keys_only_a_shard_changes() -> None:
    """Keys that begin otherwise, and limits of them, are the very same objects as before."""
    known = [
        change
        for digit in "0123456789abcdef"
        for name in [f"projects/p/keys/{digit}1"]
        for change in (RevocationChange(name, revoked=True), LimitsChange(name, Limits()))
    ]
    made = book(*known)
    before = made.current
    changes = (
        RevocationChange("projects/p/keys/70", revoked=True),
        LimitsChange("projects/p/keys/80", Limits()),
    )
    made.apply(PolicyUpdate(changes=changes, synced=True))
    after = made.current
    assert before is not None
    assert after is not None
    assert after.revoked_keys["7"] == ("70", "71")
    assert [s for s, keys in after.revoked_keys.items() if keys is not before.revoked_keys[s]] == [
        "7"
    ]
    assert [s for s, names in after.limits.items() if names is not before.limits[s]] == ["8"]


@pytest.mark.parametrize(
    ("name", "shard"),
    [
        ("projects/p/keys/0123", "0"),
        ("projects/p/keys/f", "f"),
        ("projects/p/keys/g0", OTHERS),
        ("projects/p/keys/A0", OTHERS),
        ("projects/p/keys/", OTHERS),
        ("projects/a", OTHERS),
    ],
)
def test_shards(name: str, shard: str) -> None:
    """Keys go by the first of their digits; projects, and ids of another kind, are among the others."""
    assert shard_of(name) == shard


def test_the_picture_is_never_of_half_a_change() -> None:
    """A picture that nobody asked for before the first half came is the one before it."""
    made = book(RevocationChange("projects/p/keys/a", revoked=True))
    half = PolicyUpdate(
        changes=(RevocationChange("projects/p/keys/b", revoked=True),), synced=False
    )
    assert not made.apply(half)
    before = made.current
    assert made.apply(PolicyUpdate(changes=(), synced=True))
    after = made.current
    assert before is not None
    assert after is not None
    assert (before.revoked_keys, after.revoked_keys) == ({"a": ("a",)}, {"a": ("a",), "b": ("b",)})
