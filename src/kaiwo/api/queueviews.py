"""Queues and their shares, as people see them; read after `fresh_queues`."""

from collections.abc import Iterable
from heapq import merge
from itertools import islice

from kaiwo.api.sharewords import arithmetic, reclaim_words
from kaiwo.api.views import (
    AmountView,
    ModelAmountView,
    Page,
    PlaceView,
    QueueView,
    ShareView,
    TermsView,
    TurnView,
)
from kaiwo.model.queue import DEFAULT_FAIRNESS, UNLIMITED, Amounts, SharePolicy
from kaiwo.queues.terms import ShareTerms
from kaiwo.runtime.board import Board, QueueSums
from kaiwo.runtime.standings import QueueStanding, Turn
from kaiwo.snapshot.picture import Picture

FIRST = 5  # of each line


class Lines:
    """Who is first in line in each of these queues: taken while the picture stands still."""

    def __init__(self, picture: Picture, names: Iterable[str]) -> None:
        self.orders = [plugin.name for plugin in getattr(picture.backlog.order, "plugins", ())]
        self.of = {name: self._first(picture, name) for name in names}

    def _first(self, picture: Picture, queue: str) -> list[PlaceView]:
        lines = [each.line for each in picture.backlog.by_queue.get(queue, {}).values()]
        found = []
        for keys, name in islice(merge(*lines), FIRST):
            workload = picture.workloads[name]
            found.append(PlaceView(name, workload.priority, workload.submitted_s, [list(each) for each in keys]))
        return found


def queue_page(board: Board) -> Page[QueueView]:
    """Every queue."""
    items = [_queue_view(sums) for sums in board.sum_queues()]
    return Page(items, len(items))


def share_page(queues: list[QueueStanding], lines: Lines) -> Page[ShareView]:
    """The arithmetic of every queue. With 1,000 queues it takes a thread's time, not the event loop's."""
    by_name = {each.queue.name: each for each in queues}
    items = [_share_view(each, by_name.get(each.queue.parent), lines) for each in queues]
    return Page(items, len(items))


def _queue_view(sums: QueueSums) -> QueueView:
    each = sums.standing
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
        users=list(queue.users),
        created_s=queue.created_s,
    )


def _amount(amounts: Amounts, each: QueueStanding, at: int) -> AmountView:
    terms = each.terms[at]
    waiting = terms.wants - each.used[at]
    return AmountView(amounts.quota, amounts.limit, amounts.weight, each.used[at], waiting, each.fixed[at], terms.share)


def _models(each: QueueStanding) -> dict[str, ModelAmountView]:
    at = {terms.resource: number for number, terms in enumerate(each.terms)}
    return {
        model: ModelAmountView(
            bound.quota, bound.limit, each.used[at[model]], each.fixed[at[model]], each.terms[at[model]].share
        )
        for model, bound in each.queue.gpu_models.items()
    }


def _share_view(each: QueueStanding, parent: QueueStanding | None, lines: Lines) -> ShareView:
    policy = DEFAULT_FAIRNESS.policy if parent is None else parent.policy
    return ShareView(
        queue=each.queue.name,
        parent="" if parent is None else parent.queue.name,
        depth=each.depth,
        policy=policy or SharePolicy.DRF,
        reclaim=reclaim_words(each),
        resources=[_terms_view(each, parent, terms, at) for at, terms in enumerate(each.terms)],
        turn=None if each.turn is None else _turn_view(each.turn),
        orders=lines.orders,
        line=lines.of.get(each.queue.name, []),
    )


def _terms_view(each: QueueStanding, parent: QueueStanding | None, terms: ShareTerms, at: int) -> TermsView:
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


def _turn_view(turn: Turn) -> TurnView:
    first, over_share, over_quota, priority, no_share, with_it, without, gpu_milli, age = turn.keys
    return TurnView(
        place=turn.place,
        of=turn.of,
        workload=turn.head.workload,
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
