"""Makes the demo's tensor models: export_models.py FOLDER."""

import sys
from pathlib import Path

from services.cli.demo import digits, minilm


def main(folder: Path) -> None:
    """Write two versions of `digits`, and `minilm` with its settings."""
    folder.mkdir(parents=True)
    for version in ("1", "2"):
        digits.export(version, folder)
    minilm.export(folder)
    minilm.settings(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
