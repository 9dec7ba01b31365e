"""Entry of the command line: `python -m services.cli`, typed as `inferplane`."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    # So often asked by scripts that it shall not wait for imports.
    if list(arguments) in (["version"], ["--version"]):
        from services.cli.adapters.release import version

        sys.stdout.write(f"inferplane {version()}\n")
        return 0
    from services.cli.commands.entry import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
