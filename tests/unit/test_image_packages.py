"""Which packages images have, by the lock and the list of layers."""

import subprocess
import sys
import tomllib

import pytest

from tools.image_packages import (
    LAYERS,
    LOCK,
    UnknownNameError,
    below,
    closure,
    packages,
    pins,
    requirements,
)

_LOCK = """\
alpha==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:aa
    # via inferplane (pyproject.toml)
alpha==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:ab
    # via inferplane (pyproject.toml)
beta==1.0 \\
    --hash=sha256:ba \\
    --hash=sha256:bb
    # via
    #   -c lock/dev.txt
    #   alpha
    #   gamma[extra]
gamma==3.1 \\
    --hash=sha256:ca
    # via inferplane (pyproject.toml)
"""
_LAYERS = {
    "low": {"packages": ["alpha"]},
    "high": {"after": "low", "packages": ["gamma"]},
}


def test_pins_keep_markers_and_hashes_and_drop_what_is_said_of_them() -> None:
    """What pip is given of a package is what the lock has of it."""
    assert [pin.name for pin in pins(_LOCK)] == ["alpha", "alpha", "beta", "gamma"]
    assert pins(_LOCK)[2].text == "beta==1.0 \\\n    --hash=sha256:ba \\\n    --hash=sha256:bb\n"
    assert pins(_LOCK)[2].needed_by == {"alpha", "gamma"}


def test_a_layer_has_what_its_packages_need() -> None:
    """A package brings its own along, in each of its versions."""
    assert closure(["alpha"], pins(_LOCK)) == {"alpha", "beta"}
    assert requirements("low", _LAYERS, pins(_LOCK)).count("==") == 3


def test_a_layer_adds_only_what_those_below_lack() -> None:
    """What lies below already is not installed again."""
    assert below("high", _LAYERS) == ["low"]
    assert requirements("high", _LAYERS, pins(_LOCK)) == "gamma==3.1 \\\n    --hash=sha256:ca\n"


def test_what_the_lock_does_not_have_is_named() -> None:
    """A package that was renamed or dropped stops the build."""
    with pytest.raises(UnknownNameError, match="delta"):
        closure(["delta"], pins(_LOCK))


@pytest.mark.parametrize("layer", tomllib.loads(LAYERS.read_text()))
def test_each_layer_is_locked(layer: str) -> None:
    """All that packages.toml names is in the lock, every package with hashes."""
    locked = pins(LOCK.read_text())
    text = requirements(layer, tomllib.loads(LAYERS.read_text()), locked)
    assert text.count("==") > 0
    assert all("--hash=sha256:" in pin.text for pin in locked)


_WITHOUT = """
import sys
from importlib.metadata import packages_distributions

there = set(sys.argv[2].split(","))
named = packages_distributions()
gone = {top for top, by in named.items() if not there & {n.lower().replace("_", "-") for n in by}}


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)


sys.meta_path.insert(0, Absent())
__import__(sys.argv[1])
"""


@pytest.mark.extended  # for images only
@pytest.mark.parametrize(
    ("image", "module"),
    [
        ("registry", "services.registry.__main__"),
        ("registry", "services.registry.adapters.onnx_signature"),
        ("metering", "services.metering.__main__"),
        ("router", "services.router.__main__"),
        ("worker", "services.worker.__main__"),
        ("worker", "services.worker.tensor_probe"),
        ("worker", "services.worker.llm_build"),
        ("edge", "services.cli.edge.__main__"),
        ("cli", "services.cli.setup.__main__"),
        ("cli", "services.worker.llm_check"),
    ],
)
def test_images_have_what_their_programs_import(image: str, module: str) -> None:
    """Each program of an image is loaded where all other packages are missing."""
    locked = pins(LOCK.read_text())
    there = ",".join(sorted(packages(image, tomllib.loads(LAYERS.read_text()), locked)))
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, module, there], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
