"""The alert store in the database."""

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import sqlalchemy as sa

from services.metering.adapters.database import Database
from services.metering.adapters.news import note
from services.metering.adapters.statements import Among, run
from services.metering.domain.spending import Notice, SpendingAlert, reached
from services.rpc.errors import ResourceExhaustedError

_TOPIC = "alerts"
_ALERT = "project, alert, monthly_amount, percents, webhook, create_us"
_NOTICE = (
    "id, project, alert, month, percent, spent, monthly_amount, webhook, create_us, deliver_us"
)
_PRESENT = (
    "coalesce((SELECT a.webhook FROM spending_alerts AS a"
    " WHERE a.project = n.project AND a.alert = n.alert), '')"
)
_UNDELIVERED = (
    "SELECT * FROM (SELECT id, project, alert, month, percent, spent, monthly_amount,"  # noqa: S608 - names of ours
    f" {_PRESENT} AS present, create_us, deliver_us FROM spending_notices AS n"
    " WHERE deliver_us IS NULL AND webhook <> '' AND id > ?) AS waiting WHERE"
)
_OVER = f"{_UNDELIVERED} create_us < ? OR present = ''"


def _alert(row: Sequence[Any]) -> SpendingAlert:
    return SpendingAlert(
        project=row[0],
        alert=row[1],
        monthly_amount=row[2],
        percents=tuple(json.loads(row[3])),
        webhook=row[4],
        create_us=row[5],
    )


def _notice(row: Sequence[Any]) -> Notice:
    return Notice(
        id=row[0],
        project=row[1],
        alert=row[2],
        month=row[3],
        percent=row[4],
        spent=row[5],
        monthly_amount=row[6],
        webhook=row[7],
        create_us=row[8],
        deliver_us=row[9],
    )


class SqlAlerts:
    """An AlertStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def follow(self, taken: Callable[[Sequence[str]], None]) -> None:
        self._database.follow(_TOPIC, lambda _, projects: taken(list(projects)))

    def alone(self) -> AbstractAsyncContextManager[None]:
        return self._database.alone("spending notices")

    @property
    def is_shared(self) -> bool:
        return self._database.process is not None

    async def put(self, alert: SpendingAlert, most: int) -> SpendingAlert:
        def work(connection: sa.Connection) -> SpendingAlert:
            _check_room(connection, alert, most)
            run(
                connection,
                f"INSERT INTO spending_alerts ({_ALERT}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
                " ON CONFLICT (project, alert) DO UPDATE SET monthly_amount = excluded.monthly_amount,"
                " percents = excluded.percents, webhook = excluded.webhook",
                (
                    alert.project,
                    alert.alert,
                    alert.monthly_amount,
                    json.dumps(alert.percents),
                    alert.webhook,
                    alert.create_us,
                ),
            )
            note(connection, _TOPIC, alert.project)
            return _alerts(connection, alert.project, alert.alert)[0]

        return await self._database.write(lambda c: c.run_sync(work))

    async def alerts(self, project: str) -> Sequence[SpendingAlert]:
        return await self._database.read(lambda c: c.run_sync(_alerts, project))

    async def delete(self, project: str, alert: str) -> bool:
        def work(connection: sa.Connection) -> bool:
            found = run(
                connection,
                "DELETE FROM spending_alerts WHERE project = ? AND alert = ?",
                (project, alert),
            )
            return found.rowcount > 0

        return await self._database.write(lambda c: c.run_sync(work))

    async def tell(self, project: str, month: int, now_us: int) -> Sequence[Notice]:
        return await self._database.write(lambda c: c.run_sync(_tell, project, month, now_us))

    async def months(self, projects: Collection[str]) -> Sequence[tuple[str, int]]:
        def work(connection: sa.Connection) -> list[tuple[str, int]]:
            rows = run(
                connection,
                "SELECT project, month FROM spending WHERE project AMONG ? ORDER BY month",
                (Among(sorted(projects)),),
            )
            return [(row[0], row[1]) for row in rows]

        return await self._database.read(lambda c: c.run_sync(work))

    async def notices(self, project: str, before: int, most: int) -> Sequence[Notice]:
        def work(connection: sa.Connection) -> list[Notice]:
            rows = run(
                connection,
                f"SELECT {_NOTICE} FROM spending_notices"  # noqa: S608
                " WHERE (? = '' OR project = ?) AND (? = 0 OR id < ?) ORDER BY id DESC LIMIT ?",
                (project, project, before, before, most),
            )
            return [_notice(row) for row in rows]

        return await self._database.read(lambda c: c.run_sync(work))

    async def undelivered(self, after: int, most: int) -> Sequence[Notice]:
        def work(connection: sa.Connection) -> list[Notice]:
            rows = run(
                connection, f"{_UNDELIVERED} present <> '' ORDER BY id LIMIT ?", (after, most)
            )
            return [_notice(row) for row in rows]

        return await self._database.read(lambda c: c.run_sync(work))

    async def delivered(self, notice: Notice, now_us: int) -> None:
        def work(connection: sa.Connection) -> None:
            run(
                connection,
                "UPDATE spending_notices SET deliver_us = ? WHERE id = ?",
                (now_us, notice.id),
            )

        await self._database.write(lambda c: c.run_sync(work))

    async def give_up(self, before_us: int) -> Sequence[Notice]:
        def found(connection: sa.Connection) -> list[Notice]:
            return [_notice(row) for row in run(connection, _OVER, (0, before_us))]

        def work(connection: sa.Connection) -> list[Notice]:
            over = found(connection)
            run(
                connection,
                "UPDATE spending_notices SET webhook = '' WHERE id = ?",
                [(one.id,) for one in over],
            )
            return over

        if not await self._database.read(lambda c: c.run_sync(found)):
            return ()  # nearly always, and nobody has to wait for the writer
        return await self._database.write(lambda c: c.run_sync(work))


def _check_room(connection: sa.Connection, alert: SpendingAlert, most: int) -> None:
    others = run(
        connection,
        "SELECT count(*) FROM spending_alerts WHERE project = ? AND alert <> ?",
        (alert.project, alert.alert),
    ).scalar_one()
    if others >= most:
        raise ResourceExhaustedError(
            f"projects/{alert.project} has {others} alerts, and can't have more",
            metadata={"resource": f"projects/{alert.project}", "most": str(most)},
        )


def _alerts(connection: sa.Connection, project: str, alert: str = "") -> list[SpendingAlert]:
    rows = run(
        connection,
        f"SELECT {_ALERT} FROM spending_alerts"  # noqa: S608 - names of ours
        " WHERE (? = '' OR project = ?) AND (? = '' OR alert = ?) ORDER BY project, alert",
        (project, project, alert, alert),
    )
    return [_alert(row) for row in rows]


def _tell(connection: sa.Connection, project: str, month: int, now_us: int) -> list[Notice]:
    spent = run(
        connection, "SELECT amount FROM spending WHERE project = ? AND month = ?", (project, month)
    ).scalar()
    found = []
    for alert in _alerts(connection, project) if spent is not None else ():
        for percent in reached(alert, int(spent or 0)):
            key = (project, alert.alert, month, percent)
            told = run(
                connection,
                "SELECT 1 FROM spending_notices"
                " WHERE project = ? AND alert = ? AND month = ? AND percent = ?",
                key,
            ).first()
            if told is not None:
                continue
            row = run(
                connection,
                "INSERT INTO spending_notices (project, alert, month, percent, spent,"
                " monthly_amount, webhook, create_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                (*key, spent, alert.monthly_amount, alert.webhook, now_us),
            )
            found.append(
                Notice(
                    id=row.scalar_one(),
                    project=project,
                    alert=alert.alert,
                    month=month,
                    percent=percent,
                    spent=int(spent or 0),
                    monthly_amount=alert.monthly_amount,
                    webhook=alert.webhook,
                    create_us=now_us,
                    deliver_us=None,
                )
            )
    return found
