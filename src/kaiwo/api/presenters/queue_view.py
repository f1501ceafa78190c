"""Views of queues and their fair shares, with the arithmetic of a share in sentences; call after `fresh_queues`."""

from collections.abc import Callable, Iterable
from heapq import merge
from itertools import islice

from kaiwo.api.views.answers import Page
from kaiwo.api.views.queues import (
    AmountView,
    ModelAmountView,
    QueueView,
    ShareView,
    TermsView,
    TurnView,
    WaitingWorkloadView,
)
from kaiwo.model.amounts import gpus, memory, thousandths
from kaiwo.model.priority_cap import priority_cap
from kaiwo.model.queue import DEFAULT_FAIRNESS, UNLIMITED, QueueAmounts, ReclaimStrategy, SharePolicy
from kaiwo.queues.fair_share import ShareBreakdown
from kaiwo.runtime.overview.cluster_overview import ClusterOverview, QueueTotals
from kaiwo.runtime.overview.queue_shares import QueuePosition, QueueShareRow
from kaiwo.snapshot.cluster_state import ClusterState

Formatter = Callable[[int], str]
FIRST = 5  # workloads of each queue
ROUNDED = {"gpu": "rounded down to whole GPUs", "cpu": "rounded down to 0.001 CPU", "memory": "rounded down to 1 MiB"}


def arithmetic(terms: ShareBreakdown, used: int, parent: str) -> list[str]:
    source = f"the fair share of {parent}" if parent else "all that the cluster has"
    lines = [f"divided {_writer(terms, terms.total)(terms.total)}: {source}"]
    write = _writer(terms, terms.wants, used)
    lines.append(f"wants {write(terms.wants)} = {write(used)} used + {write(terms.wants - used)} waiting")
    write = _writer(
        terms, terms.deserved, terms.total if terms.quota is None else terms.quota, terms.wants, terms.limit
    )
    lines.append(f"deserved {write(terms.deserved)} = the least of {_bounds(terms, write)}")
    write = _writer(terms, terms.share, terms.deserved, terms.whole, terms.remainder, terms.offered)
    part = f"{write(terms.whole)} ({_part(terms, write)}) + {write(terms.remainder)} remainder"
    return [*lines, f"share {write(terms.share)} = deserved {write(terms.deserved)} + {part}"]


def reclaim_words(each: QueueShareRow) -> str:
    if not each.is_leaf:
        return "only the queues below it reclaim capacity, each by its own strategy"
    terms = each.terms[0]
    match each.reclaim_strategy:
        case ReclaimStrategy.NONE:
            return "none: it never reclaims capacity"
        case ReclaimStrategy.CONSERVATIVE:
            bound, what = terms.quota, "quota"
        case _:
            bound, what = terms.share, "fair share"
    strategy, used = each.reclaim_strategy.value, each.used[0]
    if bound is None:
        return f"{strategy}: it may reclaim capacity without bound, since its {what} is unlimited"
    if used >= bound:
        return f"{strategy}: it reclaims nothing, since it uses {gpus(used)} and its {what} is {thousandths(bound)}"
    return f"{strategy}: it may reclaim {gpus(bound - used)} = {what} {thousandths(bound)} - {thousandths(used)} used"


def _bounds(terms: ShareBreakdown, write: Formatter) -> str:
    quota = f"quota unlimited ({write(terms.total)})" if terms.quota is None else f"quota {write(terms.quota)}"
    limit = "" if terms.limit is None else f", limit {write(terms.limit)}"
    return f"{quota}, wants {write(terms.wants)}{limit}"


def _part(terms: ShareBreakdown, write: Formatter) -> str:
    if terms.weights:
        rounded = ROUNDED.get(terms.resource, ROUNDED["gpu"])
        past = "" if terms.past_ppm is None else f" (it used {terms.past_ppm / 10_000:.1f} % of the cluster recently)"
        return f"weight {terms.weight} of {terms.weights}{past}, of {write(terms.offered)} left, {rounded}"
    if terms.whole:
        is_limited = terms.limit is not None and terms.limit < terms.wants
        return "all that its limit lets it have" if is_limited else "all it wants"
    if terms.deserved >= terms.wants:
        return "it wants no more"
    if terms.limit is not None and terms.deserved >= terms.limit:
        return "its limit"
    if not terms.weight:
        return "weight 0: never more than it deserves"
    return "nothing is left for it"


def _writer(terms: ShareBreakdown, *amounts: int | None) -> Formatter:
    """For the amounts of one line."""
    if terms.resource != "memory":
        return thousandths
    every = [amount for amount in amounts if amount]
    return lambda mib: memory(mib, *every) if mib else "0"


class QueueHeads:
    """The first workloads of each of these queues, read from one state of the cluster."""

    def __init__(self, state: ClusterState, names: Iterable[str]) -> None:
        self.orders = [plugin.name for plugin in getattr(state.backlog.order, "plugins", ())]
        self.of = {name: self._first(state, name) for name in names}

    def _first(self, state: ClusterState, queue: str) -> list[WaitingWorkloadView]:
        waiters = [each.waiters for each in state.backlog.by_queue.get(queue, {}).values()]
        first = [(state.workloads[name], keys) for keys, name in islice(merge(*waiters), FIRST)]
        return [WaitingWorkloadView(it.name, it.priority, it.submitted_s, [*map(list, keys)]) for it, keys in first]


def queue_page(overview: ClusterOverview) -> Page[QueueView]:
    queues = overview.live.state.queue_objects
    items = [_queue_view(sums, priority_cap(queues, sums.shares.queue.name).most) for sums in overview.sum_queues()]
    return Page(items, len(items))


def share_page(queues: list[QueueShareRow], heads: QueueHeads) -> Page[ShareView]:
    """The fair shares of all queues. With 1,000 queues, call it in a thread and not on the event loop."""
    by_name = {each.queue.name: each for each in queues}
    items = [_share_view(each, by_name.get(each.queue.parent), heads) for each in queues]
    return Page(items, len(items))


def _queue_view(sums: QueueTotals, max_priority: int) -> QueueView:
    each = sums.shares
    queue = each.queue
    return QueueView(
        name=queue.name,
        parent=queue.parent,
        display_name=queue.display_name,
        priority=queue.priority,
        depth=each.depth,
        is_leaf=each.is_leaf,
        gpu_milli=_amount(queue.gpu, each, 0),
        cpu_milli=_amount(queue.cpu, each, 1),
        memory_mib=_amount(queue.memory, each, 2),
        gpu_models=_models(each),
        running=sums.running,
        waiting=sums.waiting,
        policy=each.policy,
        reclaim_strategy=each.reclaim_strategy,
        min_runtime_s=each.min_runtime_s,
        namespaces=list(queue.namespaces),
        share_with=list(queue.share_with),
        max_threads=queue.max_threads_milli // 10,
        default_threads=queue.default_threads_milli // 10,
        max_share_mib=queue.max_share_mib,
        users=list(queue.users),
        created_s=queue.created_s,
        max_priority=max_priority,
    )


def _amount(amounts: QueueAmounts, each: QueueShareRow, at: int) -> AmountView:
    terms = each.terms[at]
    waiting = terms.wants - each.used[at]
    return AmountView(amounts.quota, amounts.limit, amounts.weight, each.used[at], waiting, each.fixed[at], terms.share)


def _models(each: QueueShareRow) -> dict[str, ModelAmountView]:
    at = {terms.resource: number for number, terms in enumerate(each.terms)}
    return {
        model: ModelAmountView(
            bound.quota, bound.limit, each.used[at[model]], each.fixed[at[model]], each.terms[at[model]].share
        )
        for model, bound in each.queue.gpu_models.items()
    }


def _share_view(each: QueueShareRow, parent: QueueShareRow | None, heads: QueueHeads) -> ShareView:
    policy = DEFAULT_FAIRNESS.policy if parent is None else parent.policy
    return ShareView(
        queue=each.queue.name,
        parent="" if parent is None else parent.queue.name,
        depth=each.depth,
        policy=policy or SharePolicy.DRF,
        reclaim=reclaim_words(each),
        resources=[_terms_view(each, parent, terms, at) for at, terms in enumerate(each.terms)],
        turn=None if each.position is None else _turn_view(each.position),
        orders=heads.orders,
        line=heads.of.get(each.queue.name, []),
    )


def _terms_view(each: QueueShareRow, parent: QueueShareRow | None, terms: ShareBreakdown, at: int) -> TermsView:
    used = each.used[at]
    return TermsView(
        resource=terms.resource,
        total=terms.total,
        used=used,
        fixed=each.fixed[at],
        waiting=terms.wants - used,
        wants=terms.wants,
        quota=UNLIMITED if terms.quota is None else terms.quota,
        limit=UNLIMITED if terms.limit is None else terms.limit,
        deserved=terms.deserved,
        offered=terms.offered,
        weight=terms.weight,
        weights=terms.weights,
        part=terms.whole,
        remainder=terms.remainder,
        share=terms.share,
        arithmetic=arithmetic(terms, used, "" if parent is None else parent.queue.name),
    )


def _turn_view(turn: QueuePosition) -> TurnView:
    first, over_share, over_quota, priority, no_share, with_it, without, gpu_milli, age = turn.keys
    return TurnView(
        place=turn.place,
        of=turn.of,
        workload=turn.first.workload,
        policy_key=first,
        is_over_share=bool(over_share),
        is_over_quota=bool(over_quota),
        priority=-priority,
        has_no_share=bool(no_share),
        dominant_with_it_ppm=with_it,
        dominant_ppm=without,
        gpu_milli=gpu_milli,
        age=age,
    )
