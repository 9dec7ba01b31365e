"""A project: who pays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.metering.domain.fields import check_tags, check_text
from services.metering.domain.limits import NO_LIMITS, Limits, check_limits
from services.rpc.names import ProjectName
from services.rpc.update_mask import masked_fields
from services.rpc.violations import Violations

DEFAULT_PROJECT = ProjectName("default")
_CHANGEABLE = ("display_name", "tags", "limits", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInput:
    """What a caller says of a project."""

    display_name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = NO_LIMITS
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(ProjectInput):
    """A stored project."""

    name: ProjectName
    create_time: datetime


def _checked(given: ProjectInput) -> ProjectInput:
    violations = Violations()
    checked = ProjectInput(
        display_name=check_text(violations, "project.display_name", given.display_name),
        tags=check_tags(violations, "project.tags", given.tags),
        limits=check_limits(violations, "project.limits", given.limits),
        disabled=given.disabled,
    )
    violations.raise_if_any()
    return checked


def new_project(name: ProjectName, given: ProjectInput, now: datetime) -> Project:
    """A project as asked for. InvalidArgumentError names every field that breaks a rule."""
    checked = _checked(given)
    return Project(
        name=name,
        create_time=now,
        **{changeable: getattr(checked, changeable) for changeable in _CHANGEABLE},
    )


def changed_project(project: Project, given: ProjectInput, mask: Sequence[str]) -> Project:
    """The project with the masked fields as given. InvalidArgumentError as for a new one."""
    checked = _checked(given)
    fields = masked_fields(mask, _CHANGEABLE)
    return replace(project, **{name: getattr(checked, name) for name in fields})
