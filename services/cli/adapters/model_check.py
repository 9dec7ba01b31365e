"""What a language model's file says, read in a child process; what is broken or unknown is refused."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.cli.ports.report import Report
from services.rpc.errors import InternalError, InvalidArgumentError

_MODULE = "services.worker.llm_check"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A language model that workers can load."""

    said: Mapping[str, Any]  # what the check printed

    def lines(self) -> list[str]:
        """What it is, for a person."""
        said = self.said
        template = "chat template" if said.get("has_chat_template") else "no chat template"
        shape = (
            f"{said.get('architecture')}, {said.get('parameter_count', 0) / 1e6:,.0f} million parameters,"
            f" {said.get('layer_count')} layers, {said.get('precision')},"
            f" context {said.get('context_length', 0):,} tokens, {template}"
        )
        lines = [shape]
        found = said.get("accuracy")
        if found:
            lines.append(
                f"against 32-bit floats: KL {found['kl']:.4f},"
                f" the same likeliest token at {found['argmax_agreement']:.1%} of places"
            )
        return lines

    def lineage(self) -> dict[str, str]:
        """What the registry keeps of it."""
        said, found = self.said, self.said.get("accuracy") or {}
        tools = ", ".join(f"{name} {version}" for name, version in said.get("tools", {}).items())
        pairs = {
            "architecture": said.get("architecture"),
            "precision": said.get("precision"),
            "accuracy_kl": _number(found.get("kl")),
            "accuracy_argmax_agreement": _number(found.get("argmax_agreement")),
            "checked_with": tools,
        }
        return {key: str(value) for key, value in pairs.items() if value}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def check(path: Path, report: Report, *, accuracy: bool) -> CheckedModel:
    """Read the model; with `accuracy` also measure what its precision costs, which takes seconds."""
    what = "reading the model and measuring its accuracy" if accuracy else "reading the model"
    report.say(what)
    options = ["--accuracy"] if accuracy else []
    with subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(path), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None  # for the type checker: pipes were asked for
        assert child.stderr is not None
        lines = [line.rstrip() for line in child.stderr]
        printed = child.stdout.read()
    said = _last_object(printed)
    if child.returncode == 0 and said is not None and "refused" not in said:
        for line in lines:  # for example why accuracy is not measured
            report.say(line)
        return CheckedModel(said)
    if said is not None and "refused" in said:
        raise InvalidArgumentError(
            f"{path.name}: {said['refused']}",
            reason=str(said.get("reason") or "MODEL_FILE_INVALID"),
            metadata={"file": path.name},
        )
    told = lines[-1] if lines else "it said nothing"
    raise InternalError(f"the check of {path.name} ended with {child.returncode}: {told}")


def _last_object(printed: str) -> dict[str, Any] | None:
    lines = printed.strip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
