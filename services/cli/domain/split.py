"""Traffic splits: what becomes of the other targets when one gets a share."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.cli.domain.exit_code import UsageError

_DIGITS = 6  # decimals kept of a weight: the router resolves millionths


@dataclass(frozen=True, slots=True)
class Share:
    """A target of an endpoint and its weight."""

    target: str  # resource name of a version or alias
    weight: float
    version: str  # resource name of the version that the target stands for now


def with_share(shares: Sequence[Share], target: str, percent: float) -> list[Share]:
    """The split in which version `target` gets `percent` and the others keep their proportions in the rest.

    An alias that stands for the version already is kept and gets the share. With 100 percent the others are gone.
    """
    if not 0 < percent <= 100:
        raise UsageError(f"--weight {percent:g}: allowed: more than 0, at most 100 percent")
    mine = next((share for share in shares if share.version == target), None)
    others = [share for share in shares if share.version != target]
    wanted = Share(mine.target if mine else target, percent, target)
    total = sum(share.weight for share in others)
    if not others or percent == 100:
        return [Share(wanted.target, 100.0, target)]
    scaled = [
        Share(share.target, round(share.weight / total * (100 - percent), _DIGITS), share.version)
        for share in others
    ]
    return [share for share in scaled if share.weight > 0] + [wanted]


def describe(shares: Sequence[tuple[str, float]]) -> str:
    """A split in words, for example `digits@1 90 %, digits@2 10 %`."""
    total = sum(weight for _, weight in shares)
    if not total:
        return "no traffic"
    return ", ".join(f"{short(target)} {weight / total * 100:g} %" for target, weight in shares)


def short(name: str) -> str:
    """`digits@2` for `models/digits/versions/2` (and for an alias); other names without their collection."""
    parts = name.split("/")
    if len(parts) == 4 and parts[0] == "models":
        return f"{parts[1]}@{parts[3]}"
    return parts[-1]
