"""Model files of repositories on the Hugging Face Hub, fetched by its own client."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from services.cli.adapters.model_artifact import TRANSFORMERS_FILES
from services.cli.adapters.source_cache import Note, SourceCache, content_digest
from services.cli.domain.model_source import HubSource
from services.cli.ports.report import Report
from services.rpc.errors import FailedPreconditionError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch(source: HubSource, cache: SourceCache, report: Report) -> tuple[Path, Note]:
    """The model of a repository: a GGUF file, or a folder; what a commit holds is fetched once."""
    if source.revision is not None and _COMMIT.fullmatch(source.revision):
        found = cache.find(_key(source, source.revision))
        if found is not None:
            return found
    info = _info(source)
    commit = info.sha or source.revision or "main"
    found = cache.find(_key(source, commit))
    if found is not None:
        return found
    names = _choose([each.rfilename for each in info.siblings or ()], source)
    report.say(f"fetching {', '.join(names)} of {source.repository} at {commit[:12]}")
    with cache.workspace() as workspace:
        folder = workspace / source.repository.rpartition("/")[2]
        _download(source, commit, names, folder)
        fetched = folder / names[0] if names[0].endswith(".gguf") else folder
        note = Note(content=content_digest(fetched), name=fetched.name, digest="")
        return cache.keep(_key(source, commit), fetched, note), note


def _key(source: HubSource, commit: str) -> str:
    return f"hf:{source.repository}@{commit}#{source.file or ''}"


def _choose(names: Sequence[str], source: HubSource) -> list[str]:
    """The files that make the model: the one that was named, the weights of `transformers`, or the only GGUF file."""
    top = [name for name in names if "/" not in name]
    if source.file is not None:
        if source.file not in names:
            _nothing(f"has no file {source.file}", source, names)
        if not source.file.endswith(".gguf"):
            _nothing(f"#{source.file}: only a .gguf file can be named", source, names)
        return [source.file]
    if "config.json" in top and any(name.endswith(".safetensors") for name in top):
        return [n for n in top if n in TRANSFORMERS_FILES or n.endswith(".safetensors")]
    models = [name for name in names if name.endswith(".gguf")]
    if len(models) != 1:
        hint = f"say which: {source.told}#FILE" if models else "it has no language model"
        _nothing(f"has {len(models)} GGUF files and no safetensors; {hint}", source, models)
    return models


def _nothing(what: str, source: HubSource, names: Sequence[str]) -> NoReturn:
    shown = ", ".join(sorted(names)[:20]) or "none"
    raise FailedPreconditionError(
        f"{source.told}: {what}; files: {shown}",
        reason="NO_MODEL_FILE",
        metadata={"repository": source.repository},
    )


def _info(source: HubSource) -> "ModelInfo":
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]  # not listed

    try:
        return HfApi().model_info(source.repository, revision=source.revision)
    except HfHubHTTPError as error:
        _refused(source, error)
    except (OSError, TransportError) as error:
        raise _unreachable(source, error) from error


def _download(source: HubSource, commit: str, names: Sequence[str], folder: Path) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]  # not listed

    try:
        snapshot_download(
            source.repository, revision=commit, allow_patterns=list(names), local_dir=folder
        )
    except HfHubHTTPError as error:
        _refused(source, error)
    except (OSError, TransportError) as error:
        raise _unreachable(source, error) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the client's own notes


def _refused(source: HubSource, error: Exception) -> NoReturn:
    """What the hub says against it; its texts name the reason: absent, gated, no such revision."""
    text = " ".join(str(error).split())
    raise NotFoundError(
        f"{source.told}: the hub refuses: {text}",
        reason="HUB_REFUSED",
        metadata={"repository": source.repository},
    ) from error


def _unreachable(source: HubSource, error: Exception) -> UnavailableError:
    text = " ".join(str(error).split())
    return UnavailableError(
        f"{source.told}: the Hugging Face Hub can't be reached: {text};"
        " a folder that was downloaded elsewhere can be given: hf:/FOLDER",
        reason="HUB_UNREACHABLE",
        metadata={"repository": source.repository},
    )
