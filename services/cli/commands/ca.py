"""Commands on our own certificate authority: init, issue, list, show, renew, rotate."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands.options import (
    Format,
    OutputOption,
    StateDirOption,
    state_directory,
    terminal,
)
from services.rpc.peer_kind import PeerKind

if TYPE_CHECKING:
    from services.cli.adapters.ca import CertificateAuthority

app = typer.Typer(
    no_args_is_help=True,
    help="Certificates: an authority of your own, for TLS at the edge and between machines.",
)

_CaDir = Annotated[
    Path | None,
    typer.Option(
        "--ca-dir",
        envvar="INFERPLANE_CA_DIR",
        metavar="DIR",
        help="The authority's folder. Whoever reads it can pretend to be anything.",
        show_default="ca in the state directory",
        file_okay=False,
    ),
]
_KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key",
        envvar="INFERPLANE_CA_KEY",
        metavar="FILE",
        help="Where the authority's key is to lie, such as on a disk that is taken away.",
        show_default="in the authority's folder",
        dir_okay=False,
    ),
]
_AuthorityDays = Annotated[
    int,
    typer.Option(
        "--days", envvar="INFERPLANE_CA_DAYS", min=1, max=36500, help="Until the authority ends."
    ),
]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="What the certificate is called here.")]


def _authority(ca_dir: Path | None, state_dir: Path | None) -> "CertificateAuthority":
    from services.cli.adapters.ca import CertificateAuthority

    return CertificateAuthority(ca_dir or state_directory(state_dir).path / "ca")


@app.command()
def init(
    *,
    days: _AuthorityDays = 3650,
    key: _KeyFile = None,
    ca_dir: _CaDir = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make an authority."""
    from services.cli.adapters import ca, ca_view

    signer = _authority(ca_dir, state_dir).begin(days, key, ca.now())
    ca_view.show_signers(terminal(output), [signer])


@app.command()
def issue(
    name: _Name,
    *,
    kind: Annotated[
        PeerKind,
        typer.Option("--kind", envvar="INFERPLANE_CA_KIND", help="What the holder is."),
    ],
    dns: Annotated[
        list[str] | None,
        typer.Option(
            "--dns",
            envvar="INFERPLANE_CA_DNS",
            metavar="NAME",
            help="A host name by which clients reach it; may be repeated.",
            show_default="none",
        ),
    ] = None,
    ip: Annotated[
        list[str] | None,
        typer.Option(
            "--ip",
            envvar="INFERPLANE_CA_IP",
            metavar="ADDRESS",
            help="The same with an IP address.",
            show_default="none",
        ),
    ] = None,
    days: Annotated[
        float,
        typer.Option(
            "--days", envvar="INFERPLANE_CERTIFICATE_DAYS", min=0.001, help="Until it ends."
        ),
    ] = 90,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            envvar="INFERPLANE_CERTIFICATE_DIR",
            metavar="DIR",
            help="Folder for cert.pem, key.pem and ca.pem; what is there is replaced at once.",
            show_default="tls/NAME in the state directory",
            file_okay=False,
        ),
    ] = None,
    ca_dir: _CaDir = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Issue a certificate, or issue it again: who uses it takes the new one without a restart."""
    from services.cli.adapters import ca, ca_view
    from services.cli.adapters.certificates import subject_of

    subject = subject_of(name, kind, dns or [], ip or [])
    record = _authority(ca_dir, state_dir).issue(subject, days, out, ca.now())
    ca_view.show_issued(terminal(output), record)


@app.command("list")
def list_(
    *, ca_dir: _CaDir = None, state_dir: StateDirOption = None, output: OutputOption = Format.TABLE
) -> None:
    """List what was issued, and when it ends."""
    from services.cli.adapters import ca_view

    ca_view.list_issued(terminal(output), _authority(ca_dir, state_dir).state().issued)


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One certificate; none: the authority.")
    ] = None,
    *,
    ca_dir: _CaDir = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a certificate, or whom the authority's certificates are checked with."""
    from services.cli.adapters import ca_view

    authority = _authority(ca_dir, state_dir)
    if name is None:
        ca_view.show_signers(terminal(output), authority.state().signers)
    else:
        ca_view.show_issued(terminal(output), authority.find(name))


@app.command()
def renew(
    *,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            envvar="INFERPLANE_CA_RENEW_ALL",
            help="Also what ends late.",
            show_default="off",
        ),
    ] = False,
    within: Annotated[
        float,
        typer.Option(
            "--within",
            envvar="INFERPLANE_CA_RENEW_WITHIN",
            metavar="DAYS",
            min=0,
            help="Issue again what ends in so many days.",
        ),
    ] = 30,
    ca_dir: _CaDir = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Issue certificates again that end soon, with new keys, where they lie."""
    from services.cli.adapters import ca, ca_view

    span = None if everything else timedelta(days=within)
    ca_view.list_issued(terminal(output), _authority(ca_dir, state_dir).renew(ca.now(), span))


@app.command()
def rotate(
    *,
    days: _AuthorityDays = 3650,
    key: _KeyFile = None,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            envvar="INFERPLANE_CA_SETTLE",
            metavar="SECONDS",
            min=0,
            help="From when all trust the new key to when it signs.",
        ),
    ] = 5,
    retire: Annotated[
        bool,
        typer.Option(
            "--retire",
            envvar="INFERPLANE_CA_RETIRE",
            help="Make no new key; trust only the newest that there is.",
            show_default="off",
        ),
    ] = False,
    ca_dir: _CaDir = None,
    state_dir: StateDirOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Take a new authority's key into use: all trust both, then all certificates are issued anew.

    Copies on other machines are brought up to date by you; once they are, --retire ends the overlap.
    """
    from services.cli.adapters import ca_view

    authority, screen = _authority(ca_dir, state_dir), terminal(output)
    if retire:
        for gone in authority.retire():
            screen.say(
                f"authority {gone.serial[:8]} is trusted no more; its key may be destroyed: {gone.key}"
            )
        ca_view.show_signers(screen, authority.state().signers)
        return
    ca_view.rotate(screen, authority, days=days, key=key, settle=settle)
