"""What a cluster's services are given before they start."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from services.cli.setup.holders import CONSUL_ADMIN, HOLDERS, METERING_PASSWORD
from services.cli.setup.outfit import Outfit
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY, TlsFiles

_NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for each, as volumes are mounted."""
    for name in ("authority", *(holder.name for holder in HOLDERS)):
        (tmp_path / name).mkdir(mode=0o700)
    return tmp_path


def certificate(root: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((root / name / "tls" / CERTIFICATE).read_bytes())


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_each_has_a_certificate_of_its_kind(root: Path) -> None:
    """Key, certificate and authority belong together, and the certificate says what its holder is."""
    Outfit(root, "master").make(HOLDERS, datetime.now(UTC))
    for holder in HOLDERS:
        TlsFiles(root / holder.name / "tls")
        names = certificate(root, holder.name).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        said = names.value.get_values_for_type(x509.UniformResourceIdentifier)
        assert said == [holder.kind.uri]


def test_who_shares_a_secret_has_the_same(root: Path) -> None:
    """The password by which metering enters Postgres is the one that Postgres is told; others differ."""
    Outfit(root, "master").make(HOLDERS, _NOW)
    told = (root / "postgres" / "secrets" / METERING_PASSWORD).read_bytes()
    assert (root / "metering" / "secrets" / METERING_PASSWORD).read_bytes() == told
    distinct = {path.read_bytes() for path in (root / "authority" / "secrets").iterdir()}
    assert len(distinct) == len(list((root / "authority" / "secrets").iterdir())) == 6


def test_nothing_is_open_to_others(root: Path) -> None:
    """No file of a secret may be read by anybody but its owner."""
    Outfit(root, "master").make(HOLDERS, _NOW)
    assert [
        path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o077
    ] == []


def test_again_changes_nothing(root: Path) -> None:
    """A cluster that is started again has the certificates and secrets that it had."""
    Outfit(root, "master").make(HOLDERS, _NOW)
    before = contents(root)
    assert Outfit(root, "master").make(HOLDERS, _NOW + timedelta(days=1)) == []
    assert contents(root) == before


def test_what_ends_soon_is_renewed(root: Path) -> None:
    """Within thirty days of its end a certificate is issued again; secrets stay."""
    Outfit(root, "master").make(HOLDERS, _NOW)
    told = Outfit(root, "master").make(HOLDERS, _NOW + timedelta(days=61))
    assert sorted(told) == sorted(f"certificate renewed: {holder.name}" for holder in HOLDERS)
    assert certificate(root, "edge").not_valid_after_utc == _NOW + timedelta(days=151)


def test_a_lost_volume_is_filled_again(root: Path) -> None:
    """What a service lost comes again: a new certificate, the same secrets."""
    outfit = Outfit(root, "master")
    outfit.make(HOLDERS, _NOW)
    secret = root / "metering" / "secrets" / METERING_PASSWORD
    before = secret.read_bytes()
    for path in sorted((root / "metering").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert outfit.make(HOLDERS, _NOW) == ["certificate issued: metering"]
    assert secret.read_bytes() == before


def test_a_lost_authority_issues_all_anew(root: Path) -> None:
    """Who has a certificate of the lost one gets another: all trust each other, and later ends are renewed."""
    outfit = Outfit(root, "master")
    outfit.make(HOLDERS, _NOW)
    shutil.rmtree(root / "authority")
    (root / "authority").mkdir(mode=0o700)
    told = outfit.make(HOLDERS, _NOW)
    assert told == ["authority made", *(f"certificate issued: {one.name}" for one in HOLDERS)]
    assert len({(root / one.name / "tls" / AUTHORITIES).read_bytes() for one in HOLDERS}) == 1


@pytest.mark.parametrize("file", [CERTIFICATE, KEY])
@pytest.mark.parametrize("damage", [Path.unlink, Path.touch])
def test_a_certificate_that_is_not_whole_is_issued_anew(
    root: Path, file: str, damage: Callable[[Path], None]
) -> None:
    """Lost, or empty."""
    outfit = Outfit(root, "master")
    outfit.make(HOLDERS, _NOW)
    place = (root / "edge" / "tls" / file).resolve()
    place.unlink()
    place.touch()
    damage(place)
    assert outfit.make(HOLDERS, _NOW) == ["certificate issued: edge"]


@pytest.mark.parametrize("key", ["master", "initial_management"])
def test_consul_is_told_its_token_by_the_name_that_it_knows(root: Path, key: str) -> None:
    """The part of Consul's configuration that is secret has the token of whoever may do all."""
    Outfit(root, key).make(HOLDERS, _NOW)
    folder = root / "consul" / "secrets"
    token = (folder / CONSUL_ADMIN).read_text()
    tokens = json.loads((folder / "acl.json").read_text())["acl"]["tokens"]
    assert tokens == {key: token, "agent": token}
