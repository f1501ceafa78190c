"""Place pods of one shape on the best nodes and exact devices, within the limits of their queue."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from kaiwo.decide.placement.divide_by_rate import PlacementArea
from kaiwo.decide.placement.node_choices import ChosenRow
from kaiwo.decide.placement.node_fit import CapacityMask, pods_in_pools
from kaiwo.decide.placement.pod_affinity import domains_of, sum_by_domain
from kaiwo.decide.placement.queue_limits import Payer, headroom, models_with_room
from kaiwo.decide.placement.shape_scores import COST_WEIGHT, NOWHERE, OPEN_WEIGHT, ShapeScores, ShapeState
from kaiwo.decide.placement.spread_over_domains import pods_by_node
from kaiwo.gpus.device_fit import device_need, need_on, pods_per_device, rounding_of
from kaiwo.gpus.isolation_grades import grade_of
from kaiwo.model.gpus.gpu import DEFAULT_THREADS, NO_LIMITS, WHOLE_MILLI, Share, default_threads, threads_on_node
from kaiwo.model.plan import Nomination
from kaiwo.model.policy import DEFAULT_POLICY, PACK, STRATEGY_PLACEMENTS, Policy
from kaiwo.model.request import Request
from kaiwo.plugins.guarded_calls import call_for_int, call_plugin, call_score
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.node_table import FREE_GPU, SIZE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy

_NO_COLUMNS = np.zeros(0, np.int64)
_ONE_POD = np.ones(1, np.int64)


class Placed(msgspec.Struct, frozen=True):
    node: str
    devices: tuple[Share, ...]

    @property
    def milli(self) -> int:
        return sum(share.charge_milli for share in self.devices)


class NodeCosts(Protocol):
    """What a place costs: how much other work is displaced, or how long the place would stay idle."""

    def of_nodes(self, want: Request) -> IntArray:
        """Per node: what one pod there would cost."""

    def cheapest_first(self, row: int, columns: IntArray, want: Request) -> IntArray:
        """Devices of one node, those first that cost least together; else as the strategy orders them."""
        return columns


class Retries:
    """Placements that were tried in vain, for the step budget of the cycle."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Placer:
    """Places pods on one cycle's working copy under a mask, and within an area. Costs, where given, precede scores."""

    def __init__(
        self,
        working: WorkingCopy,
        scores: ShapeScores,
        plugins: ActivePlugins,
        policy: Policy = DEFAULT_POLICY,
        costs: NodeCosts | None = None,
    ) -> None:
        self.working, self._scores, self.plugins, self.policy = working, scores, plugins, policy
        self._packs, self._costs = policy.placement == PACK, costs
        self._mask: CapacityMask | None = None
        self._area: PlacementArea | None = None
        self._retries = Retries()
        self._ids: dict[int, list[str]] = {}  # of the devices, by node, for the nodes that get pods

    def under(self, mask: CapacityMask | None) -> "Placer":
        """The same placer, for work that must leave free what the mask takes away."""
        return self if mask is self._mask else self._copy(mask, self._costs, self._area)

    def with_costs(self, costs: NodeCosts) -> "Placer":
        """The same placer, where taking a place has a cost."""
        return self._copy(self._mask, costs, self._area)

    def within(self, area: PlacementArea) -> "Placer":
        """The same placer, for pods that may run only in this area."""
        return self._copy(self._mask, self._costs, area)

    def _copy(self, mask: CapacityMask | None, costs: NodeCosts | None, area: PlacementArea | None) -> "Placer":
        other = Placer(self.working, self._scores, self.plugins, self.policy, costs)
        other._mask, other._ids, other._area, other._retries = mask, self._ids, area, self._retries
        return other

    def add_retries(self, count: int) -> None:
        self._retries.count += count

    def take_retries(self) -> int:
        """The placements that were tried in vain since the last call, by all copies of this placer together."""
        count, self._retries.count = self._retries.count, 0
        return count

    def room(self, shape: int) -> int:
        return self._scores.state(shape, self._mask).room

    def slots(self, shape: int, want: Request) -> IntArray:
        """How many pods fit on each node. Shape -1: `want` has no shape."""
        return self._state(shape, want).slots

    def slots_and_score(self, shape: int, want: Request) -> tuple[IntArray, IntArray]:
        state = self._state(shape, want)
        return state.slots, state.score

    def allows(self, want: Request, node: str) -> bool:
        """Whether the rules about nodes let such a pod run there, whatever room there is."""
        row = self.working.nodes.row.get(node)
        return row is not None and bool(self._scores.state_of(want, self._mask).allowed[row])

    def costs_of(self, want: Request) -> IntArray | None:
        """Per node: what a pod there would cost; None: places cost nothing."""
        return None if self._costs is None else self._costs.of_nodes(want)

    def room_for(self, want: Request) -> int:
        return self._scores.state_of(want, self._mask).room

    def place(self, shape: int, want: Request, count: int) -> list[Placed]:
        """Packing fills the best node first; spreading looks again after each pod. Shape -1: `want` has no shape."""
        count = pods_in_pools(self.working.view, want, count)
        if self._area is not None and self._costs is None and self._fills_at_once(want):
            return self._place_by_domain(self._area, shape, want, count)
        placed: list[Placed] = []
        while len(placed) < count:
            state = self._state(shape, want)
            if not len(state.score):
                break
            score = state.score if self._costs is None else state.score - self._costs.of_nodes(want) * COST_WEIGHT
            if count > 1 and not placed:
                score = self._prefer_roomy_domains(want, state, score, count)
            if self._is_packed(want) and want.gpus and self.working.nodes.topologies.by_name:
                score = score - self._levels_opened() * OPEN_WEIGHT
            row = int(score.argmax())  # the first of the best: rows are sorted by name
            if state.slots[row] <= 0:
                break
            self._note(want, row, score)
            slots = int(state.slots[row])
            here = min(count - len(placed), slots) if self._fills_at_once(want) else 1
            placed.extend(self.put(row, want, here))
            if here == slots and shape >= 0 and self._mask is None and want.neighbours is None:
                self._scores.mark_filled(shape, row)
        return placed

    def _note(self, want: Request, row: int, score: IntArray, by_domain: bool = False) -> None:
        if self._scores.choices is not None:
            chosen = ChosenRow(want, row, score, by_domain)
            self._scores.choices.add(self.working, self._mask, self.plugins, chosen)

    def _levels_opened(self) -> IntArray:
        """By node: on how many levels a pod there would be the first to use GPUs of its domain.

        Empty leaves stay whole for work that needs them, whoever is placed.
        """
        nodes = self.working.nodes
        used = np.maximum(nodes.gpu_total - self.working.free[:, FREE_GPU], 0)
        opened = np.zeros(len(used), np.int64)
        for name in sorted(nodes.topologies.by_name):
            for level in nodes.topologies.by_name[name].levels:
                domains = level.domain_of_node
                by_domain = np.append(sum_by_domain(domains, used), 1)  # the last: nodes without a domain open none
                opened += by_domain[domains] == 0
        return opened

    def _fills_at_once(self, want: Request) -> bool:
        """Shares on several devices, and pods that must be spread, change what the next pod finds."""
        is_spread = want.neighbours is not None and bool(want.neighbours.spread)
        return self._is_packed(want) and (want.is_whole or want.gpus <= 1) and not is_spread

    def _is_packed(self, want: Request) -> bool:
        return STRATEGY_PLACEMENTS[want.strategy] == PACK if want.strategy else self._packs

    def _place_by_domain(self, area: PlacementArea, shape: int, want: Request, count: int) -> list[Placed]:
        """In as few domains of the area as possible, or as its strategy says; the order follows the domains."""
        state = self._state(shape, want)
        placed: list[Placed] = []
        if want.neighbours is None:
            for row, pods in pods_by_node(state.slots, state.score, area, count):
                self._note(want, row, state.score, by_domain=True)
                placed.extend(self.put(row, want, pods))
            return placed
        while len(placed) < count:  # each pod may close nodes to the next one
            first = next(iter(pods_by_node(state.slots, state.score, area, 1)), None)
            if first is None:
                break
            self._note(want, first.row, state.score, by_domain=True)
            placed.extend(self.put(first.row, want, 1))
            area.pods[first.row] += 1
            state = self._state(shape, want)
        return placed

    def _state(self, shape: int, want: Request) -> ShapeState:
        state = self._scores.scored(shape, self._mask) if shape >= 0 else self._scores.state_of(want, self._mask)
        if self._area is None:
            return state
        inside = self._area.mask & (state.slots > 0)
        slots = np.where(inside, state.slots, 0)
        score = np.where(inside, state.score, NOWHERE)
        return ShapeState(state.version, slots, score, state.allowed, int(slots.sum()), state.scored)

    def _prefer_roomy_domains(self, want: Request, state: ShapeState, score: IntArray, count: int) -> IntArray:
        """Pods that must be near each other begin in a domain with room for all of them, if there is one."""
        near = want.neighbours.near if want.neighbours is not None else None
        for level in near.levels if near is not None else ():
            domains = domains_of(self.working.nodes, level)
            has_room = np.append(sum_by_domain(domains, state.slots) >= count, False)[domains]
            narrowed = np.where(has_room, score, NOWHERE)
            score = narrowed if narrowed.max(initial=NOWHERE) > NOWHERE else score
        return score

    def put(self, row: int, want: Request, count: int) -> list[Placed]:
        if not want.gpus:
            self.working.take(row, count, want, _NO_COLUMNS, _NO_COLUMNS, _NO_COLUMNS)
            return [Placed(self.working.nodes.names[row], ())] * count
        if want.is_exclusive:
            return self._put_whole(row, want, count)
        if want.gpus == 1 and getattr(self.plugins.allocation_of(want), "fills", False):
            return self._fill(row, want, count)
        return [self._put_on(row, want, self._ranked(row, want)[: want.gpus]) for _ in range(count)]

    def put_exactly(self, shape: int, want: Request, kept: Nomination) -> Placed | None:
        """Put a pod on exactly these devices, if they are free."""
        row = self.working.nodes.row.get(kept.node)
        if row is None or self._scores.state(shape, self._mask).slots[row] <= 0 or want.gpus != len(kept.devices):
            return None
        column = self.working.nodes.column[row]
        columns = np.array([column.get(share.gpu, -1) for share in kept.devices], np.intp)
        if (columns < 0).any() or (pods_per_device(self.working.view, want, np.array([row]))[0][columns] <= 0).any():
            return None
        return self._put_on(row, want, columns)

    def _put_whole(self, row: int, want: Request, count: int) -> list[Placed]:
        columns = self._ranked(row, want)[: count * want.gpus]
        parts, sizes = need_on(self.working.view, want, row, columns)
        self.working.take(row, count, want, columns, parts, sizes)
        ids = self._device_ids(row)
        amounts = zip(columns.tolist(), parts.tolist(), sizes.tolist(), strict=True)
        shares = [Share(ids[column], milli, mib) for column, milli, mib in amounts]
        name, each = self.working.nodes.names[row], want.gpus
        return [Placed(name, tuple(shares[at : at + each])) for at in range(0, len(shares), each)]

    def _fill(self, row: int, want: Request, count: int) -> list[Placed]:
        """Called once for many pods, for strategies that stay on a device while pods fit."""
        times = self._scores.pods_per_device_on(want, row, self._mask)
        columns = self._ranked(row, want, times)
        if count == 1:
            columns, here = columns[:1], _ONE_POD
        else:
            times = times[columns]
            here = np.minimum(times, np.maximum(count - times.cumsum() + times, 0))
            columns, here = columns[here > 0], here[here > 0]
        milli, mib = device_need(want, self.working.gpus[row, SIZE, columns])
        self.working.take(row, int(here.sum()), want, columns, milli * here, mib * here)
        name, shares = self.working.nodes.names[row], self._shares(row, want, columns, milli, mib)
        placed: list[Placed] = []
        for share, pods in zip(shares, here.tolist(), strict=True):
            placed.extend([Placed(name, (share,))] * pods)
        return placed

    def _put_on(self, row: int, want: Request, columns: IntArray) -> Placed:
        milli, mib = need_on(self.working.view, want, row, columns)
        self.working.take(row, 1, want, columns, milli, mib)
        return Placed(self.working.nodes.names[row], tuple(self._shares(row, want, columns, milli, mib)))

    def _shares(self, row: int, want: Request, columns: IntArray, milli: IntArray, mib: IntArray) -> list[Share]:
        ids = self._device_ids(row)
        amounts = zip(columns.tolist(), milli.tolist(), mib.tolist(), strict=True)
        shares = [Share(ids[column], part, size) for column, part, size in amounts]
        shares = self._with_threads(row, want, columns, shares)
        if not want.is_memory:
            return shares
        rounding = rounding_of(want, self.working.gpus[row, SIZE, columns], milli).tolist()
        return [
            Share(each.gpu, each.milli, each.mib, more, each.threads_milli)
            for each, more in zip(shares, rounding, strict=True)
        ]

    def _with_threads(self, row: int, want: Request, columns: IntArray, shares: list[Share]) -> list[Share]:
        """Asked for, or the default of the queue or the node; as far as both allow."""
        node = self.working.nodes.nodes[row]
        if want.threads_milli:
            threads = threads_on_node(want.threads_milli, want.fraction_milli, node.labels)
            return [msgspec.structs.replace(each, threads_milli=threads) for each in shares]
        limits = want.limits or NO_LIMITS
        if not limits.default_threads_milli and DEFAULT_THREADS not in node.labels:
            return shares
        return [
            msgspec.structs.replace(each, threads_milli=default_threads(limits, each.milli, node.labels))
            if grade_of(want, node.gpus[column], node.labels) == "mps"  # other methods have no such number
            else each
            for each, column in zip(shares, columns.tolist(), strict=True)
        ]

    def _device_ids(self, row: int) -> list[str]:
        if row not in self._ids:
            self._ids[row] = [gpu.id for gpu in self.working.nodes.nodes[row].gpus]
        return self._ids[row]

    def _ranked(self, row: int, want: Request, times: IntArray | None = None) -> IntArray:
        """The devices of a node that fit, in the order of the strategy. `times`: how often, where that is known."""
        if times is None:
            times = self._scores.pods_per_device_on(want, row, self._mask)
        columns = times.nonzero()[0]
        plugin = self.plugins.allocation_of(want)
        rank = call_plugin(plugin.name, plugin.allocation, len(columns), self.working.view, want, row, columns)
        order = rank.argsort(kind="stable")
        for score in self._device_scores(row, want, columns):
            order = order[np.argsort(-score[order], kind="stable")]
        ranked: IntArray = columns[order]
        return ranked if self._costs is None else self._costs.cheapest_first(row, ranked, want)

    def _device_scores(self, row: int, want: Request, columns: IntArray) -> list[IntArray]:
        """The sum of all device scores; none when no plugin has an opinion about this request."""
        total: IntArray | None = None
        view = self.working.view
        for plugin, weight in self.plugins.gpu_scores:
            applies = getattr(plugin, "gpu_applies", None)
            if applies is not None and not call_for_int(plugin.name, applies, view, want):
                continue
            score = weight * call_score(plugin.name, plugin.gpu_score, len(columns), view, want, row, columns)
            total = score if total is None else total + score
        return [] if total is None else [total]


def place_pods(placer: Placer, payer: Payer, shape: int, want: Request, count: int) -> list[Placed] | None:
    """Place pods of one shape that their queue pays for; None, with nothing changed, if they do not all fit."""
    working = placer.working
    if want.gpus and payer.has_limits and working.queues.is_model_bounded[payer.queue]:
        return _place_by_model(placer, payer, shape, want, count)
    with working.trial() as attempt:
        placed = placer.place(shape, want, count)
        if len(placed) < count:
            return None
        if payer.try_charge(working, charge_of_placed(working, want, placed)):
            attempt.keep()
            return placed
    if not want.is_memory or want.device_mib:
        return None
    # The same memory is a smaller part of a larger device, which may stay within the limit.
    milli = max(0, headroom(working, payer.queue)) // (count * want.gpus)
    if milli < max(1, want.fraction_milli):
        return None
    larger = msgspec.structs.replace(want, device_mib=-(-want.gpu_mib * WHOLE_MILLI // milli))
    return place_pods(placer, payer, -1, larger, count)


def _place_by_model(placer: Placer, payer: Payer, shape: int, want: Request, count: int) -> list[Placed] | None:
    """One pod after the other, each on a GPU model of which its queue has that much left."""
    placed: list[Placed] = []
    with placer.working.trial() as attempt:
        while len(placed) < count:
            found = _place_one(placer, payer, shape, want)
            if found is None:
                return None
            placed.append(found)
        attempt.keep()
    return placed


def _place_one(placer: Placer, payer: Payer, shape: int, want: Request) -> Placed | None:
    """Where a model turns out too expensive (memory is a larger part of a smaller device), try another."""
    working = placer.working
    asked = set(want.gpu_models or working.nodes.models)
    left = asked & set(models_with_room(working, payer.queue, payer.is_non_preemptible, max(1, want.charge_milli)))
    while left:
        narrowed = want if left == asked else msgspec.structs.replace(want, gpu_models=tuple(sorted(left)))
        with working.trial() as attempt:
            found = placer.place(shape if narrowed is want else -1, narrowed, 1)
            if not found:
                return None
            if payer.try_charge(working, charge_of_placed(working, want, found)):
                attempt.keep()
                return found[0]
        left -= {gpu.model for gpu in working.nodes.nodes[working.nodes.row[found[0].node]].gpus}
    return None


def charge_of_placed(working: WorkingCopy, want: Request, placed: Sequence[Placed]) -> ResourceVector:
    """What a queue pays for placed pods; by GPU model, too, where some queue bounds one."""
    charge = (sum(each.milli for each in placed), want.cpu_milli * len(placed), want.memory_mib * len(placed))
    if not working.queues.models:
        return charge
    models = [working.view.milli_by_model(each.node, each.devices) for each in placed]
    return (*charge, *(sum(column) for column in zip(*models, strict=True)))
