"""The routes about consumption: what queues and users held and used, and who holds idle GPUs."""

import asyncio

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import invalid
from kaiwo.api.http.query_params import Param
from kaiwo.api.security.roles import Right
from kaiwo.api.views.report import ConsumptionView, IdleListView, IdleView, ReportView
from kaiwo.history.past.consumption import MAX_ROWS, Consumption, ConsumptionQuery, Grouping
from kaiwo.history.past.past_reader import PastReader
from kaiwo.runtime.overview.workload_table import asked_milli
from kaiwo.runtime.recording.gpu_use_meter import IDLE_PERCENT

DAY_S, LATEST_S = 86_400, 2**40
GROUPINGS = tuple(each.value for each in Grouping)
HIDDEN = "Operators and admins see everybody; you see your own."
BY = Param("by", "choices", "Group by these; repeat it, or give several with commas (default: month, queue, user).",
           choices=GROUPINGS)  # fmt: skip
REPORT_PARAMS = (
    BY,
    Param("last", "int", "Begin so many seconds before now, with that day.", 365 * DAY_S, 1, LATEST_S),
    Param("from", "int", "Begin with the day of this time, in seconds; instead of `last`.", None, 0, LATEST_S),
    Param("to", "int", "End with the day of this time, in seconds (default: now).", None, 0, LATEST_S),
    Param("queue", "text", "Only of this queue and those below it."),
    Param("user", "text", "Only of this user."),
)


async def get_report(call: EndpointCall) -> ReportView:
    """Who may not operate sees sums of everybody, and of people only themselves."""
    query, past = call.query, call.context.past
    by = tuple(Grouping(each) for each in query["by"]) or (Grouping.MONTH, Grouping.QUEUE, Grouping.USER)
    if Grouping.MONTH in by and Grouping.DAY in by:
        raise invalid("group by month or by day, not by both", "by")
    user, hidden = query["user"] or "", ""
    names_people = bool(user) or Grouping.USER in by
    if names_people and not call.person.has(Right.OPERATE):
        hidden, user = HIDDEN, call.person.name
    to_s = call.context.live.cluster.now_s() if query["to"] is None else query["to"]
    from_s = max(0, to_s - query["last"]) if query["from"] is None else query["from"]
    if from_s > to_s:
        raise invalid(f"the range begins at {from_s} and ends at {to_s}; it must begin before it ends", "from")
    below = call.context.overview.queues_below(query["queue"]) if query["queue"] else ()
    queues = sorted({query["queue"], *below}) if query["queue"] else ()
    asked = ConsumptionQuery(by, from_s // DAY_S, to_s // DAY_S, queues, user)
    async with call.context.turns.of(call.person):  # all readers share one file, and threads with everybody else
        await past.flush_uses()
        rows = await asyncio.to_thread(_rows, past.reader, asked)
    if len(rows) > MAX_ROWS:
        raise invalid(f"these are more than {MAX_ROWS:,} rows; group by less, or choose a shorter time", "by")
    return ReportView(rows, hidden)


def _rows(reader: PastReader, asked: ConsumptionQuery) -> list[ConsumptionView]:
    return [_row(each) for each in reader.consumption(asked)]


def _row(each: Consumption) -> ConsumptionView:
    return ConsumptionView(each.period, each.queue, each.user, each.held_milli_s, each.known_milli_s, each.used_milli_s)


async def get_idle(call: EndpointCall) -> IdleListView:
    live, meter = call.context.live, call.context.past.meter
    now_s = live.cluster.now_s()
    items = []
    for key, idle in meter.idle.items():
        workload = live.state.workloads.get(key.workload)
        if workload is not None:
            held = idle.held_milli or asked_milli(workload)
            items.append(IdleView(key.workload, workload.queue, workload.user, held, idle.idle_milli, idle.since_s))
    items.sort(key=lambda each: (-each.idle_gpu_milli * (now_s - each.since_s), each.workload))
    return IdleListView(now_s, IDLE_PERCENT, meter.measures, items)


ROUTES = (
    Route("GET", "/report", "GPU time that queues and users held and used.", get_report, ReportView,
          params=REPORT_PARAMS),
    Route("GET", "/idle", "Running work whose GPUs do nothing.", get_idle, IdleListView),
)  # fmt: skip
