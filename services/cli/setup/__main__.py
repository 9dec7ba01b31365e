"""Gives a cluster its certificates and secrets: `python -m services.cli.setup FOLDER`, before anything else starts."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from services.cli.adapters import ca
from services.cli.setup.holders import HOLDERS
from services.cli.setup.outfit import Outfit
from services.rpc.errors import InferplaneError


def main(arguments: Sequence[str]) -> int:
    """Make what is missing; the exit code says whether all is there."""
    parser = argparse.ArgumentParser(prog="setup", description=__doc__)
    parser.add_argument("folder", type=Path, help="has a folder for each service, to be filled")
    parser.add_argument(
        "--consul-key",
        default="initial_management",
        help="acl.tokens of Consul that may do all: `master` before Consul 1.11",
    )
    options = parser.parse_args(arguments)
    try:
        told = Outfit(options.folder, options.consul_key).make(HOLDERS, ca.now())
    except (InferplaneError, OSError) as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    sys.stderr.write("".join(f"{line}\n" for line in told or ["all is there"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
