"""What `status` says of certificates: those of this machine's own authority that end soon."""

from pathlib import Path

from services.cli.adapters.state_directory import default_path
from services.rpc.settings import Settings, load


class _Environment(Settings):
    """Where an authority may be."""

    ca_dir: Path | None = None
    state_dir: Path | None = None


def ending_certificates() -> list[str]:
    """One line for each; none where this machine has no authority."""
    environment = load(_Environment)
    folder = environment.ca_dir or (environment.state_dir or default_path()) / "ca"
    if not folder.is_dir():
        return []
    # Imported here: most who look have no authority, and should not wait.
    from services.cli.adapters import ca

    return ca.CertificateAuthority(folder).warnings(ca.now())
