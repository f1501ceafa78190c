"""The routes of the time series: what is recorded, of whom, and the values of a range."""

from typing import Any

from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import did_you_mean, invalid
from kaiwo.api.http.query_params import Param
from kaiwo.api.views.series import MeasuresView, MeasureView, OneSeriesView, SeriesView, SubjectsView
from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import MEASURES, SubjectKind, measures_of
from kaiwo.history.series.resolutions import HOURS, Statistic
from kaiwo.history.series.series_reader import MAX_POINTS, SeriesQuery

KINDS = tuple(kind.value for kind in SubjectKind)
STATISTICS = {"mean": Statistic.MEAN, "most": Statistic.MOST}
DAY_S, LATEST_S = 86_400, 2**40
MAX_VALUES = 100_000  # of one answer: they are written on the event loop

KIND = Param("kind", "choice", "Of what.", choices=KINDS, required=True)
MEASURE = Param("measure", "text", "One of /series/measures.", required=True, example="gpu_used_milli")
NAME = Param("name", "words", "Subjects (default: the only one of its kind).")
FROM = Param("from", "int", "Begin at this time, in seconds; instead of `last`.", None, 0, LATEST_S)
LAST = Param("last", "int", "Begin so many seconds before the end.", DAY_S, 1, LATEST_S)
TO = Param("to", "int", "End before this time, in seconds (default: now).", None, 0, LATEST_S)
POINTS = Param("points", "int", "At most this many values for each subject.", 300, 1, MAX_POINTS)
STATISTIC = Param("statistic", "choice", "Of the samples that a value stands for.", "mean", choices=tuple(STATISTICS))


async def list_measures(call: EndpointCall) -> MeasuresView:
    return MeasuresView([MeasureView(each.kind.value, each.name, each.help) for each in MEASURES])


async def list_subjects(call: EndpointCall) -> SubjectsView:
    kind = SubjectKind(call.query["kind"])
    async with call.context.turns.of(call.person):
        return SubjectsView(kind.value, await call.context.series.names(kind))


async def read_series(call: EndpointCall) -> SeriesView:
    query = _query(call.query, call.context.live.cluster.now_s())
    async with call.context.turns.of(call.person):  # all readers share one file, and threads with everybody else
        found = await call.context.series.read(query)
    rows = [[None if value == MISSING else value for value in row] for row in found.values.tolist()]
    series = [OneSeriesView(name, row) for name, row in zip(query.names, rows, strict=True)]
    return SeriesView(query.kind.value, query.measure, call.query["statistic"], found.begins_s, found.step_s, series)


def _query(given: dict[str, Any], now_s: int) -> SeriesQuery:
    kind = SubjectKind(given["kind"])
    known = [each.name for each in measures_of(kind)]
    if given["measure"] not in known:
        raise invalid(
            f"there is no measure '{given['measure']}' of a {kind.value}{did_you_mean(given['measure'], known)}; "
            f"there are: {', '.join(known)}",
            "measure",
        )
    names = given["name"] or _only_name(kind)
    if len(names) * given["points"] > MAX_VALUES:
        raise invalid(
            f"{len(names):,} names with {given['points']:,} points are more than {MAX_VALUES:,} values; name fewer, or "
            "ask for fewer points",
            "points",
        )
    to_s = now_s + 1 if given["to"] is None else given["to"]
    from_s = max(0, to_s - given["last"]) if given["from"] is None else given["from"]
    if from_s >= to_s:
        raise invalid(f"the range begins at {from_s} and ends at {to_s}; it must begin before it ends", "from")
    # Nothing is known of other times, and each step of a range takes memory.
    earliest_s, latest_s = max(0, now_s - HOURS.keep_s - DAY_S), now_s + DAY_S
    if to_s <= earliest_s or from_s >= latest_s:
        raise invalid(f"nothing is recorded from {from_s} to {to_s}; {HOURS.keep_s // DAY_S} days are kept", "from")
    from_s, to_s = max(from_s, earliest_s), min(to_s, latest_s)
    return SeriesQuery(kind, given["measure"], names, from_s, to_s, given["points"], STATISTICS[given["statistic"]])


def _only_name(kind: SubjectKind) -> tuple[str, ...]:
    only = {SubjectKind.CLUSTER: "cluster", SubjectKind.SCHEDULER: "scheduler", SubjectKind.PROCESS: "kaiwo"}
    if kind not in only:
        raise invalid(f"name is missing; /series/subjects?kind={kind.value} lists all names", "name")
    return (only[kind],)


ROUTES = (
    Route("GET", "/series", "One measure of some subjects over a range of time.", read_series, SeriesView,
          params=(KIND, MEASURE, NAME, FROM, LAST, TO, POINTS, STATISTIC), errors=(404,)),
    Route("GET", "/series/measures", "What is recorded.", list_measures, MeasuresView),
    Route("GET", "/series/subjects", "Of whom something was recorded.", list_subjects, SubjectsView, params=(KIND,)),
)  # fmt: skip
