"""What is counted and has a price."""

from enum import IntEnum


class Unit(IntEnum):
    """A unit; its value is stored."""

    REQUEST = 1
    INPUT_TOKEN = 2  # computed, so without those of CACHED_TOKEN
    CACHED_TOKEN = 3
    OUTPUT_TOKEN = 4
    COMPUTE_SECOND = 5  # counted in microseconds
    ROW = 6

    @property
    def word(self) -> str:
        """As account names and reports write it."""
        return self.name.lower()

    @property
    def counts_per_unit(self) -> int:
        """How many of what is counted make up one of what the price is for."""
        return 1_000_000 if self is Unit.COMPUTE_SECOND else 1

    @property
    def places(self) -> int:
        """Decimal places that its price may have, so that each charge is a whole number of 10^-12."""
        return 6 if self is Unit.COMPUTE_SECOND else 12
