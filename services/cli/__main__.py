"""Entry of the command line: `python -m services.cli`, typed as `inferplane`."""

import os
import sys
from collections.abc import Sequence

_STARTS_SERVICES = frozenset({"up", "worker", "demo"})  # whose logs keep it


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    # So often asked by scripts that it shall not wait for imports.
    if list(arguments) in (["version"], ["--version"]):
        from services.cli.adapters.release import version

        sys.stdout.write(f"inferplane {version()}\n")
        return 0
    if not _STARTS_SERVICES.intersection(arguments[:1]):
        # What gRPC's C core would write on the terminal is in our errors too; it alone reads this, when it is imported.
        os.putenv("GRPC_VERBOSITY", "NONE")
    from services.cli.commands.entry import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
