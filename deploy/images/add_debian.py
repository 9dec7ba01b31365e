"""Adds the base's Debian packages to the list of an image's Python packages: add_debian.py LIST DEBIAN.tsv IMAGE."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote


def component(line: str) -> dict[str, Any]:
    """A package of dpkg's list, as CycloneDX has it."""
    name, version, architecture = line.split("\t")
    url = f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def main(listed: Path, debian: Path, image: str) -> None:
    """Print both together."""
    bom = json.loads(listed.read_text())
    bom.setdefault("components", []).extend(
        component(line) for line in sorted(debian.read_text().splitlines())
    )
    about = {"type": "container", "bom-ref": "image", "name": f"inferplane/{image}"}
    bom.setdefault("metadata", {})["component"] = about
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
