"""An authority of one's own: what it issues, how keys follow each other, and who can read what."""

import datetime as dt
import json
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from services.cli.adapters import certificate_folder, envoy_secrets
from services.cli.adapters.ca import SOON, CertificateAuthority
from services.cli.adapters.certificate_watch import ending_certificates
from services.cli.adapters.certificates import Subject, subject_of
from services.cli.commands.entry import run
from services.rpc.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, CURRENT, KEY

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
WORKER = Subject(name="w", kind=PeerKind.WORKER, addresses=("127.0.0.1",))


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    """With one key."""
    authority = CertificateAuthority(tmp_path / "ca")
    authority.begin(3650, None, NOW)
    return authority


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())


def holds(folder: Path, trusted: bytes, name: str, when: dt.datetime = NOW) -> bool:
    """Whether a server with the folder's certificate is believed by who trusts these authorities."""
    store = Store(x509.load_pem_x509_certificates(trusted))
    verifier = PolicyBuilder().store(store).time(when).build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(certificate(folder), [])
    except VerificationError:
        return False
    return True


def test_a_certificate_says_what_its_holder_is(authority: CertificateAuthority) -> None:
    """URI and DNS name of its kind, and what was asked for; clients' can be no server's."""
    subject = subject_of("edge", PeerKind.EDGE, ["api.example.com"], ["192.0.2.1", "::1"])
    folder = Path(authority.issue(subject, 90, None, NOW).folder)
    names = certificate(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == ["inferplane://edge"]
    dns = names.value.get_values_for_type(x509.DNSName)
    assert dns == ["edge.inferplane.internal", "api.example.com"]
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert list(map(str, addresses)) == ["192.0.2.1", "::1"]
    client = subject_of("me", PeerKind.CLIENT, [], [])
    uses = certificate(Path(authority.issue(client, 90, None, NOW).folder))
    usage = uses.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_what_is_issued_verifies_until_it_ends(authority: CertificateAuthority) -> None:
    """For its kind's name and not for another's, and no longer than its authority lives."""
    folder = Path(authority.issue(WORKER, 30, None, NOW).folder)
    trusted = (folder / AUTHORITIES).read_bytes()
    assert holds(folder, trusted, "worker.inferplane.internal")
    assert not holds(folder, trusted, "service.inferplane.internal")
    assert not holds(folder, trusted, "worker.inferplane.internal", NOW + dt.timedelta(days=31))
    long = authority.issue(WORKER, 99_999, None, NOW)
    assert long.end == authority.state().signers[0].end


@pytest.mark.parametrize(
    ("name", "dns", "ip", "fields"),
    [
        pytest.param("../w", (), (), ["NAME"], id="a name that leads elsewhere"),
        pytest.param("W", (), (), ["NAME"], id="a name in capitals"),
        pytest.param("w", ("a b",), (), ["--dns"], id="no host name"),
        pytest.param("w", ("service.inferplane.internal",), (), ["--dns"], id="another kind's"),
        pytest.param("w", (), ("1.2",), ["--ip"], id="no address"),
        pytest.param("", ("",), ("x",), ["NAME", "--dns", "--ip"], id="all at once"),
    ],
)
def test_what_can_stand_in_no_certificate(
    name: str, dns: tuple[str, ...], ip: tuple[str, ...], fields: list[str]
) -> None:
    """All that is wrong is told at once."""
    with pytest.raises(InvalidArgumentError) as raised:
        subject_of(name, PeerKind.WORKER, dns, ip)
    assert [violation.field for violation in raised.value.violations] == fields


def test_keys_are_for_their_owner_alone(authority: CertificateAuthority, tmp_path: Path) -> None:
    """Folders are 0700; keys, certificates and records 0600."""
    authority.issue(WORKER, 30, None, NOW)
    for path in tmp_path.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.name == "tls":  # holds folders only
            continue
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_issuing_again_replaces_all_at_once(authority: CertificateAuthority) -> None:
    """The names lead to one set; the set before stays for who reads it, older ones go."""
    folder = Path(authority.issue(WORKER, 30, None, NOW).folder)
    sets = set()
    for _ in range(4):
        before = (folder / CURRENT).resolve()
        kept = (before / CERTIFICATE).read_bytes()
        assert authority.issue(WORKER, 30, None, NOW).folder == str(folder)
        now = (folder / CURRENT).resolve()
        assert now != before
        assert (before / CERTIFICATE).read_bytes() == kept
        assert {(folder / name).resolve().parent for name in (CERTIFICATE, KEY, AUTHORITIES)} == {
            now
        }
        sets = {path.name for path in folder.iterdir() if path.name.startswith("..set-")}
    assert len(sets) == 2


def test_files_that_lie_there_become_links(tmp_path: Path) -> None:
    """A folder that somebody filled by hand is taken over."""
    (tmp_path / CERTIFICATE).write_text("old")
    certificate_folder.replace(tmp_path, {CERTIFICATE: b"new", KEY: b"k"})
    assert (tmp_path / CERTIFICATE).read_bytes() == b"new"
    assert (tmp_path / CERTIFICATE).is_symlink()


def test_a_new_key_is_trusted_before_it_signs(authority: CertificateAuthority) -> None:
    """1. All trust both. 2. Certificates are issued anew. 3. The old key is retired, not before the last of them."""
    folder = Path(authority.issue(WORKER, 30, None, NOW).folder)
    old = (folder / AUTHORITIES).read_bytes()
    first = certificate(folder).serial_number
    authority.add_key(3650, None, NOW)
    both = (folder / AUTHORITIES).read_bytes()
    assert len(x509.load_pem_x509_certificates(both)) == 2
    assert certificate(folder).serial_number == first
    with pytest.raises(FailedPreconditionError) as raised:
        authority.retire()
    assert raised.value.reason == "STILL_IN_USE"
    authority.renew(NOW)
    name = PeerKind.WORKER.server_name
    assert holds(folder, both, name)
    assert not holds(folder, old, name)
    (gone,) = authority.retire()
    new = (folder / AUTHORITIES).read_bytes()
    assert gone.certificate.encode() == old
    assert holds(folder, new, name)
    assert len(x509.load_pem_x509_certificates(new)) == 1


def test_only_what_ends_soon_is_renewed(authority: CertificateAuthority) -> None:
    """With its names, kind, length and folder; what ends late stays as it is."""
    short = authority.issue(WORKER, 10, None, NOW)
    late = authority.issue(subject_of("late", PeerKind.EDGE, ["a.example"], []), 90, None, NOW)
    then = NOW + dt.timedelta(days=5)
    (renewed,) = authority.renew(then, dt.timedelta(days=30))
    assert (renewed.name, renewed.folder, renewed.days) == ("w", short.folder, 10)
    assert renewed.end == then + dt.timedelta(days=10)
    assert authority.find("late") == late


def test_what_ends_soon_is_told(authority: CertificateAuthority) -> None:
    """Certificates and the authority itself; nothing long before."""
    record = authority.issue(WORKER, 90, None, NOW)
    assert authority.warnings(NOW) == []
    (told,) = authority.warnings(record.end - SOON + dt.timedelta(days=1))
    assert told.startswith("certificate w (worker) ends in 13 days")
    (told,) = authority.warnings(record.end + dt.timedelta(days=1))
    assert told.startswith("certificate w (worker) has ended on 2030-04-01")


def test_no_key_is_lost(authority: CertificateAuthority, tmp_path: Path) -> None:
    """A second beginning, and a key over another file, are refused; a key that was taken away is named."""
    with pytest.raises(AlreadyExistsError):
        authority.begin(1, None, NOW)
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(AlreadyExistsError):
        authority.add_key(1, taken, NOW)
    assert taken.read_text() == "mine"
    elsewhere = tmp_path / "elsewhere.pem"
    authority.add_key(30, elsewhere, NOW)
    elsewhere.rename(tmp_path / "on-a-disk-that-is-away.pem")
    with pytest.raises(FailedPreconditionError) as raised:
        authority.issue(WORKER, 1, None, NOW)
    assert raised.value.metadata["key"] == str(elsewhere)
    with pytest.raises(NotFoundError):
        authority.find("nobody")


def test_envoy_finds_all_by_its_own_files(authority: CertificateAuthority) -> None:
    """Each file is one secret, which names files that are there; the transport socket names those."""
    folder = Path(authority.issue(WORKER, 30, None, NOW).folder)
    for name in (envoy_secrets.OWN, envoy_secrets.TRUSTED):
        (secret,) = yaml.safe_load((folder / name).read_text())["resources"]
        text = json.dumps(secret)
        assert str(folder) in text
    socket = json.loads((folder / envoy_secrets.TRANSPORT_SOCKET).read_text())
    assert socket["typed_config"]["sni"] == "service.inferplane.internal"


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Init, issue, list, rotate and retire, as typed."""
    place = ["--ca-dir", str(tmp_path / "ca")]
    assert run(["ca", "list", *place]) != 0
    assert "inferplane ca init" in capsys.readouterr().err
    assert run(["ca", "init", *place]) == 0
    assert run(["ca", "issue", "w", "--kind", "worker", "--ip", "127.0.0.1", *place]) == 0
    assert run(["ca", "rotate", "--settle", "0", *place]) == 0
    assert run(["ca", "rotate", "--retire", *place]) == 0
    capsys.readouterr()
    assert run(["ca", "list", "-o", "json", *place]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["kind"], listed["addresses"]) == ("w", "worker", ["127.0.0.1"])
    assert run(["ca", "show", "-o", "json", *place]) == 0
    (signer,) = json.loads(capsys.readouterr().out)
    assert signer["serial"] == listed["issuer"]


def test_status_tells_of_this_machines_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends soon is a line of `status`; without an authority there is none."""
    monkeypatch.setenv("INFERPLANE_STATE_DIR", str(tmp_path))
    assert ending_certificates() == []
    authority = CertificateAuthority(tmp_path / "ca")
    authority.begin(3650, None, dt.datetime.now(dt.UTC))
    authority.issue(WORKER, 1, None, dt.datetime.now(dt.UTC))
    (told,) = ending_certificates()
    assert "certificate w (worker) ends in 1 days" in told
