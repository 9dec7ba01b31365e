"""What is wrong with a file."""


class ModelFileError(Exception):
    """A file that can't be served; the text names the place, what is there and what may be there."""

    def __init__(self, place: str, given: str, allowed: str = "") -> None:
        super().__init__(
            f"{place}: {given}; allowed: {allowed}" if allowed else f"{place}: {given}"
        )
