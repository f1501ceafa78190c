"""Find the work of a workload's own queue that certainly starts before it, if it starts at all.

In:    what-if questions about one workload.   Out: the pods that start earlier, and ask for no more.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.explain.verify_change import WhatIf
from kaiwo.gpus.device_fit import device_need
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.node_table import SIZE, USABLE
from kaiwo.snapshot.view import View

MAX_KINDS = 16  # each is fitted on all nodes, which takes a tenth of a millisecond


class PodCount(NamedTuple):
    """Pods of one kind that must fit, or that start before."""

    want: Request
    pods: int


def started_earlier(what_if: WhatIf) -> list[PodCount]:
    """Pods of its queue that start before the workload and ask for no more; empty: unknown."""
    state, backlog, view = what_if.state, what_if.state.backlog, what_if.view
    mine, place = backlog.class_of(what_if.name), backlog.trial_position(what_if.name)
    row = view.queues.row.get(mine.queue)
    is_in_order = not (state.releasing or state.planned_starts or backlog.resumed or what_if.active.free_filters)
    if row is None or view.queues.is_model_bounded[row] or not is_in_order:
        return []
    found = []
    for other in backlog.by_queue[mine.queue].values():
        if other is mine or other.signature.is_preemptible != mine.signature.is_preemptible:
            continue
        ahead = other.waiters.ahead_of(place)
        if ahead and _fits_before(what_if, other, mine):
            shape, _, needed = other.needs[0]
            found.append(PodCount(backlog.shapes[shape], needed * ahead))
    return sorted(found, key=lambda each: -each.want.least_milli * each.pods)[:MAX_KINDS]


def _fits_before(what_if: WhatIf, one: WaitingClass, other: WaitingClass) -> bool:
    """Wherever the other class finds room for all its pods, so does this one."""
    if not (_is_plain(one) and _is_plain(other)):
        return False
    (shape, _, needed), (other_shape, _, most) = one.needs[0], other.needs[0]
    want, shapes = what_if.state.backlog.shapes[shape], what_if.state.backlog.shapes
    is_counted = want.is_exclusive or want.gpus <= 1 or needed == 1
    return needed <= most and is_counted and _asks_no_more(what_if.view, want, shapes[other_shape])


def _is_plain(waiting_class: WaitingClass) -> bool:
    """Equal pods that must start together, on any nodes, and have no nominations."""
    is_equal = len(waiting_class.needs) == 1 and waiting_class.choices is None
    is_equal = is_equal and waiting_class.signature.levels is None
    return is_equal and waiting_class.needs[0].needed > 0 and not waiting_class.signature.nominated_for


def _asks_no_more(view: View, one: Request, other: Request) -> bool:
    """A node that fits a pod of the other also fits one of this, and its queue pays no more for it."""
    is_less = one.cpu_milli <= other.cpu_milli and one.memory_mib <= other.memory_mib and one.gpus <= other.gpus
    if not is_less or one.neighbours is not None or one.is_partition or _kind(one) != _kind(other):
        return False
    if not one.gpus or one.is_whole:
        return not one.gpus or other.is_whole
    return _share_asks_no_more(view, one, other)


def _share_asks_no_more(view: View, one: Request, other: Request) -> bool:
    """On every device, a share takes no more than the other share, or than a whole GPU."""
    gpus = view.nodes.gpus
    sizes = np.unique(gpus[:, SIZE][gpus[:, USABLE] > 0])
    if one.is_memory and len(sizes) > 1:
        return False  # its queue may pay more for it on a smaller device
    if (one.gpu_milli, one.gpu_mib) == (other.gpu_milli, other.gpu_mib):
        return True
    tenants, rules = view.tenants, (one.least_grade, one.isolation, one.share_with, one.tenant, one.limits)
    if any(rules) or tenants.demanding or tenants.small or tenants.closed_to is not None or view.nodes.bounds_shares:
        return False  # where others share the device, a smaller share may be refused
    milli, mib = device_need(one, sizes)
    most_milli, most_mib = (WHOLE_MILLI, sizes) if other.is_whole else device_need(other, sizes)
    is_cheaper = all(_charge_on(one, size) <= _charge_on(other, size) for size in sizes.tolist())
    return is_cheaper and bool((milli <= most_milli).all() and (mib <= most_mib).all())


def _charge_on(want: Request, size_mib: int) -> int:
    return want.charge_on(size_mib) if want.is_memory else want.gpu_milli


def _kind(want: Request) -> Request:
    """All but the amounts."""
    return replace(want, cpu_milli=0, memory_mib=0, gpus=0, gpu_milli=WHOLE_MILLI, gpu_mib=0)
