"""The catalog: changes, initial states, restarts."""

from services.router.domain.catalog import (
    AliasChange,
    Catalog,
    CatalogUpdate,
    EndpointChange,
    VersionChange,
)
from services.router.domain.topology import Endpoint, Target
from services.rpc.names import AliasName, EndpointName, VersionName

V1, V2 = VersionName("m", "1"), VersionName("m", "2")
E1 = Endpoint(name=EndpointName("e"), targets=(Target(V1, 1),))
ALIAS = AliasName("m", "champion")


def test_initial_state_counts_once_it_is_complete() -> None:
    """Parts of the initial state change nothing; the last part makes all of it visible."""
    catalog = Catalog()
    first = CatalogUpdate(changes=(EndpointChange(E1.name, E1),), synced=False, restart=True)
    assert not catalog.apply(first)
    assert not catalog.is_synced
    assert catalog.apply(CatalogUpdate(changes=(AliasChange(ALIAS, V1),), synced=True))
    assert catalog.is_synced
    assert list(catalog.endpoints) == [E1]
    assert catalog.aliases == {ALIAS: V1}


def test_restart_keeps_the_old_state_until_the_new_is_complete() -> None:
    """While all is read again the old state stays, then what the new one doesn't have is gone."""
    catalog = Catalog()
    catalog.apply(CatalogUpdate(changes=(EndpointChange(E1.name, E1),), synced=True, restart=True))
    catalog.apply(CatalogUpdate(changes=(), synced=False, restart=True))
    assert list(catalog.endpoints) == [E1]
    catalog.apply(CatalogUpdate(changes=(), synced=True))
    assert list(catalog.endpoints) == []


def test_changes_and_deletions() -> None:
    """Later changes replace, deletions remove, also of what isn't there."""
    catalog = Catalog()
    catalog.apply(CatalogUpdate(changes=(AliasChange(ALIAS, V1),), synced=True, restart=True))
    catalog.apply(CatalogUpdate(changes=(AliasChange(ALIAS, V2),), synced=True))
    assert catalog.aliases == {ALIAS: V2}
    gone = (AliasChange(ALIAS, None), EndpointChange(E1.name, None))
    catalog.apply(CatalogUpdate(changes=gone, synced=True))
    assert catalog.aliases == {}


def test_versions_with_state_are_known_until_they_are_gone() -> None:
    """A deleted version keeps no state, and a new initial state replaces what was known."""
    catalog = Catalog()
    both = (VersionChange(V1, True), VersionChange(V2, True))
    catalog.apply(CatalogUpdate(changes=both, synced=True, restart=True))
    catalog.apply(CatalogUpdate(changes=(VersionChange(V1, False),), synced=True))
    assert catalog.stateful == {V2}
    catalog.apply(CatalogUpdate(changes=(VersionChange(V1, True),), synced=True, restart=True))
    assert catalog.stateful == {V1}
