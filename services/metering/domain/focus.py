"""Charges as FOCUS 1.2 tells them (FinOps Open Cost and Usage Specification), one line for each.

The installation is the billing account and a project a sub account. A charge's period is the day (UTC) on which the
ledger posted it: so a period's lines sum to what the ledger has for it, to the last decimal.
What has no price is no charge.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from services.metering.domain.export import Holds, TableColumn, columns
from services.metering.domain.ledger import EntryKind
from services.metering.domain.money import ONE
from services.metering.domain.period import Grain, period_of
from services.metering.domain.price import Price
from services.metering.domain.unit import Unit

_NAME = "inferplane"
_HOUR_US = 3600 * 10**6
DAY_US = 24 * _HOUR_US
_UNITS = {
    Unit.REQUEST: ("Requests", "Requests"),
    Unit.INPUT_TOKEN: ("Tokens", "Input tokens"),
    Unit.CACHED_TOKEN: ("Tokens", "Cached input tokens"),
    Unit.OUTPUT_TOKEN: ("Tokens", "Output tokens"),
    Unit.COMPUTE_SECOND: ("Seconds", "Compute seconds"),
    Unit.ROW: ("Rows", "Rows"),
}

COLUMNS: tuple[TableColumn, ...] = (
    *columns(Holds.DECIMAL, "BilledCost"),
    *columns(Holds.TEXT, "BillingAccountId", "BillingAccountName", "BillingAccountType"),
    *columns(Holds.TEXT, "BillingCurrency"),
    *columns(Holds.TIME, "BillingPeriodEnd", "BillingPeriodStart"),
    *columns(Holds.TEXT, "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency"),
    *columns(Holds.TIME, "ChargePeriodEnd", "ChargePeriodStart"),
    *columns(Holds.TEXT, "CommitmentDiscountStatus"),
    *columns(Holds.DECIMAL, "ConsumedQuantity"),
    *columns(Holds.TEXT, "ConsumedUnit"),
    *columns(Holds.DECIMAL, "ContractedCost", "ContractedUnitPrice", "EffectiveCost"),
    *columns(Holds.TEXT, "InvoiceId", "InvoiceIssuerName"),
    *columns(Holds.DECIMAL, "ListCost", "ListUnitPrice"),
    *columns(Holds.TEXT, "PricingCategory", "PricingCurrency"),
    *columns(Holds.DECIMAL, "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost"),
    *columns(Holds.DECIMAL, "PricingCurrencyListUnitPrice", "PricingQuantity"),
    *columns(Holds.TEXT, "PricingUnit", "ProviderName", "PublisherName"),
    *columns(Holds.TEXT, "ResourceId", "ResourceName", "ResourceType"),
    *columns(Holds.TEXT, "ServiceCategory", "ServiceName", "ServiceSubcategory"),
    *columns(Holds.TEXT, "SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId"),
    *columns(Holds.TEXT, "SubAccountId", "SubAccountName", "SubAccountType", "Tags"),
    *columns(Holds.TEXT, "x_ApiKeyId", "x_LedgerEntry", "x_Model", "x_ModelVersion"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a day's postings of one subject, unit and price sum up to; or a credit or correction."""

    day: int  # first hour
    kind: EntryKind
    project: str
    amount: int  # 10^-12 of the currency; positive: the project owes more
    key: str = ""
    endpoint: str = ""
    model: str = ""
    version: str = ""
    quantity: int = 0
    price: Price | None = None  # of usage
    entry: int = 0  # of credits and corrections
    reason: str = ""
    corrects_earlier_month: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """Whose charges they are, and how project and key are tagged."""

    name: str
    currency: str


def line(charge: Charge, account: Account, tags: Mapping[str, str]) -> tuple[object, ...]:
    """The charge's values, in the order of COLUMNS."""
    cost, currency = charge.amount, account.currency
    month = Grain.MONTH.start(charge.day)
    values: dict[str, object] = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        "PricingCurrencyEffectiveCost": cost,
        "BillingAccountId": account.name,
        "BillingAccountName": account.name,
        "BillingAccountType": "Installation",
        "BillingCurrency": currency,
        "PricingCurrency": currency,
        "BillingPeriodStart": month * _HOUR_US,
        "BillingPeriodEnd": Grain.MONTH.following(month) * _HOUR_US,
        "ChargePeriodStart": charge.day * _HOUR_US,
        "ChargePeriodEnd": (charge.day + 24) * _HOUR_US,
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), _NAME),
        # Known before it is sent: its lines sum to what the project is to pay for the month.
        "InvoiceId": f"{account.name}/{charge.project or '-'}/{period_of(Grain.MONTH, month)}",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": _NAME,
        "ServiceSubcategory": "AI Platforms",
        "SubAccountId": f"projects/{charge.project}" if charge.project else None,
        "SubAccountName": charge.project or None,
        "SubAccountType": "Project" if charge.project else None,
        "Tags": json.dumps(dict(sorted(tags.items()))) if tags else None,
        **(_usage(charge, charge.price) if charge.price else _entry(charge)),
    }
    return tuple(values.get(column.name) for column in COLUMNS)


def _usage(charge: Charge, price: Price) -> dict[str, object]:
    unit, meter = _UNITS[price.unit]
    quantity = charge.quantity * (ONE // price.unit.counts_per_unit)
    scope = "/".join(part for part in (price.model, price.version, price.unit.word) if part)
    unit_prices = (
        *("ContractedUnitPrice", "ListUnitPrice"),
        *("PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"),
    )
    return {
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{meter} of {charge.model or 'models'}",
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "PricingCategory": "Standard",
        **dict.fromkeys(unit_prices, price.amount),
        "ResourceId": f"endpoints/{charge.endpoint}" if charge.endpoint else None,
        "ResourceName": charge.endpoint or None,
        "ResourceType": "Endpoint" if charge.endpoint else None,
        "SkuId": scope,
        "SkuMeter": meter,
        "SkuPriceId": f"prices/{price.id}",
        "x_ApiKeyId": charge.key or None,
        "x_Model": charge.model or None,
        "x_ModelVersion": charge.version or None,
    }


def _entry(charge: Charge) -> dict[str, object]:
    credit = charge.kind is EntryKind.CREDIT
    return {
        "ChargeCategory": "Credit" if credit else "Adjustment",
        "ChargeClass": "Correction" if charge.corrects_earlier_month else None,
        "ChargeDescription": charge.reason,
        "ChargeFrequency": "One-Time",
        "x_LedgerEntry": f"ledgerEntries/{charge.entry}",
    }
