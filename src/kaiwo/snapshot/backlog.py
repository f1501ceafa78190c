"""The waiting workloads, grouped into classes of equal work: a cycle looks at classes, not at every workload.

In:    workloads that need pods.   Out: the classes of each queue, each with its workloads in trial order.
Workloads that may not be tried at all (held, waiting for others, backing off) are gated, with the reason.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from kaiwo.model.digest import digest as digest_of
from kaiwo.model.network.level_groups import WorkloadLevels, levels_of
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.workload import Workload
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.request_shapes import RequestShapes
from kaiwo.snapshot.subgroup_choices import SubGroupChoices

TIME_GATES = (Reason.NOT_BEFORE, Reason.NOT_PERMITTED)  # obstacles that end by themselves, at the second in `need`
# A key from each order plugin, then the name: a total order.
TrialPosition: TypeAlias = tuple[tuple[tuple[int, ...], ...], str]
P = TypeVar("P", TrialPosition, "Queued")


class OrderedWaiters(Generic[P]):
    """A sorted list. Removing the first only moves the head; the list is trimmed when half of it is gone."""

    __slots__ = ("_head", "_positions")

    def __init__(self) -> None:
        self._positions: list[P] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._positions) - self._head

    def __iter__(self) -> Iterator[P]:
        for at in range(self._head, len(self._positions)):
            yield self._positions[at]

    def at(self, position: int) -> P:
        """Position 0 is the head."""
        return self._positions[self._head + position]

    def add(self, place: P) -> None:
        positions = self._positions  # perhaps all behind the head: then a place that comes first is put at the end, too
        if not positions or place > positions[-1]:
            positions.append(place)
        else:
            insort(positions, place, lo=self._head)

    def remove(self, place: P) -> None:
        # The first is nearly always the one that started: comparing keys to find it took a tenth of applying a start.
        is_head = self._positions[self._head] is place
        at = self._head if is_head else bisect_left(self._positions, place, lo=self._head)
        if at == self._head:
            self._head += 1
            if self._head > 64 and self._head * 2 > len(self._positions):
                del self._positions[: self._head]
                self._head = 0
        else:
            del self._positions[at]

    def is_last_before(self, position: int, place: P) -> bool:
        """Nobody stands between this position and that place."""
        at = self._head + position + 1
        return at >= len(self._positions) or self._positions[at] > place

    def ahead_of(self, place: P) -> int:
        return bisect_left(self._positions, place, lo=self._head) - self._head

    def copy(self) -> Self:
        other = type(self)()  # not `OrderedWaiters[P]()`, which takes ten times as long
        other._positions = self._positions[self._head :]
        return other


class TrialOrder(OrderedWaiters[TrialPosition]):
    """The workloads of a class in the order in which they are tried."""

    __slots__ = ()

    def name_at(self, position: int) -> str:
        return self._positions[self._head + position][1]


class RoleNeed(NamedTuple):
    shape: int
    missing: int  # pods
    needed: int  # of these, the pods without which the workload does not start


RoleNeeds: TypeAlias = tuple[RoleNeed, ...]
ClassKey: TypeAlias = tuple[str, str]  # queue, digest
ActionKey: TypeAlias = tuple[str, str, str]  # an action that makes room, and the class for which it should
OrderKeys: TypeAlias = tuple[tuple[int, ...], ...]  # one from each order plugin


class OrderFault(NamedTuple):
    plugin: str
    detail: str  # what it did wrong


WorkloadOrder: TypeAlias = Callable[[Workload], tuple[OrderKeys, tuple[OrderFault, ...]]]


class Demand(NamedTuple):
    """What waiting work requests."""

    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    gpu_mib: int  # requested by memory: its milli depend on the device
    memory_gpus: int = 0  # the devices on which that memory is requested: the charge for each rounds up
    both_gpus: int = 0  # devices of which a fraction and memory are requested; `gpu_milli` has the fraction


_NOTHING = Demand(0, 0, 0, 0)


class ClassSignature(NamedTuple):
    """What the workloads of one class have in common. The class's digest is made of it: fields keep their order."""

    needs: RoleNeeds
    is_preemptible: bool
    nominated_for: str  # the workload that holds nominations: it is a class of its own; empty: none does
    may_preempt: bool
    choices: SubGroupChoices | None  # the ways in which its sub-groups may start; None: it has none
    levels: WorkloadLevels | None = None  # how near to each other its pods run; None: it does not matter
    joins: str = ""  # the workload whose running pods decide where its others may run: it is a class of its own


class WaitingClass:
    """Workloads of one queue with exactly the same requests: if one cannot start, none after it can."""

    __slots__ = (
        "choices", "demand", "digest", "is_single", "key", "least_charge", "needs", "obstacles", "queue", "signature",
        "waiters",
    )  # fmt: skip

    def __init__(self, queue: str, signature: ClassSignature, digest: str, demand: Demand) -> None:
        self.queue = queue
        self.signature = signature
        self.needs: RoleNeeds = signature.needs  # what each of its workloads needs, by role
        self.choices: SubGroupChoices | None = signature.choices
        # One pod of each workload is missing, it has no nomination, and may run on any node that it fits on.
        self.is_single = (
            len(self.needs) == 1
            and self.needs[0].missing == self.needs[0].needed == 1
            and not signature.nominated_for
            and signature.levels is None
        )
        self.digest, self.demand = digest, demand
        self.key: ClassKey = (queue, digest)  # how plans name this class, the same in every process
        self.waiters = TrialOrder()
        self.least_charge: tuple[int, ResourceVector] | None = None  # of its queue, by largest device: see decide
        self.obstacles: tuple[Obstacle, ...] = ()  # as of the last cycle that tried it

    def copy(self) -> "WaitingClass":
        other = WaitingClass(self.queue, self.signature, self.digest, self.demand)
        other.waiters, other.obstacles, other.least_charge = self.waiters.copy(), self.obstacles, self.least_charge
        return other


class Queued(msgspec.Struct, gc=False, frozen=True, order=True):
    """A workload in its class. The first two order the workloads of a queue by age, and no two are equal in both.

    No named tuple: the garbage collector visits those for ever, 25 ms for 100,000 of them.
    """

    submitted_s: int
    name: str
    place: TrialPosition
    key: ClassKey


class Backlog:
    """Every waiting workload is either in one class or gated."""

    def __init__(self, order: WorkloadOrder) -> None:
        self.order = order
        self.shapes = RequestShapes()
        self.by_queue: dict[str, dict[ClassSignature, WaitingClass]] = {}
        self.by_key: dict[ClassKey, WaitingClass] = {}
        self._positions: dict[str, Queued] = {}
        self.by_age: dict[str, OrderedWaiters[Queued]] = {}  # by queue: its queued workloads, the oldest first
        self.all_demand: dict[str, Demand] = {}  # by queue: what its queued workloads request
        self.awaited_marks: Counter[str] = Counter()  # waiting work has more places when such a pod starts
        self.gated: dict[str, tuple[Obstacle, ...]] = {}
        self.faults: dict[str, tuple[OrderFault, ...]] = {}  # by workload
        self._due: list[tuple[int, str]] = []  # a heap of (not before, name); stale entries are harmless
        self.to_try: dict[ClassKey, WaitingClass] = {}  # not known to be stuck
        self.try_all = False  # something was freed: try every class
        self.pending_actions: frozenset[ActionKey] = frozenset()  # actions that the last cycle did not reach
        self.unchecked: dict[ClassKey, WaitingClass] = {}  # classes not yet checked for whether they could ever start
        self.impossible: dict[ClassKey, WaitingClass] = {}  # could never start: see `eligibility`
        self.resumed: frozenset[ClassKey] = frozenset()  # the last cycle's budget did not reach them: tried first

    def __len__(self) -> int:
        return len(self._positions) + len(self.gated)

    def add(
        self,
        workload: Workload,
        needs: RoleNeeds,
        choices: SubGroupChoices | None = None,
        unnominated: RoleNeeds | None = None,
        has_pods: bool = False,
    ) -> None:
        """Add a workload to its class. A workload with nominations is a class of its own, and so is one with levels
        that has pods already.

        `unnominated`: what it needs besides its nominations, which are charged already; None: it has no nominations.
        """
        nominated_for = workload.name if unnominated is not None else ""
        levels = levels_of(workload)
        joins = workload.name if levels is not None and has_pods else ""
        may_preempt = workload.stops_others
        signature = ClassSignature(needs, workload.preemptible, nominated_for, may_preempt, choices, levels, joins)
        classes = self.by_queue.setdefault(workload.queue, {})
        found = classes.get(signature)
        if found is None:
            demand = self._demand_of(needs if unnominated is None else unnominated)
            digest = self._digest(signature)
            found = classes[signature] = WaitingClass(workload.queue, signature, digest, demand)
            self.by_key[found.key] = self.to_try[found.key] = self.unchecked[found.key] = found
            for shape, _, _ in needs:
                self.shapes.use(shape)
            self._count_awaited(found, +1)
        keys, faults = self.order(workload)
        if faults:
            self.faults[workload.name] = faults
        place = (_with_growth_last(keys, not any(needed for _, _, needed in needs)), workload.name)
        found.waiters.add(place)
        if found.waiters.at(0) is place:
            self.to_try[found.key] = found  # a more important workload may get what the others may not
        self.all_demand[found.queue] = _add_demand(self.all_demand.get(found.queue, _NOTHING), found.demand, +1)
        queued = self._positions[workload.name] = Queued(workload.submitted_s, workload.name, place, found.key)
        ages = self.by_age.get(found.queue)
        if ages is None:
            ages = self.by_age[found.queue] = OrderedWaiters()
        ages.add(queued)

    def retry(self, name: str) -> None:
        found = self.class_of(name)
        self.to_try[found.key] = found

    def add_gated(self, workload: Workload, obstacles: tuple[Obstacle, ...]) -> None:
        self.gated[workload.name] = obstacles
        for obstacle in obstacles:
            if obstacle.reason in TIME_GATES:
                heappush(self._due, (obstacle.need, workload.name))

    def remove(self, name: str) -> None:
        self.gated.pop(name, None)
        self.faults.pop(name, None)
        queued = self._positions.pop(name, None)
        if queued is None:
            return
        found = self.by_key[queued.key]
        found.waiters.remove(queued.place)
        ages = self.by_age[found.queue]
        ages.remove(queued)
        if not len(ages):
            del self.by_age[found.queue]
        self.all_demand[found.queue] = _add_demand(self.all_demand[found.queue], found.demand, -1)
        if not len(found.waiters):
            del self.by_queue[found.queue][found.signature]
            del self.by_key[found.key]
            for known in (self.to_try, self.unchecked, self.impossible):
                known.pop(found.key, None)
            self._count_awaited(found, -1)
            for shape, _, _ in found.needs:
                self.shapes.release(shape)

    def check_impossible(self, is_impossible: Callable[[WaitingClass], bool]) -> None:
        """Check the classes that are new since the last check."""
        while self.unchecked:
            key, found = self.unchecked.popitem()
            if is_impossible(found):
                self.impossible[key] = found

    def recheck_impossible(self) -> None:
        self.unchecked, self.impossible = dict(self.by_key), {}

    def queue_demand(self) -> dict[str, Demand]:
        """By queue: what its queued workloads request, without those that could never start."""
        if not self.impossible:
            return self.all_demand
        demand = dict(self.all_demand)
        for found in self.impossible.values():
            demand[found.queue] = _add_demand(demand[found.queue], found.demand, -len(found.waiters))
        return demand

    def pop_due(self, now_s: int) -> list[str]:
        names = []
        while self._due and self._due[0][0] <= now_s:
            names.append(heappop(self._due)[1])
        return names

    @property
    def next_due_s(self) -> int | None:
        return self._due[0][0] if self._due else None

    def classes_to_try(self, all_classes: bool = False, barred: Collection[ClassKey] = ()) -> list[WaitingClass]:
        chosen = self.by_key if self.try_all or all_classes else self.to_try
        keys = [key for key in chosen if key not in barred] if barred else chosen
        return [chosen[key] for key in sorted(keys)]

    def is_queued(self, name: str) -> bool:
        return name in self._positions

    def queued_names(self) -> Iterable[str]:
        return self._positions

    def class_of(self, name: str) -> WaitingClass:
        return self.by_key[self._positions[name].key]

    def trial_position(self, name: str) -> TrialPosition:
        return self._positions[name].place

    def position(self, name: str) -> int:
        """The workload's position in its queue, from 1; 0 when it is not queued."""
        if name not in self._positions:
            return 0
        queued = self._positions[name]
        others = self.by_queue[self.by_key[queued.key].queue].values()
        return 1 + sum(other.waiters.ahead_of(queued.place) for other in others)

    def ahead_in_class(self, name: str) -> int:
        """How many workloads of its class are tried before it."""
        queued = self._positions[name]
        return self.by_key[queued.key].waiters.ahead_of(queued.place)

    def end_cycle(
        self, unfinished: tuple[ClassKey, ...], first: tuple[ClassKey, ...], unclaimed: tuple[ActionKey, ...]
    ) -> None:
        """What the cycle tried and left waiting is stuck until something is freed."""
        self.try_all = False
        self.resumed, self.pending_actions = frozenset(first or unfinished), frozenset(unclaimed)
        self.to_try = {key: self.by_key[key] for key in unfinished if key in self.by_key}

    def pending_for(self, action: str) -> dict[ClassKey, WaitingClass]:
        """The classes for which the last cycle did not get to this action."""
        keys = sorted(key for by, *key in self.pending_actions if by == action)
        return {(queue, digest): found for queue, digest in keys if (found := self.by_key.get((queue, digest)))}

    def copy(self) -> "Backlog":
        other = Backlog(self.order)
        other.shapes = self.shapes.copy()
        copies = {key: found.copy() for key, found in self.by_key.items()}
        other.by_key = copies
        for found in copies.values():
            other.by_queue.setdefault(found.queue, {})[found.signature] = found
        other._positions = dict(self._positions)
        other.by_age = {queue: ages.copy() for queue, ages in self.by_age.items()}
        other.all_demand, other.awaited_marks = dict(self.all_demand), self.awaited_marks.copy()
        other.gated, other._due, other.faults = dict(self.gated), list(self._due), dict(self.faults)
        other.to_try, other.try_all = {key: copies[key] for key in self.to_try}, self.try_all
        other.resumed, other.pending_actions = self.resumed, self.pending_actions
        other.unchecked = {key: copies[key] for key in self.unchecked}
        other.impossible = {key: copies[key] for key in self.impossible}
        return other

    def _count_awaited(self, waiting_class: WaitingClass, sign: int) -> None:
        for shape, _, _ in waiting_class.needs:
            neighbours = self.shapes[shape].neighbours
            for mark in neighbours.awaited_marks if neighbours is not None else ():
                self.awaited_marks[mark] += sign
                if not self.awaited_marks[mark]:
                    del self.awaited_marks[mark]

    def _demand_of(self, needs: RoleNeeds) -> Demand:
        wants = [(self.shapes[shape], missing) for shape, missing, _ in needs]
        return Demand(
            sum(want.least_milli * pods for want, pods in wants),
            sum(want.cpu_milli * pods for want, pods in wants),
            sum(want.memory_mib * pods for want, pods in wants),
            sum(want.gpu_mib * want.gpus * pods for want, pods in wants if want.is_memory and not want.fraction_milli),
            sum(want.gpus * pods for want, pods in wants if want.is_memory and not want.fraction_milli),
            sum(want.gpus * pods for want, pods in wants if want.is_memory and want.fraction_milli),
        )

    def _digest(self, signature: ClassSignature) -> str:
        """The digest must not depend on the order in which shapes arrived."""
        needs, *rest = signature
        while rest[-1] is None or rest[-1] == "":  # sub-groups and levels count only where there are any
            rest.pop()
        return digest_of(([(self.shapes[shape], missing, needed) for shape, missing, needed in needs], rest))


def _add_demand(before: Demand, each: Demand, count: int) -> Demand:
    gpu_milli, cpu_milli, memory_mib, gpu_mib, memory_gpus, both_gpus = each
    return Demand(
        before.gpu_milli + count * gpu_milli,
        before.cpu_milli + count * cpu_milli,
        before.memory_mib + count * memory_mib,
        before.gpu_mib + count * gpu_mib,
        before.memory_gpus + count * memory_gpus,
        before.both_gpus + count * both_gpus,
    )


def with_required(needs: RoleNeeds, needed: Sequence[int]) -> RoleNeeds:
    """The same missing pods, with other minimums."""
    return tuple(role._replace(needed=must) for role, must in zip(needs, needed, strict=True))


def _with_growth_last(keys: OrderKeys, grows: bool) -> OrderKeys:
    """Among equally important work, a workload that has not started precedes one that only wants to grow."""
    (most, *others), *rest = keys if keys and keys[0] else ((0,), *keys[1:])
    return ((most, int(grows), *others), *rest)


def needs_to_make_room_for(waiting_class: WaitingClass) -> RoleNeeds:
    """The pods without which the workload does not start; for one that runs, one more pod."""
    if any(needed for _, _, needed in waiting_class.needs):
        return waiting_class.needs
    if waiting_class.choices is not None:
        return with_required(waiting_class.needs, waiting_class.choices.needed[0])
    first, *rest = waiting_class.needs
    return (first._replace(needed=1), *rest)


def needs_charged_first(waiting_class: WaitingClass) -> RoleNeeds:
    """The pods that its queue is charged for first; with sub-groups, those of the next that would start."""
    return waiting_class.needs if waiting_class.choices is None else needs_to_make_room_for(waiting_class)


def needs_of_each_choice(waiting_class: WaitingClass) -> list[RoleNeeds]:
    """Every alternative of a workload with sub-groups, the cheapest first."""
    choices = waiting_class.choices
    return [] if choices is None else [with_required(waiting_class.needs, needed) for needed in choices.needed]
