"""How many nodes of which GPU model are needed when, and which nodes may go: the signal for an autoscaler.

In:    the cluster state, and the forecast of the demand for each model.   Out: by model, the nodes that are missing now
       and at each of the coming hours, and empty nodes that are not needed.
Never: guesses. An hour is left out until forecasts that far ahead were compared with what happened, and no node may go
       before all hours of a day are known.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kaiwo.forecast.demand_forecast import HOUR_S, MAX_HOURS, DemandForecast
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.request import Request
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import FREE_GPU, USABLE, NodeTable
from kaiwo.snapshot.queue_table import GPU


class HourNeed(msgspec.Struct, frozen=True):
    """One of the coming hours."""

    ahead: int
    at_s: int  # when it begins
    expected_gpus: int  # mean demand
    high_gpus: int  # it seldom exceeds this
    add_nodes: int  # so that this much could run


class ModelNeed(msgspec.Struct, frozen=True):
    """All nodes whose GPUs are of one model."""

    model: str
    nodes: int  # that take work
    gpus: int  # of these
    gpus_per_node: int  # of most of them
    held_gpus: int  # rounded up
    waiting_gpus: int  # that its queues may have; rounded up
    add_now: int  # nodes
    hours_seen: int  # hours of demand that the forecast rests on
    hours: tuple[HourNeed, ...]  # as far as they are known, up to a day
    may_go: tuple[str, ...]  # empty nodes that are not needed in any of these hours


class ModelDemand(NamedTuple):
    held_milli: int
    waiting_milli: int

    @property
    def gpus(self) -> int:
        return _gpus(self.held_milli + self.waiting_milli)


class _Fleet(NamedTuple):
    """The nodes of one model."""

    rows: tuple[int, ...]  # of nodes that take work
    gpus: int
    gpus_per_node: int
    most_devices: int  # of one node
    most_cpu_milli: int


def demand_by_model(state: ClusterState) -> dict[str, ModelDemand]:
    """Of every GPU model in the cluster. The state's tables must be fresh.

    Work that accepts several models counts for the one of which the cluster has most.
    """
    fleets = _fleets(state.nodes)
    held: Counter[str] = Counter()
    for row in range(len(state.nodes.names)):
        if model := _model_of(state.nodes, row):
            held[model] += max(0, int(state.nodes.gpu_total[row] - max(0, state.nodes.free[row, FREE_GPU])))
    waiting: Counter[str] = Counter()
    for queue, milli_by_model in _waiting(state, fleets).items():
        asked, room = sum(milli_by_model.values()), _room_of(state, queue)
        for model, milli in milli_by_model.items():
            waiting[model] += milli if room >= asked else milli * room // asked
    return {model: ModelDemand(held[model], waiting[model]) for model in sorted(fleets)}


def urgent_demand(state: ClusterState, priority: int) -> dict[str, int]:
    """By queue: the GPUs that its work of at least this priority holds or waits for, rounded up."""
    found: Counter[str] = Counter()
    for name, workload in state.workloads.items():
        if workload.priority >= priority and (state.pods.get(name) or state.backlog.is_queued(name)):
            found[workload.queue] += sum(role.request.least_milli * role.count for role in workload.roles)
    return {queue: _gpus(milli) for queue, milli in sorted(found.items())}


def scale_signal(state: ClusterState, forecasts: Mapping[str, DemandForecast], now_s: int) -> tuple[ModelNeed, ...]:
    """One entry for each GPU model. The state's tables must be fresh."""
    fleets, kept = _fleets(state.nodes), _kept_nodes(state, now_s)
    return tuple(
        _need_of(state, model, fleets[model], demand, forecasts.get(model), kept, now_s)
        for model, demand in demand_by_model(state).items()
    )


def _need_of(
    state: ClusterState, model: str, fleet: _Fleet, demand: ModelDemand, forecast: DemandForecast | None,
    kept: set[str], now_s: int,
) -> ModelNeed:  # fmt: skip
    hours = _hours(forecast, fleet, now_s) if forecast is not None else ()
    seen = forecast.hours_seen if forecast is not None else 0
    may_go: tuple[str, ...] = ()
    if len(hours) == MAX_HOURS:
        peak = max(demand.gpus, *(hour.high_gpus for hour in hours))
        may_go = _may_go(state, fleet, fleet.gpus - peak, kept)
    return ModelNeed(
        model, len(fleet.rows), fleet.gpus, fleet.gpus_per_node, _gpus(demand.held_milli), _gpus(demand.waiting_milli),
        _nodes(demand.gpus - fleet.gpus, fleet), seen, hours, may_go,
    )  # fmt: skip


def _hours(forecast: DemandForecast, fleet: _Fleet, now_s: int) -> tuple[HourNeed, ...]:
    found, begins_s = [], now_s // HOUR_S * HOUR_S
    for ahead in range(1, MAX_HOURS + 1):
        expected, high = forecast.expect(ahead), forecast.high(ahead)
        if expected is None or high is None:
            break
        at_s = begins_s + (ahead - 1) * HOUR_S  # 1 is the hour that runs
        found.append(HourNeed(ahead, at_s, expected, high, _nodes(high - fleet.gpus, fleet)))
    return tuple(found)


def _may_go(state: ClusterState, fleet: _Fleet, surplus: int, kept: set[str]) -> tuple[str, ...]:
    """Empty nodes with no more GPUs than are left over; those that failed most often first."""
    nodes, failures = state.nodes, state.node_failures.weights
    empty = [
        row for row in fleet.rows if nodes.names[row] not in kept and not state.allocations_on.get(nodes.names[row])
    ]
    chosen = []
    for row in sorted(empty, key=lambda row: (-failures.get(nodes.names[row], 0), nodes.names[row])):
        size = int(nodes.gpu_total[row]) // WHOLE_MILLI
        if size <= surplus:
            surplus -= size
            chosen.append(nodes.names[row])
    return tuple(chosen)


def _kept_nodes(state: ClusterState, now_s: int) -> set[str]:
    """Nodes that somebody counts on within the coming hours: reservations and planned starts."""
    kept = {place.node for planned in state.planned_starts.values() for place in planned.places}
    for each in state.reservations.objects.values():
        if each.start_s < now_s + MAX_HOURS * HOUR_S and now_s < each.until_s:
            kept.update((*each.nodes, *(device.node for device in each.kept)))
    return kept


def _waiting(state: ClusterState, fleets: Mapping[str, _Fleet]) -> dict[str, Counter[str]]:
    """By queue and model: what waiting work asks for. A gang that is larger than the cluster counts: nodes help it."""
    backlog, found = state.backlog, dict[str, Counter[str]]()
    for waiting in backlog.by_key.values():
        for need in waiting.needs:
            want = backlog.shapes[need.shape]
            if want.gpus and (model := _usual_model(want, fleets)):
                milli = want.least_milli * need.missing * len(waiting.waiters)
                found.setdefault(waiting.queue, Counter())[model] += milli
    return found


def _usual_model(want: Request, fleets: Mapping[str, _Fleet]) -> str:
    """The model of which there are most, among those that it accepts and that have nodes large enough for a pod."""
    accepted = [
        model
        for model, fleet in fleets.items()
        if (not want.gpu_models or model in want.gpu_models)
        and want.gpus <= fleet.most_devices
        and want.cpu_milli <= fleet.most_cpu_milli
    ]
    return max(accepted, key=lambda model: (fleets[model].gpus, model), default="")


def _room_of(state: ClusterState, queue: str) -> int:
    """Milli-GPU that the queue and those above it may still have."""
    table = state.queues
    row = table.row.get(queue)
    path = table.path[row] if row is not None else ()
    return max(0, min((int(table.limit[above, GPU] - table.used[above, GPU]) for above in path), default=1 << 60))


def _fleets(nodes: NodeTable) -> dict[str, _Fleet]:
    rows: dict[str, list[int]] = {}
    device_counts = (nodes.gpus[:, USABLE] > 0).sum(axis=1) if len(nodes.names) else nodes.cpu_size
    for row in range(len(nodes.names)):
        if model := _model_of(nodes, row):
            rows.setdefault(model, []).append(row)
    found = {}
    for model, all_rows in rows.items():
        sizes = Counter(int(nodes.gpu_total[row]) // WHOLE_MILLI for row in all_rows)
        open_rows = tuple(row for row in all_rows if nodes.schedulable[row])
        gpus = sum(int(nodes.gpu_total[row]) for row in open_rows) // WHOLE_MILLI
        usual = max(sizes, key=lambda size: (sizes[size], size))
        devices, cpu = ([int(each[row]) for row in all_rows] for each in (device_counts, nodes.cpu_size))
        found[model] = _Fleet(open_rows, gpus, usual, max(devices), max(cpu))
    return found


def _model_of(nodes: NodeTable, row: int) -> str:
    """The model of a node's first GPU; empty: it has none that works."""
    return nodes.models[nodes.gpu_model[row, 0]] if nodes.gpu_total[row] > 0 else ""


def _nodes(missing_gpus: int, fleet: _Fleet) -> int:
    return max(0, -(-missing_gpus // max(1, fleet.gpus_per_node)))


def _gpus(milli: int) -> int:
    return -(-milli // WHOLE_MILLI)
