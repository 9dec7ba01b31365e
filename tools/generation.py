"""Generated code: Python modules, stubs and the descriptor set that Envoy loads, made from protos/."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from tools.bootstrap import SetupError, generation_stamp, places

# All our protos and what they import; Envoy's transcoder and field extraction load it.
DESCRIPTOR_SET = "inferplane.binpb"


def package_folder(name: str) -> Path:
    """Where an installed package lies."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SetupError(f"the package {name} is not installed")
    return Path(spec.origin).parent


def google_api_include() -> Path:
    """The include folder that has google/api, google/rpc and their like (from googleapis-common-protos)."""
    return package_folder("google.api").parent.parent


def well_known_include() -> Path:
    """The include folder that has google/protobuf (from grpcio-tools)."""
    return package_folder("grpc_tools") / "_proto"


def make_packages(folder: Path) -> None:
    """Makes regular packages of the generated folders: a plain import finds them without a search of the whole path."""
    for inside in [path for path in folder.rglob("*") if path.is_dir()]:
        (inside / "__init__.py").write_text('"""Generated from protos/."""\n')


def run_protoc(protos: Path, into: Path) -> None:
    """Runs protoc with all its outputs."""
    from grpc_tools import protoc

    # The plugins are console scripts of this environment, which need not be on the caller's PATH.
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    )
    sources = [str(path.relative_to(protos)) for path in sorted(protos.rglob("*.proto"))]
    includes = [
        f"--proto_path={folder}" for folder in (protos, google_api_include(), well_known_include())
    ]
    outputs = [
        f"--{plugin}={into}"
        for plugin in ("python_out", "grpc_python_out", "mypy_out", "mypy_grpc_out")
    ]
    descriptors = [
        "--include_imports",
        "--include_source_info",
        f"--descriptor_set_out={into / DESCRIPTOR_SET}",
    ]
    code = protoc.main(
        [
            "protoc",
            *includes,
            *outputs,
            "--mypy_opt=quiet",
            "--mypy_grpc_opt=quiet",
            *descriptors,
            *sources,
        ]
    )
    if code:
        raise SetupError(f"protoc ended with {code}")


def replace(folder: Path, fresh: Path) -> None:
    """Puts a finished folder in the place of another, which is never seen half-written."""
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def generate() -> None:
    """Makes generated/ from protos/."""
    here = places()
    stamp = generation_stamp(here)
    fresh = here.generated.with_name("generated.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    run_protoc(here.root / "protos", fresh)
    make_packages(fresh)
    (fresh / ".stamp").write_text(stamp)
    replace(here.generated, fresh)


if __name__ == "__main__":
    try:
        generate()
    except SetupError as error:
        sys.exit(str(error))
