"""Rules of what a version declares."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.domain.artifact import (
    artifact_digest,
    check_files,
    is_path,
    model_path,
)
from services.registry.domain.model import ArtifactFile, Format
from services.rpc.violations import Violations
from tests.unit.registry.records import file, sha256

MOST = 1000


def violations_of(*files: ArtifactFile, kind: Format | None = Format.ONNX) -> dict[str, str]:
    violations = Violations()
    check_files(violations, files, kind, MOST)
    found: dict[str, str] = {}
    for violation in violations.found:
        earlier = found.get(violation.field, "")
        found[violation.field] = earlier + violation.description
    return found


def test_files_are_sorted_by_path() -> None:
    """A checked artifact lists its files by path, and knows which one is the model."""
    violations = Violations()
    given_files = [file("w/b"), file("model.onnx"), file("a")]
    checked = check_files(violations, given_files, Format.ONNX, MOST)
    assert violations.found == ()
    assert [f.path for f in checked] == ["a", "model.onnx", "w/b"]
    assert model_path([f.path for f in checked], Format.ONNX) == "model.onnx"


@pytest.mark.parametrize(
    "path",
    ["model.onnx", "a/b/c.onnx", "..a", "a..", ".hidden", "with space", "ü" * 127, "-", "a" * 255],
)
def test_paths_that_are_allowed(path: str) -> None:
    """A relative path within its limit is a path."""
    assert is_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/./b",
        "a\\b",
        "a\0",
        "ü" * 128,
        "a" * 256,
    ],
)
def test_paths_that_are_refused(path: str) -> None:
    """What could leave the artifact's folder, or can't be a file's name, is no path."""
    assert not is_path(path)
    assert "allowed: a relative path" in violations_of(file("m.onnx"), file(path))["files[1].path"]


@settings(deadline=None)
@given(st.text(max_size=40))
def test_an_allowed_path_stays_inside(path: str) -> None:
    """Whatever the text: if it is allowed, joining it to a folder stays below that folder."""
    if is_path(path):
        assert not path.startswith("/")
        assert ".." not in path.split("/")


@pytest.mark.parametrize(
    ("files", "field", "text"),
    [
        pytest.param([], "files", "0 files; allowed: 1 to 1000", id="no file"),
        pytest.param(
            [file("m.onnx"), *(file(f"f{n}") for n in range(1000))],
            "files",
            "1001 files; allowed: 1 to 1000",
            id="too many files",
        ),
        pytest.param([file("a")], "files", "0 files end in '.onnx' (none)", id="no model"),
        pytest.param(
            [file("a.onnx"), file("b.onnx")],
            "files",
            "2 files end in '.onnx' ('a.onnx', 'b.onnx'); allowed: exactly one",
            id="two models",
        ),
        pytest.param(
            [file("a.onnx"), file("x"), file("x")], "files", "'x' is declared twice", id="twice"
        ),
        pytest.param(
            [file("a.onnx"), file("x"), file("x-y"), file("x/y")],
            "files",
            "'x' is a file and the folder of 'x/y'",
            id="a file that is a folder too",
        ),
        pytest.param(
            [replace(file("a.onnx"), size_bytes=-1)],
            "files[0].size_bytes",
            "-1; allowed: 0 to 1000",
            id="negative size",
        ),
        pytest.param(
            [replace(file("a.onnx"), size_bytes=1001)],
            "files[0].size_bytes",
            "1001; allowed: 0 to 1000",
            id="too large",
        ),
        pytest.param(
            [replace(file("a.onnx"), sha256="A" * 64)],
            "files[0].sha256",
            "allowed: 64 lower-case hex digits",
            id="upper-case digest",
        ),
        pytest.param(
            [replace(file("a.onnx"), size_bytes=0)],
            "files[0].sha256",
            "does not go with 0 bytes",
            id="empty file with another digest",
        ),
        pytest.param(
            [replace(file("a.onnx"), sha256=sha256(b""))],
            "files[0].sha256",
            "does not go with 4 bytes",
            id="digest of nothing for something",
        ),
    ],
)
def test_files_that_are_refused(files: list[ArtifactFile], field: str, text: str) -> None:
    """The violation names the field, what was given and what is allowed."""
    assert text in violations_of(*files)[field]


def test_all_violations_are_found() -> None:
    """Two wrong files are two violations, not one."""
    wrong = replace(file("/a"), sha256="", size_bytes=-1)
    found = violations_of(wrong, wrong)
    for index in (0, 1):
        for field in ("path", "size_bytes", "sha256"):
            assert f"files[{index}].{field}" in found


def test_the_digest_is_of_paths_sizes_and_digests() -> None:
    """Order doesn't matter; any path, size or content does. The form is fixed for ever."""
    one, two = file("a", b"1"), file("b", b"2")
    assert artifact_digest([one, two]) == artifact_digest([two, one])
    others = [[one], [one, file("c", b"2")], [one, file("b", b"3")]]
    assert len({artifact_digest(files) for files in [[one, two], *others]}) == 4
    text = f"a\x001\0{sha256(b'1')}\n"
    assert artifact_digest([one]) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("kind", "paths", "said"),
    [
        pytest.param(Format.GGUF, ["m.gguf"], None, id="one GGUF file"),
        pytest.param(Format.GGUF, ["a/m.gguf"], None, id="in a folder, too"),
        pytest.param(Format.GGUF, ["m.onnx"], "0 files end in '.gguf' (none)", id="no GGUF file"),
        pytest.param(
            Format.GGUF, ["a.gguf", "b.gguf"], "2 files end in '.gguf'", id="two GGUF files"
        ),
        pytest.param(
            Format.GGUF,
            ["m.gguf", "x"],
            "'x' beside 'm.gguf'; allowed: one file",
            id="another file",
        ),
        pytest.param(
            Format.SAFETENSORS,
            ["config.json", "tokenizer.json", "a.safetensors", "b.safetensors"],
            None,
            id="a model of transformers",
        ),
        pytest.param(
            Format.SAFETENSORS,
            ["config.json", "a.safetensors"],
            "no 'tokenizer.json'",
            id="without a tokenizer",
        ),
        pytest.param(
            Format.SAFETENSORS,
            ["sub/config.json", "tokenizer.json"],
            "no 'config.json'; allowed: models that have itnone ends in '.safetensors'",
            id="config elsewhere, and no weights",
        ),
    ],
)
def test_files_of_language_models(kind: Format, paths: list[str], said: str | None) -> None:
    """A GGUF file stands alone; a model of transformers has its configuration, tokenizer and weights."""
    found = violations_of(*(file(path) for path in paths), kind=kind)
    if said is None:
        assert found == {}
        assert model_path(paths, kind) in paths
    else:
        assert said in found["files"]
