"""Check rule tables: `table_*.json`, one spec a line of arithmetic.

In:    specs with queues and numbers.   Out: per spec the differences, empty when it holds.
The tables count GPUs; the code counts milli-GPU. `expect` is read only to compare.
"""

from typing import Any

import numpy as np

from kaiwo.model.queue import UNLIMITED, Queue, QueueAmounts
from kaiwo.queues.fair_share import DEFAULT_RULES, QueueDemand, ShareRules, fair_shares
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.queues.reclaim_rules import (
    QueueShares,
    ReclaimRequest,
    refusal_to_reclaim,
    victim_queues,
)
from kaiwo.queues.resource_division import ShareClaims, divide_surplus
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.queue_table import INFINITE, RESOURCES, EditableQueueTable
from tests.queues.victims import VictimUsage, may_take

TABLE_NAMES = ("GPU", "CPU", "Memory")  # in the order of our columns
SCALE = np.array([1000, 1, 1])


def check_spec(spec: dict[str, Any]) -> list[str]:
    """What differs from what the spec expects."""
    function = FUNCTIONS.get(spec["fn"])
    if function is None:
        return [f"no such rule: {spec['fn']}"]
    found = function(spec)
    return [
        f"{name} is {found.get(name)}, {value} is expected"
        for name, value in spec["expect"]
        if found.get(name) is None or abs(float(found[name]) - float(value)) > 0.001
    ]


def _set_shares(spec: dict[str, Any]) -> dict[str, Any]:
    """One level of queues, all resources or one."""
    queues = _table(spec)
    wants = QueueDemand(_totals(spec), _amounts(spec, queues, "Request"), past=_past(spec, queues))
    shares = fair_shares(queues, wants, _rules(spec)).share
    left = np.maximum(wants.totals - shares.sum(axis=0), 0)
    return _named(spec, queues, shares, left)


def _divide_over_quota(spec: dict[str, Any]) -> dict[str, Any]:
    """Only the second step: the queues have their quota already."""
    queues = _table(spec)
    column = TABLE_NAMES.index(spec["resource"])
    has = _amounts(spec, queues, "FairShare")
    count = len(queues.names)
    claims = ShareClaims(
        np.zeros(count, np.intp),
        -queues.priority,
        queues.quota[:, column],
        queues.limit[:, column],
        _amounts(spec, queues, "Request")[:, column],
        queues.weight[:, column],
        np.full(count, DEFAULT_RULES.units[column]),
        queues.tree.age,
    )
    part = divide_surplus(_totals(spec)[[column]], claims, has[:, column], np.zeros(1, np.bool_))
    shares = has.copy()
    shares[:, column] += part.whole + part.remainder
    left = np.zeros(len(RESOURCES), np.int64)
    left[column] = part.left[0]
    return _named(spec, queues, shares, left)


def _can_reclaim(spec: dict[str, Any]) -> dict[str, Any]:
    now = _standing(spec)
    return {"result": refusal_to_reclaim(now, _claim(spec, now)) is None}


def _reclaimable(spec: dict[str, Any]) -> dict[str, Any]:
    now = _standing(spec)
    takings = [
        VictimUsage(now.queues.row[queue], _charge(amount))
        for queue, amounts in spec["reclaimees"].items()
        for amount in amounts
    ]
    return {"result": may_take(now, _claim(spec, now), takings, round(1000 * spec["multiplier"])) is None}


def _filter_victim(spec: dict[str, Any]) -> dict[str, Any]:
    now = _standing(spec)
    found = victim_queues(now, _claim(spec, now))
    return {"result": bool(found[now.queues.row[spec["victim_queue"]]])}


FUNCTIONS = {
    "setResourceShare": _set_shares,
    "SetResourcesShare": _set_shares,
    "divideOverQuotaResource": _divide_over_quota,
    "CanReclaimResources": _can_reclaim,
    "Reclaimable": _reclaimable,
    "FilterVictim": _filter_victim,
}


def _table(spec: dict[str, Any]) -> EditableQueueTable:
    return EditableQueueTable({name: _queue(name, each) for name, each in spec["queues"].items()})


def _queue(name: str, each: dict[str, Any]) -> Queue:
    amounts = []
    for resource, scale in zip(TABLE_NAMES, SCALE, strict=True):
        numbers = each["QueueResourceShare"].get(resource) or {}
        quota, limit = (_scaled(numbers.get(field, 0), scale) for field in ("Deserved", "MaxAllowed"))
        amounts.append(QueueAmounts(quota, limit, int(numbers.get("OverQuotaWeight", 0))))
    parent = each.get("ParentQueue")
    return Queue(
        name,
        parent if isinstance(parent, str) else "",
        "",
        each.get("Priority", 0),
        *amounts,
        created_s=each.get("CreationTimestamp", 0),
    )


def _scaled(number: float, scale: int) -> int:
    return UNLIMITED if number == UNLIMITED else round(number * int(scale))


def _amounts(spec: dict[str, Any], queues: EditableQueueTable, field: str, scale: IntArray = SCALE) -> IntArray:
    shares = [spec["queues"][name]["QueueResourceShare"] for name in queues.names]
    numbers = [[(share.get(resource) or {}).get(field, 0) for resource in TABLE_NAMES] for share in shares]
    return np.rint(np.array(numbers, np.float64) * scale).astype(np.int64)


def _totals(spec: dict[str, Any]) -> IntArray:
    total = spec["total"] if isinstance(spec["total"], dict) else {spec["resource"]: spec["total"]}
    return np.rint(np.array([total.get(name, 0) for name in TABLE_NAMES]) * SCALE).astype(np.int64)


def _past(spec: dict[str, Any], queues: EditableQueueTable) -> IntArray:
    """Parts of the cluster used lately, where a spec gives any."""
    return _amounts(spec, queues, "Usage", np.full(len(RESOURCES), WHOLE_PART))


def _rules(spec: dict[str, Any]) -> ShareRules:
    return DEFAULT_RULES._replace(usage_strength_milli=round(1000 * spec.get("k", 0)))


def _named(spec: dict[str, Any], queues: EditableQueueTable, shares: IntArray, left: IntArray) -> dict[str, Any]:
    found = {
        f"queues.{name}.{resource}.FairShare": shares[row, column] / SCALE[column]
        for row, name in enumerate(queues.names)
        for column, resource in enumerate(TABLE_NAMES)
    }
    if spec["resource"]:
        column = TABLE_NAMES.index(spec["resource"])
        found["remaining"] = left[column] / SCALE[column]
    return found


def _standing(spec: dict[str, Any]) -> QueueShares:
    queues = _table(spec)
    limit = np.where(queues.limit == 0, INFINITE, queues.limit)  # the reclaim table leaves limits out
    return QueueShares(
        queues,
        _amounts(spec, queues, "Allocated"),
        _amounts(spec, queues, "AllocatedNotPreemptible"),
        _amounts(spec, queues, "FairShare"),
        queues.quota,
        limit,
    )


def _claim(spec: dict[str, Any], now: QueueShares) -> ReclaimRequest:
    claimant = spec["reclaimer"]
    return ReclaimRequest(
        now.queues.row[claimant["Queue"]], _charge(claimant["RequiredResources"]), claimant["IsPreemptable"]
    )


def _charge(amount: dict[str, float]) -> IntArray:
    return np.rint(np.array([amount[name] for name in RESOURCES]) * SCALE).astype(np.int64)
