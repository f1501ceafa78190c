"""Consumption by day: what is asked for, and how it is grouped."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

MAX_ROWS = 50_000  # of one answer; there is one more where it is not whole
MONTH_OF = "strftime('%Y-%m', day * 86400, 'unixepoch')"
DAY_OF = "strftime('%Y-%m-%d', day * 86400, 'unixepoch')"


class Grouping(StrEnum):
    MONTH = "month"
    DAY = "day"
    QUEUE = "queue"
    USER = "user"


class ConsumptionQuery(NamedTuple):
    """Both days are included. Empty: all of them."""

    by: Sequence[Grouping]
    from_day: int  # since 1970
    to_day: int
    queues: Sequence[str] = ()
    user: str = ""


class Consumption(NamedTuple):
    """What is not grouped by is empty."""

    period: str
    queue: str
    user: str
    held_milli_s: int
    known_milli_s: int
    used_milli_s: int


def select_consumption(query: ConsumptionQuery) -> tuple[str, tuple[object, ...]]:
    """The SQL and its values; a row has the fields of Consumption."""
    period = MONTH_OF if Grouping.MONTH in query.by else DAY_OF if Grouping.DAY in query.by else "''"
    queue = "queue" if Grouping.QUEUE in query.by else "''"
    user = "user" if Grouping.USER in query.by else "''"
    where, values = "day BETWEEN ? AND ?", [query.from_day, query.to_day, *query.queues]
    if query.queues:
        where += f" AND queue IN ({', '.join('?' * len(query.queues))})"
    if query.user:
        where += " AND user = ?"
        values.append(query.user)
    sums = "sum(held_milli_s), sum(known_milli_s), sum(used_milli_s)"
    select = f"SELECT {period}, {queue}, {user}, {sums} FROM consumption WHERE {where} GROUP BY 1, 2, 3 LIMIT ?"
    return select, (*values, MAX_ROWS + 1)
