"""The price list: creates prices, and has them all in memory."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.metering.domain.machine_price import MOST_MACHINES, MachinePrice, MachinePriceId
from services.metering.domain.money import parse_amount
from services.metering.domain.price import NO_PRICE, Price, PriceBook
from services.metering.domain.unit import Unit
from services.metering.ports.price_store import PriceStore
from services.metering.ports.project_lookup import ProjectLookup
from services.metering.ports.rates import Rates
from services.rpc.clock import Clock
from services.rpc.errors import NotFoundError
from services.rpc.names import ProjectName, check_id
from services.rpc.violations import Violations

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL_OF_MACHINES = 6


def nanoseconds(moment: datetime) -> int:
    """Nanoseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceInput:
    """What a caller says of a new price."""

    unit: Unit | None
    amount: str
    project: str
    model: str
    version: str
    valid_from: datetime | None  # None: now


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePriceInput:
    """What a caller says of a new price of machines."""

    pool: str
    hourly_amount: str
    machines: int
    valid_from: datetime | None


class PriceList:
    """All prices, newest last. Used on the event loop."""

    def __init__(self, store: PriceStore, projects: ProjectLookup, clock: Clock) -> None:
        self._store = store
        self._projects = projects
        self._clock = clock
        self.book = PriceBook(())
        self.machine_prices: tuple[MachinePrice, ...] = ()

    async def load(self) -> None:
        """Read what is stored, and from then on what others store; before anything else."""
        self._store.follow(self._taken)
        self.book = PriceBook(await self._store.prices())
        self.machine_prices = tuple(await self._store.machine_prices())

    def _taken(self, prices: Sequence[Price], machines: Sequence[MachinePrice]) -> None:
        self.book, self.machine_prices = PriceBook(prices), tuple(machines)

    @property
    def revision(self) -> str:
        """Of the prices that count now: how many were made, and how many times the moment came for some of them."""
        return f"{self.book.last}.{self._segment()}"

    def _segment(self) -> int:
        return bisect_right(self.book.boundaries_ns, nanoseconds(self._clock.now()))

    def rates(self, project: str, model: str, version: str) -> Rates:
        """What one of each unit costs such a request now; 0 without a price."""
        scope, book, segment = (project, model, version), self.book, self._segment()

        def amount(unit: Unit) -> int:
            price = book.find_in(scope, unit, segment)
            return price.amount if price else 0

        return Rates(
            request=amount(Unit.REQUEST),
            input_token=amount(Unit.INPUT_TOKEN),
            cached_token=amount(Unit.CACHED_TOKEN),
            output_token=amount(Unit.OUTPUT_TOKEN),
            compute_second=amount(Unit.COMPUTE_SECOND),
            row=amount(Unit.ROW),
        )

    def get(self, number: int) -> Price:
        """One price; NotFoundError if there is none."""
        for price in self.book.prices:
            if price.id == number:
                return price
        raise NotFoundError(f"there is no prices/{number}", metadata={"name": f"prices/{number}"})

    async def create(self, given: PriceInput) -> Price:
        """Add a price; the one there is if it says the same. NotFoundError: it names a project that is not there."""
        now = self._clock.now()
        price = _checked(given, now)
        if price.project:
            await self._projects.get(ProjectName(price.project))
        for known in self.book.prices:
            if given.valid_from is not None and _says(known) == _says(price):
                return known
        return await self._store.add(price, self._added)

    def _added(self, price: Price) -> None:
        self.book = self.book.with_price(price)

    async def create_machine_price(self, given: MachinePriceInput) -> MachinePrice:
        """Add a price of machines."""
        now = self._clock.now()
        violations = Violations()
        violations.take(check_id, "machine_price.pool", given.pool)
        amount = violations.take(
            lambda field, text: parse_amount(field, text, places=_DECIMAL_OF_MACHINES),
            "machine_price.hourly_amount",
            given.hourly_amount,
        )
        violations.require(
            amount is None or amount >= 0, "machine_price.hourly_amount", "allowed: 0 or more"
        )
        violations.require(
            0 <= given.machines <= MOST_MACHINES,
            "machine_price.machines",
            f"{given.machines}; allowed: 0 to {MOST_MACHINES}",
        )
        violations.raise_if_any()
        assert amount is not None
        price = MachinePrice(
            id=MachinePriceId(0),
            pool=given.pool,
            hourly_amount=amount,
            machines=given.machines,
            valid_from_ns=nanoseconds(given.valid_from or now),
            create_time=now,
        )
        return await self._store.add_machine_price(price, self._machine_price_added)

    def _machine_price_added(self, price: MachinePrice) -> None:
        self.machine_prices = (*self.machine_prices, price)

    def listed(self, project: str, model: str, unit: Unit | None) -> Sequence[Price]:
        """Prices that may count for a project, model and unit (empty, None: any); newest first."""
        return [
            price
            for price in reversed(self.book.prices)
            if (not project or price.project in {"", project})
            and (not model or price.model in {"", model})
            and (unit is None or price.unit is unit)
        ]


def _says(price: Price) -> tuple[object, ...]:
    return (
        *(price.unit, price.amount, price.valid_from_ns),
        *(price.project, price.model, price.version),
    )


def _checked(given: PriceInput, now: datetime) -> Price:
    violations = Violations()
    violations.require(
        given.unit is not None, "price.unit", "none given; allowed: one of PriceUnit"
    )
    unit = given.unit or Unit.REQUEST
    amount = violations.take(
        lambda field, text: parse_amount(field, text, places=unit.places),
        "price.amount",
        given.amount,
    )
    violations.require(amount is None or amount >= 0, "price.amount", "allowed: 0 or more")
    for field in ("project", "model", "version"):
        value = getattr(given, field)
        if value:
            violations.take(check_id, f"price.{field}", value)
    violations.require(
        not given.version or bool(given.model),
        "price.model",
        "none given; allowed: the model of the version",
    )
    violations.raise_if_any()
    assert amount is not None
    return Price(
        id=NO_PRICE,
        unit=unit,
        amount=amount,
        project=given.project,
        model=given.model,
        version=given.version,
        valid_from_ns=nanoseconds(given.valid_from or now),
        create_time=now,
    )
