"""How the queues stand in a cycle: their fair shares, and what they hold against them.

In:    the view with this cycle's placements.   Out: shares, worked out once a cycle; standings that follow the view.
What a queue wants is what it uses and what waits in it: placing work changes neither, so shares hold for the cycle.
"""

import numpy as np

from kaiwo.model.gpu import WHOLE_MILLI
from kaiwo.model.queue import POLICY_RULES
from kaiwo.queues.fair_share import FairShares, QueueDemand, ShareRules, fair_shares
from kaiwo.queues.reclaim_rules import QueueShares, queue_shares
from kaiwo.queues.resource_division import MOST_AMOUNT
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.gpu_model_usage import only_model
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.view import View


def queue_demand_of(view: View) -> QueueDemand:
    """What there is, and what every queue uses and asks for, as of the cycle's start."""
    found = view.cache.get("wants")
    if found is None:
        gpu_mib = _usual_gpu_mib(view)
        asked = {queue: _charge(amount, gpu_mib) for queue, amount in view.queue_demand.items()}
        if view.queues.models:
            asked = {queue: (*charge, *_asked_by_model(view, queue)) for queue, charge in asked.items()}
        request = view.queues.all_used + np.minimum(view.queues.sum_up_tree(asked), MOST_AMOUNT)
        by_wait = any(POLICY_RULES[policy].by_wait for policy in view.queues.tree.policy)
        oldest_s = view.oldest_submission_s() if by_wait else None
        found = view.cache["wants"] = QueueDemand(_totals(view), request, oldest_s, _past(view))
    return found


def fair_shares_of(view: View) -> FairShares:
    """The fair shares of all queues, with every term."""
    found = view.cache.get("shares")
    if found is None:
        strength_milli = view.past_usage.strength_milli if view.past_usage is not None else 0
        rules = ShareRules(usage_strength_milli=strength_milli)
        found = view.cache["shares"] = fair_shares(view.queues, queue_demand_of(view), rules)
    return found


def current_shares(view: View) -> QueueShares:
    """How the queues stand now: `used` and `fixed` follow the view's placements."""
    found = view.cache.get("standing")
    if found is None:
        found = queue_shares(view.queues, fair_shares_of(view).share, view.all_used, view.all_non_preemptible)
        view.cache["standing"] = found
    return found


def _past(view: View) -> IntArray | None:
    """By queue and resource: its part of the cluster lately; a queue that nobody spoke of used nothing."""
    if view.past_usage is None:
        return None
    past = np.zeros_like(view.queues.all_used)  # of single models nobody keeps a memory
    for row, name in enumerate(view.queues.names):
        parts = view.past_usage.parts.get(name, ())
        past[row, : len(parts)] = parts
    return past


def _totals(view: View) -> IntArray:
    """What there is of each resource, and of each GPU model that some queue bounds."""
    nodes = view.nodes
    models = [
        int((nodes.device_milli * nodes.gpus[:, USABLE])[nodes.gpu_model == nodes.models.index(model)].sum())
        if model in nodes.models
        else 0
        for model in view.queues.models
    ]
    return np.append(nodes.totals(), np.array(models, np.int64))


def _asked_by_model(view: View, queue: str) -> list[int]:
    """What waits in a queue and wants one model and no other."""
    asked = dict.fromkeys(view.queues.models, 0)
    for want, pods in view.waiting_requests(queue):
        model = only_model(want, view.nodes.models)
        if model in asked:
            asked[model] += want.charge_milli * pods
    return list(asked.values())


def _usual_gpu_mib(view: View) -> int:
    """The memory of an average working device: a waiting memory request has no device yet."""
    usable = view.nodes.gpus[:, USABLE]
    devices = int(usable.sum())
    return max(1, int((view.nodes.gpus[:, SIZE] * usable).sum()) // devices) if devices else 1


def _charge(amount: tuple[int, int, int, int], gpu_mib: int) -> ResourceVector:
    milli, cpu_milli, memory_mib, waiting_gpu_mib = amount
    return milli + waiting_gpu_mib * WHOLE_MILLI // gpu_mib, cpu_milli, memory_mib
