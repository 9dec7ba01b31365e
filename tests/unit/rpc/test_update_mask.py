"""Update masks."""

import pytest

from services.rpc.errors import InvalidArgumentError
from services.rpc.update_mask import masked_fields

ALLOWED = ("description", "tags")


def test_masks() -> None:
    """Empty is all; named fields come once, in the order of the resource."""
    assert masked_fields([], ALLOWED) == ALLOWED
    assert masked_fields(["tags"], ALLOWED) == ("tags",)
    assert masked_fields(["tags", "description", "tags"], ALLOWED) == ALLOWED


@pytest.mark.parametrize("path", ["name", "*", "", "tags.a", "Tags"])
def test_unknown_paths_are_refused(path: str) -> None:
    """The message lists what may be named."""
    with pytest.raises(InvalidArgumentError) as refused:
        masked_fields(["tags", path], ALLOWED)
    assert repr(path) in refused.value.message
    assert "allowed: description, tags" in refused.value.message
    assert refused.value.violations[0].field == "update_mask"
