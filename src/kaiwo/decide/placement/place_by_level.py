"""Place the pods of a workload with topology constraints: choose a domain for each part, and try the pods there.

In:    pods to place, and where the workload's other pods run.   Out: their places and the domains that were chosen, or
None. Sums only rule domains out; whether a gang fits is found out by placing it on the working copy. Where a later part
does not fit, the next best domain of an earlier one is tried, up to `MAX_TRIES` placements.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.area_speed import ChosenArea, fastest_first, without_slow_ports
from kaiwo.decide.placement.divide_by_rate import AreaNetwork, PlacementArea
from kaiwo.decide.placement.domain_choice import DomainRanking, DomainTerms, NodeUse, PodsWanted
from kaiwo.decide.placement.domain_rules import DomainRules
from kaiwo.decide.placement.levels import NO_LEVEL, ConstraintLevels, constraint_levels
from kaiwo.decide.placement.links import rates_of, use_of_links
from kaiwo.decide.placement.measured_performance import performance_of_nodes
from kaiwo.decide.placement.place_pods import Placed, Placer, place_pods
from kaiwo.decide.placement.queue_limits import Payer
from kaiwo.decide.placement.spread_over_domains import pods_by_node
from kaiwo.model.network.constraint import CONSOLIDATED, STATED
from kaiwo.model.network.level_groups import WHOLE, PartKey, WorkloadLevels
from kaiwo.model.plan import DomainChoice
from kaiwo.model.request import Request
from kaiwo.model.workload import pod_index
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import CPU, FREE_GPU
from kaiwo.snapshot.working_copy import Savepoint, WorkingCopy
from kaiwo.topology.link_use import has_bandwidth

MAX_PREDICTED = 8  # domains of each level whose bandwidth is predicted
MAX_TRIES = 128  # placements of one part's pods; most gangs need one for each part


class PodBatch(NamedTuple):
    """Equal pods of one role that are in the same parts."""

    role: int
    names: tuple[str, ...]
    shape: int  # -1: none
    want: Request


class LevelSearch:
    """The parts of one workload, and the domains that they have so far."""

    def __init__(self, placer: Placer, payer: Payer, workload: str, levels: WorkloadLevels) -> None:
        self._placer, self._payer, self._workload, self._levels = placer, payer, workload, levels
        self._working = placer.working
        self._areas: dict[PartKey, ChosenArea] = {}  # of the batches that are being placed
        self._chosen: dict[PartKey, ChosenArea] = {}  # the first area of each part
        self._rows: dict[PartKey, list[int]] = {}  # where pods of each part run
        self._use: NodeUse | None = None
        self._network_of: tuple[str, AreaNetwork] | None = None  # by topology
        self._rules = DomainRules(placer, workload, placer.working.queues.names[payer.queue])

    def add_pod(self, role: int, name: str, row: int) -> None:
        """A pod runs here or has just been placed here: its parts are bound to the domains of this node."""
        for key in self._levels.parts_of(role, pod_index(name)):
            self._rows.setdefault(key, []).append(row)

    def allows(self, role: int, name: str, row: int) -> bool:
        """Every level that its parts require holds for a pod on this node."""
        return all(
            bool(self._required_mask(key, self._levels_of(key))[row])
            for key in self._levels.parts_of(role, pod_index(name))
        )

    def narrowest_level(self, role: int) -> int:
        """The narrowest level that the parts of a role require; NO_LEVEL: none."""
        parts = self._levels.parts_of(role, 0)
        return max((self._levels_of(key).required for key in parts), default=NO_LEVEL)

    def batches(self, role: int, names: Sequence[str], shape: int, want: Request) -> list[PodBatch]:
        """Pods of one role, divided by their segments."""
        if self._levels.segments_of_role[role] is None:
            return [PodBatch(role, tuple(names), shape, want)]
        by_parts: dict[tuple[PartKey, ...], list[str]] = {}
        for name in names:
            by_parts.setdefault(self._levels.parts_of(role, pod_index(name)), []).append(name)
        return [PodBatch(role, tuple(found), shape, want) for found in by_parts.values()]

    def place(self, batches: Sequence[PodBatch]) -> list[list[Placed]] | None:
        """All pods of all batches; None, with nothing changed, if they do not all fit."""
        self._areas = {}
        with self._working.trial() as attempt:
            placed = _Tries(self, batches).run()
            if placed is None:
                return None
            attempt.keep()
        self._chosen = {**self._areas, **self._chosen}
        for batch, found in zip(batches, placed, strict=True):
            for name, each in zip(batch.names, found, strict=True):
                self.add_pod(batch.role, name, self._working.nodes.row[each.node])
        return placed

    def choices(self) -> list[DomainChoice]:
        """The domains that were chosen, with what spoke for them."""
        found = []
        for key in sorted(self._chosen, key=lambda key: (key[1], key[0])):
            area = self._chosen[key]
            if area.terms is None:
                continue
            levels, terms = self._levels_of(key), area.terms
            level = levels.levels[area.level] if area.level != NO_LEVEL else None
            found.append(
                DomainChoice(
                    self._workload,
                    self._levels.name(key),
                    levels.topology,
                    level.name if level is not None else "",
                    level.domain_names[area.number] if level is not None else "",
                    self._named_strategy(key),
                    terms.score,
                    terms.availability,
                    terms.alignment,
                    terms.utilisation,
                    terms.performance,
                    area.candidates,
                )
            )
        return found

    def parts_of(self, batch: PodBatch) -> tuple[PartKey, ...]:
        return self._levels.parts_of(batch.role, pod_index(batch.names[0]))

    def add_retries(self, count: int) -> None:
        self._placer.add_retries(count)

    def has_area(self, key: PartKey) -> bool:
        return key in self._areas

    def set_area(self, key: PartKey, area: ChosenArea | None) -> None:
        if area is None:
            self._areas.pop(key, None)
        else:
            self._areas[key] = area

    def place_batch(self, batch: PodBatch) -> list[Placed] | None:
        keys = self.parts_of(batch)
        placer = self._placer.within(self._area(keys)) if keys else self._placer
        return place_pods(placer, self._payer, batch.shape, batch.want, len(batch.names))

    def candidates(self, key: PartKey, around: PartKey | None, batches: Sequence[PodBatch]) -> Iterator[ChosenArea]:
        """The areas to try for one part, the best first, inside the area of the part around it."""
        levels = self._levels_of(key)
        mask = self._areas[around].mask if around is not None else np.ones(len(self._working.nodes.names), np.bool_)
        rows = self._rows.get(key)
        mask = mask & self._required_mask(key, levels) & self._rules.mask(levels, self._node_use())
        if rows:
            yield from self._around_pods(levels, mask, rows, batches)
        elif not levels.unknown:
            yield from self._free_choice(key, levels, mask, batches)
        if levels.required == NO_LEVEL and not levels.unknown:
            yield ChosenArea(mask, NO_LEVEL, 0, None if rows else _NO_TERMS, 0)

    def distinct(self, areas: Iterator[ChosenArea], batches: Sequence[PodBatch]) -> Iterator[ChosenArea]:
        """The same without areas that leave the pods no other nodes than one before: they would fail like it."""
        first = next(areas, None)
        if first is None:
            return
        yield first
        has_room = np.any([self._placer.slots(each.shape, each.want) > 0 for each in batches], axis=0)
        known = {(first.mask & has_room).tobytes()}
        for area in areas:
            nodes = (area.mask & has_room).tobytes()
            if nodes not in known:
                known.add(nodes)
                yield area

    def _free_choice(
        self, key: PartKey, levels: ConstraintLevels, mask: BoolArray, batches: Sequence[PodBatch]
    ) -> Iterator[ChosenArea]:
        """The domains of the tightest level that fits, then those of the next wider one, up to the required level."""
        wants = self._wants(batches, mask)
        costs = self._placer.costs_of(batches[0].want) if batches else None
        by_level = (
            self._ranked(key, mask, wants, at, costs) for at in range(levels.tightest, max(levels.widest, 0) - 1, -1)
        )
        network = self._network(levels)
        if network is None or costs is not None or self._named_strategy(key) != CONSOLIDATED:
            for found in by_level:
                yield from found
            return
        largest = max(batches, key=lambda batch: len(batch.names) * batch.want.least_milli)
        every = [list(found) for found in by_level]
        if levels.required == NO_LEVEL:
            every.append([ChosenArea(mask, NO_LEVEL, 0, _NO_TERMS, 0)])
        predicted = [area for found in every for area in found[:MAX_PREDICTED]]
        predicted += without_slow_ports(self._working.nodes, levels.topology, network, predicted, wants)
        yield from self._fastest_first(levels, network, predicted, largest)
        yield from (area for found in every for area in found[MAX_PREDICTED:])

    def _ranked(
        self, key: PartKey, mask: BoolArray, wants: list[PodsWanted], at: int, costs: IntArray | None
    ) -> Iterator[ChosenArea]:
        levels = self._levels_of(key)
        domains = levels.levels[at].domain_of_node
        inside = levels.levels[at + 1].domain_of_node if at < len(levels.levels) - 1 else None
        wider = [level.domain_of_node for level in levels.levels[:at]]
        ranking = DomainRanking(wider, domains, inside, wants)
        strategy = self._rules.strategy(self._named_strategy(key), levels, at, self._node_use())
        found = ranking.ranked(self._node_use(), self._placer.policy.topology_weights, costs, strategy)
        for number, terms in found:
            yield ChosenArea(mask & (domains == number), at, number, terms, len(found))

    def _fastest_first(
        self, levels: ConstraintLevels, network: AreaNetwork, areas: list[ChosenArea], batch: PodBatch
    ) -> Iterator[ChosenArea]:
        """Where link rates are known, the domains with the highest predicted bandwidth come first; those that are about
        as fast stay in the order of levels and scores."""
        placer = self._placer
        gpus = np.zeros((len(areas), len(self._working.nodes.names)), np.int64)
        for at, area in enumerate(areas):
            around = self._area_in(levels, area, CONSOLIDATED, ())
            slots, score = placer.within(around).slots_and_score(batch.shape, batch.want)
            for row, pods in pods_by_node(slots, score, around, len(batch.names)):
                gpus[at, row] = pods * max(1, batch.want.gpus)
        yield from fastest_first(network, areas, gpus, self._node_use().used > 0)

    def _network(self, levels: ConstraintLevels) -> AreaNetwork | None:
        """The rates of the topology's links, and who uses them; None: no port or link has a rate."""
        rates = rates_of(self._working, levels.topology)
        if rates is None:
            return None
        if self._network_of is None or self._network_of[0] != levels.topology:
            active, asked = use_of_links(self._working, levels.topology, rates).without(self._workload)
            self._network_of = (levels.topology, AreaNetwork(rates, active, asked, self._levels.bandwidth_mb_s))
        return self._network_of[1]

    def others_were_placed(self) -> None:
        """Links have to be looked at again: other workloads may have taken what was left of them."""
        self._network_of = None

    def has_bandwidth(self, batches: Sequence[PodBatch], placed: Sequence[Sequence[Placed]]) -> bool:
        """The links carry what all pods need, those that run and those that have just been placed."""
        need = self._levels.bandwidth_mb_s
        levels = self._levels_of(_ALL) if need else None
        network = self._network(levels) if levels is not None else None
        if levels is None or network is None:
            return True
        # Of a gang that was moved, a pod may have started in this cycle: the search does not know it.
        started = use_of_links(self._working, levels.topology, network.rates).pods_of(self._workload)
        pods = Counter(self._rows.get(_ALL, ())) | started
        pods.update(self._working.nodes.row[each.node] for found in placed for each in found)
        return has_bandwidth(network.rates, network.asked, pods, need)

    def _around_pods(
        self, levels: ConstraintLevels, mask: BoolArray, rows: list[int], batches: Sequence[PodBatch]
    ) -> Iterator[ChosenArea]:
        """The domains that most of its pods are in, the tightest first."""
        wants = self._wants(batches, mask)
        for at in range(levels.tightest, max(levels.widest, 0) - 1, -1):
            domains = levels.levels[at].domain_of_node
            home = _most_common(domains, rows)
            if home >= 0:
                inside = mask & (domains == home)
                if all(int(want.slots[inside].sum()) >= want.pods for want in wants):
                    yield ChosenArea(inside, at, home, None, 0)

    def _wants(self, batches: Sequence[PodBatch], mask: BoolArray) -> list[PodsWanted]:
        """What the batches need together, by shape, and how much of it fits on the nodes of the mask."""
        counts: dict[tuple[int, Request], int] = {}
        for batch in batches:
            counts[batch.shape, batch.want] = counts.get((batch.shape, batch.want), 0) + len(batch.names)
        return [
            PodsWanted(np.where(mask, self._placer.slots(shape, want), 0), count, max(1, want.least_milli))
            for (shape, want), count in counts.items()
        ]

    def _required_mask(self, key: PartKey, levels: ConstraintLevels) -> BoolArray:
        """The nodes of the domain that its pods are in, or of any domain; all nodes where no level is required."""
        if levels.unknown:
            return np.zeros(len(self._working.nodes.names), np.bool_)
        if levels.required == NO_LEVEL:
            return np.ones(len(self._working.nodes.names), np.bool_)
        domains = levels.levels[levels.required].domain_of_node
        rows = self._rows.get(key)
        mask: BoolArray = domains == _most_common(domains, rows) if rows else domains >= 0
        return mask & (domains >= 0)

    def _area(self, keys: tuple[PartKey, ...]) -> PlacementArea:
        """The area of the innermost part."""
        key = keys[-1]
        return self._area_in(self._levels_of(key), self._areas[key], self._strategy(key), self._rows.get(key, ()))

    def _area_in(self, levels: ConstraintLevels, area: ChosenArea, strategy: str, rows: Sequence[int]) -> PlacementArea:
        pods = np.zeros(len(area.mask), np.int64)
        np.add.at(pods, list(rows), 1)
        last = levels.tightest + 1 if strategy == STATED else -1  # only the stated levels count there
        inside = tuple(each.domain_of_node for each in levels.levels[area.level + 1 : last])
        network = self._network(levels) if strategy == CONSOLIDATED or self._levels.bandwidth_mb_s else None
        return PlacementArea(area.mask, inside, strategy, self._node_use().used > 0, pods, network)

    def _node_use(self) -> NodeUse:
        if self._use is None:
            self._use = node_use(self._working)
        return self._use

    def _levels_of(self, key: PartKey) -> ConstraintLevels:
        constraint = self._levels.constraint(key)
        return constraint_levels(self._working.nodes, constraint, self._strategy(key))

    def _strategy(self, key: PartKey) -> str:
        """How pods are divided inside a domain."""
        return self._rules.divides_like(self._named_strategy(key))

    def _named_strategy(self, key: PartKey) -> str:
        return self._levels.constraint(key).strategy or self._placer.policy.topology_strategy


_NO_TERMS = DomainTerms(0, 0, 0, 0, 0)
_ALL: PartKey = (0, WHOLE)  # the part with all pods, where the workload as a whole asks for something


class _Step(NamedTuple):
    """Choose the area of a part, or place a batch."""

    part: PartKey | None
    around: PartKey | None
    batches: tuple[int, ...]


class _Tries:
    """Choices and placements in order, with the way back to an earlier choice."""

    def __init__(self, search: LevelSearch, batches: Sequence[PodBatch]) -> None:
        self._search, self._batches = search, batches
        self._steps = list(self._plan_steps())
        self._placed: list[list[Placed]] = [[] for _ in batches]

    def run(self) -> list[list[Placed]] | None:
        working, at, tries = self._search._working, 0, 0
        options: list[Iterator[ChosenArea]] = []
        savepoints: list[Savepoint] = []
        while at < len(self._steps):
            step = self._steps[at]
            if len(options) == at:  # reached for the first time, or again by another way
                options.append(self._options(step))
                savepoints.append(working.savepoint())
            else:
                working.rollback(savepoints[at])
            area = next(options[at], None)
            if area is not None and step.part is not None:
                self._search.set_area(step.part, area)
                at += 1
                continue
            if area is not None:
                tries += 1
                placed = self._search.place_batch(self._batches[step.batches[0]])
                if placed is not None:
                    self._placed[step.batches[0]] = placed
                    if at + 1 < len(self._steps) or self._search.has_bandwidth(self._batches, self._placed):
                        at += 1
                        continue
            if step.part is not None:
                self._search.set_area(step.part, None)
            options.pop()
            savepoints.pop()
            at -= 1
            if at < 0 or tries >= MAX_TRIES:
                self._search.add_retries(tries)
                return None
        self._search.add_retries(tries - len(self._batches))
        return self._placed

    def _options(self, step: _Step) -> Iterator[ChosenArea]:
        if step.part is None:
            return iter((_ANY,))
        batches = [self._batches[at] for at in step.batches]
        return self._search.distinct(self._search.candidates(step.part, step.around, batches), batches)

    def _plan_steps(self) -> Iterable[_Step]:
        """Before a batch, the parts that it is in and that have no area yet, the widest first."""
        parts = [self._search.parts_of(batch) for batch in self._batches]
        known: set[PartKey] = set()
        for at, keys in enumerate(parts):
            for depth, key in enumerate(keys):
                if key not in known and not self._search.has_area(key):
                    known.add(key)
                    members = tuple(other for other, others in enumerate(parts) if key in others)
                    yield _Step(key, keys[depth - 1] if depth else None, members)
            yield _Step(None, None, (at,))


_ANY = ChosenArea(np.ones(0, np.bool_), NO_LEVEL, 0, None, 0)


def node_use(working: WorkingCopy) -> NodeUse:
    """GPUs in use on each node, in thousandths; CPU where no node has a GPU."""
    nodes = working.nodes
    performance = working.view.once(performance_of_nodes) if working.view.node_speeds else None
    if nodes.gpu_total.any():
        return NodeUse(np.maximum(nodes.gpu_total - working.free[:, FREE_GPU], 0), nodes.gpu_total, performance)
    return NodeUse(np.maximum(nodes.cpu_size - working.free[:, CPU], 0), nodes.cpu_size, performance)


def _most_common(domains: IntArray, rows: list[int]) -> int:
    """The domain with the most of these nodes; of equal ones the first; -1: none of them has one."""
    found = domains[rows]
    found = found[found >= 0]
    return int(np.bincount(found).argmax()) if len(found) else -1
