"""The queues' fair shares, demand and usage in the current cycle.

What a queue demands is what it uses plus what waits in it. Placing work changes neither sum, so demand and fair shares
are computed once a cycle; usage follows the view's placements.
"""

import numpy as np

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.queue import POLICY_RULES
from kaiwo.queues.fair_share import FairShares, QueueDemand, ShareRules, fair_shares
from kaiwo.queues.reclaim_rules import QueueShares, queue_shares
from kaiwo.queues.resource_division import MAX_AMOUNT
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import Demand
from kaiwo.snapshot.gpu_model_usage import only_model
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.view import View, once_per_cycle


@once_per_cycle
def queue_demand_of(view: View) -> QueueDemand:
    """What the cluster has, and what every queue uses and requests, as of the cycle's start."""
    gpu_mib = _average_gpu_mib(view)
    asked = {queue: _charge(demand, gpu_mib) for queue, demand in view.queue_demand.items()}
    for queue in [queue for queue, demand in view.queue_demand.items() if demand.both_gpus]:
        gpu_milli, *rest = asked[queue]
        asked[queue] = (gpu_milli + _memory_beyond_fractions(view, queue, gpu_mib), *rest)
    if view.queues.models:
        asked = {queue: (*charge, *_asked_by_model(view, queue)) for queue, charge in asked.items()}
    request = view.queues.all_used + np.minimum(view.queues.sum_up_tree(asked), MAX_AMOUNT)
    by_wait = any(POLICY_RULES[policy].by_wait for policy in view.queues.tree.policy)
    oldest_s = view.oldest_submission_s() if by_wait else None
    return QueueDemand(_totals(view), request, oldest_s, _past_usage(view))


@once_per_cycle
def fair_shares_of(view: View) -> FairShares:
    strength_milli = view.past_usage.strength_milli if view.past_usage is not None else 0
    return fair_shares(view.queues, queue_demand_of(view), ShareRules(usage_strength_milli=strength_milli))


@once_per_cycle
def current_shares(view: View) -> QueueShares:
    """Usage against fair shares, quotas and limits; `used` and `non_preemptible` follow the view's placements."""
    return queue_shares(view.queues, fair_shares_of(view).share, view.all_used, view.all_non_preemptible)


def _past_usage(view: View) -> IntArray | None:
    """By queue and resource: its recent part of the cluster; 0 for queues without a record."""
    if view.past_usage is None:
        return None
    past = np.zeros_like(view.queues.all_used)  # for single models it is not tracked
    for row, name in enumerate(view.queues.names):
        parts = view.past_usage.parts.get(name, ())
        past[row, : len(parts)] = parts
    return past


def _totals(view: View) -> IntArray:
    nodes = view.nodes
    models = [
        int((nodes.device_milli * nodes.gpus[:, USABLE])[nodes.gpu_model == nodes.models.index(model)].sum())
        if model in nodes.models
        else 0
        for model in view.queues.models
    ]
    return np.append(nodes.totals(), np.array(models, np.int64))


def _asked_by_model(view: View, queue: str) -> list[int]:
    asked = dict.fromkeys(view.queues.models, 0)
    for want, pods in view.waiting_requests(queue):
        model = only_model(want, view.nodes.models)
        if model in asked:
            asked[model] += want.charge_milli * pods
    return list(asked.values())


def _average_gpu_mib(view: View) -> int:
    """The memory of an average healthy device: a waiting memory request has no device yet."""
    usable = view.nodes.gpus[:, USABLE]
    devices = int(usable.sum())
    return max(1, int((view.nodes.gpus[:, SIZE] * usable).sum()) // devices) if devices else 1


def _memory_beyond_fractions(view: View, queue: str, gpu_mib: int) -> int:
    """Where a fraction and memory are requested, and the memory is the larger need: how much larger it is."""
    both = [(want, pods) for want, pods in view.waiting_requests(queue) if want.is_memory and want.fraction_milli]
    return sum((want.charge_on(gpu_mib) - want.fraction_milli) * want.gpus * pods for want, pods in both)


def _charge(demand: Demand, gpu_mib: int) -> ResourceVector:
    # At least what the queue will be charged: who demands less than he needs may not reclaim it.
    gpu_milli = demand.gpu_milli + demand.gpu_mib * WHOLE_MILLI // gpu_mib + demand.memory_gpus
    return gpu_milli, demand.cpu_milli, demand.memory_mib
