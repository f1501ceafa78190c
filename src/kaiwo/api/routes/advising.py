"""The routes of advice, capacity plans, trends and adjustments."""

import contextlib

from kaiwo.advise.advice import Advice, SizeChange
from kaiwo.advise.advice_sentences import advice_words, resized_words
from kaiwo.advise.right_size import Resized
from kaiwo.advise.trends import trend_of
from kaiwo.api.endpoint import EndpointCall, Route
from kaiwo.api.http.problems import invalid
from kaiwo.api.http.query_params import Param
from kaiwo.api.security.roles import Right
from kaiwo.api.views.advice import (
    AdjustmentListView,
    AdjustmentView,
    AdviceListView,
    AdviceView,
    CapacityOutlookView,
    CapacityView,
    ResizedView,
    TrendsView,
    TrendView,
)
from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.series_reader import SeriesQuery
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.errors import ConfigError, NotFoundError
from kaiwo.runtime.advising.adjustment_file import Adjustment, AdjustmentKind
from kaiwo.runtime.advising.advisor import MAX_ADDED, NodesToTry

HIDDEN = "Operators and admins see the work of everybody; you see your own."
DAY_S, HOUR_S, MAX_QUEUES = 86_400, 3600, 100
DEFAULT_SIZES = (1, 2, 4, 8)
NODES = Param("nodes", "words", "Numbers of nodes to add: 4, or 4:H100; repeat it (default: 1, 2, 4 and 8).")
GROWTH = Param("growth", "int", "How much more work arrives than in the last day, in percent.", 0, 0, 1000)
LIMIT = Param("limit", "int", "At most this many, the newest first.", 100, 1, 1000)
WORKLOAD = Param("workload", "text", "Only of this workload.")


async def get_advice(call: EndpointCall) -> AdviceListView:
    async with call.context.turns.of(call.person):
        found = await call.context.advisor.advice()
    if found.answer is None:
        return AdviceListView(found.as_of_s, [], 0, 0, False, is_pending=True)
    sees_all = call.person.has(Right.OPERATE)
    items = [each for each in found.answer.advice if sees_all or _is_own(each, call.person.name)]
    hidden = "" if sees_all else HIDDEN
    answer = found.answer
    return AdviceListView(
        found.as_of_s, [_view(each) for each in items], answer.tried, answer.refused, answer.is_whole, False, hidden
    )


def _is_own(advice: Advice, person: str) -> bool:
    """What operators do is theirs to see; of recurring work, only its user sees how it uses GPUs."""
    return not isinstance(advice.change, SizeChange) or (bool(person) and advice.change.user == person)


def _view(each: Advice) -> AdviceView:
    words, gain = advice_words(each), each.gain
    sizes = _sizes(each.change.reasons) if isinstance(each.change, SizeChange) else []
    return AdviceView(
        each.kind.value, each.subject, *words,
        wait_s=[gain.before.wait_s, gain.after.wait_s],
        started_now=[gain.before.started_now, gain.after.started_now],
        held_gpu_s=[gain.before.held_gpu_s, gain.after.held_gpu_s],
        sooner=gain.sooner, later=gain.later, sizes=sizes,
    )  # fmt: skip


def _sizes(reasons: tuple[Resized, ...]) -> list[ResizedView]:
    return [ResizedView(each.amount, each.asked, each.peak, each.expected, each.given, each.runs) for each in reasons]


async def get_capacity(call: EndpointCall) -> CapacityView:
    tried = [_nodes_to_try(text) for text in call.query["nodes"]] or [NodesToTry(nodes) for nodes in DEFAULT_SIZES]
    now_s, growth = call.context.live.cluster.now_s(), call.query["growth"]
    async with call.context.turns.of(call.person):
        try:
            found = await call.context.advisor.capacity(tried, growth)
        except ConfigError as error:
            raise invalid(str(error), "nodes") from None
    if found is None:
        return CapacityView(now_s, [], 0, 0, growth, 0, False, is_pending=True)
    outlooks = [
        CapacityOutlookView(
            each.name if each.nodes else "", each.nodes, each.gpus, each.p50_s, each.p90_s, each.mean_s,
            each.started_permille / 1000, each.used_permille / 1000,
        )
        for each in found.outlooks
    ]  # fmt: skip
    return CapacityView(now_s, outlooks, found.waiting, found.arriving, growth, found.unknown, found.is_whole)


def _nodes_to_try(text: str) -> NodesToTry:
    number, _, model = text.partition(":")
    if not number.isdecimal() or not 1 <= int(number[:9]) <= MAX_ADDED:
        raise invalid(f"nodes is '{text[:40]}'; write a number from 1 to {MAX_ADDED:,}, such as 4 or 4:H100", "nodes")
    return NodesToTry(int(number), model)


async def get_trends(call: EndpointCall) -> TrendsView:
    context, now_s = call.context, call.context.live.cluster.now_s()
    days = 14
    async with context.turns.of(call.person):
        queues = sorted(context.live.state.queue_objects)[:MAX_QUEUES] if context.series.has_begun else []
        found: list[TrendView] = []
        for kind, names, bounded_by in (
            (SubjectKind.CLUSTER, ["cluster"] if context.series.has_begun else [], "gpu_milli"),
            (SubjectKind.QUEUE, queues, "gpu_quota_milli"),
        ):
            for name in names:
                bounds = await _hours(call, kind, name, bounded_by, now_s, days)
                bound = next((each for each in reversed(bounds) if each is not None), None)
                for measure in ("gpu_used_milli", "waiting"):
                    values = await _hours(call, kind, name, measure, now_s, days)
                    trend = trend_of(values, bound if measure == "gpu_used_milli" else None)
                    if trend is not None:
                        found.append(
                            TrendView(
                                kind.value, name, measure, trend.now, trend.before, trend.span_h, trend.per_day,
                                trend.full_in_days,
                            )
                        )  # fmt: skip
    return TrendsView(now_s, found, days)


async def _hours(
    call: EndpointCall, kind: SubjectKind, name: str, measure: str, now_s: int, days: int
) -> list[int | None]:
    """One value for each hour; none where nothing was ever recorded."""
    begins_s = max(0, now_s - days * DAY_S) // HOUR_S * HOUR_S
    query = SeriesQuery(kind, measure, (name,), begins_s, max(begins_s + HOUR_S, now_s), days * 24 + 1)
    with contextlib.suppress(NotFoundError):
        found = await call.context.series.read(query)
        hours: list[int | None] = [None if value == MISSING else value for value in found.values[0].tolist()]
        step = max(1, HOUR_S // found.step_s)
        return hours[::step] if step > 1 else hours
    return []


async def get_adjustments(call: EndpointCall) -> AdjustmentListView:
    adjuster, policy = call.context.adjuster, call.context.live.policy
    sees_all, wanted = call.person.has(Right.OPERATE), call.query["workload"]
    items = [
        each
        for each in reversed(adjuster.history)
        if (sees_all or each.user == call.person.name) and (not wanted or each.workload == wanted)
    ]
    shown = [_adjustment(each) for each in items[: call.query["limit"]]]
    hidden, now_s = "" if sees_all else HIDDEN, call.context.live.cluster.now_s()
    return AdjustmentListView(now_s, policy.adjustment, policy.idle_action, shown, len(adjuster.uses), hidden)


def _adjustment(each: Adjustment) -> AdjustmentView:
    owner = (each.at_s, each.workload, each.submission, each.user, each.queue)
    return AdjustmentView(*owner, each.kind.value, _reason(each), _sizes(each.reasons), each.refused)


def _reason(each: Adjustment) -> str:
    sizes = ", ".join(map(resized_words, each.reasons))
    idle = rounded_duration(each.idle_s)
    match each.kind:
        case AdjustmentKind.RESTORED:
            return "it failed when it had used all that it was given; it waits again, with all that it asked for"
        case AdjustmentKind.IDLE_WARNING:
            return f"its GPUs have done nothing for {idle}"
        case AdjustmentKind.IDLE_SHRUNK:
            return f"its GPUs had done nothing for {idle}; it starts again with {sizes}"
        case AdjustmentKind.IDLE_RELEASED:
            return f"its GPUs had done nothing for {idle}; it is held, and starts again with: kaiwo release"
        case _:
            return sizes


ROUTES = (
    Route("GET", "/advice", "Changes that help, each checked by running the scheduler forward.", get_advice,
          AdviceListView),
    Route("GET", "/capacity", "How long work would wait with more nodes.", get_capacity, CapacityView,
          params=(NODES, GROWTH)),
    Route("GET", "/trends", "Whether use and waiting rise or fall, of the cluster and of queues.", get_trends,
          TrendsView),
    Route("GET", "/adjustments", "What Kaiwo changed of what work asks for, and why.", get_adjustments,
          AdjustmentListView, params=(WORKLOAD, LIMIT)),
)  # fmt: skip
