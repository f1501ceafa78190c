"""Who waits, grouped so that a cycle looks at kinds of work and not at every workload.

In:    workloads that want pods.   Out: classes of equal work per queue, each a line in trial order.
Workloads that may not be tried at all (held, waiting for another, backing off) stand at the gate with their reason.

Also: A sorted line of waiting workloads, cheap at both the head and the middle.
Also: The least of a waiting class that would do: what room is made for, and what its queue pays first.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from kaiwo.model.digest import digest as digest_of
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.workload import Workload
from kaiwo.snapshot.queue_table import Charge
from kaiwo.snapshot.request_shapes import Shapes
from kaiwo.snapshot.subgroup_choices import Choices

Place: TypeAlias = tuple[tuple[tuple[int, ...], ...], str]  # a key from each order, then the name: a total order


class Line:
    """Places in order. Leaving at the head only moves a mark; the list is trimmed when half of it is gone."""

    __slots__ = ("_head", "_places")

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._places) - self._head

    def __iter__(self) -> Iterator[Place]:
        for at in range(self._head, len(self._places)):
            yield self._places[at]

    def at(self, position: int) -> Place:
        """The place at a position, the head being 0."""
        return self._places[self._head + position]

    def join(self, place: Place) -> None:
        """Stand where the order says."""
        if len(self) == 0 or place > self._places[-1]:
            self._places.append(place)
        else:
            insort(self._places, place, lo=self._head)

    def leave(self, place: Place) -> None:
        """Leave from wherever one stands."""
        at = bisect_left(self._places, place, lo=self._head)
        if at == self._head:
            self._head += 1
            if self._head > 64 and self._head * 2 > len(self._places):
                del self._places[: self._head]
                self._head = 0
        else:
            del self._places[at]

    def position(self, place: Place) -> int:
        """How many stand before this place."""
        return bisect_left(self._places, place, lo=self._head) - self._head

    def copy(self) -> "Line":
        """An independent line."""
        other = Line()
        other._places = self._places[self._head :]
        return other


class RoleNeed(NamedTuple):
    """What one role of a waiting workload lacks."""

    shape: int
    missing: int  # pods
    needed: int  # of these, the pods without which the workload does not start


Needs: TypeAlias = tuple[RoleNeed, ...]
ClassKey: TypeAlias = tuple[str, str]  # queue, digest
ClaimKey: TypeAlias = tuple[str, str, str]  # an action that makes room, and the class for which it should
Keys: TypeAlias = tuple[tuple[int, ...], ...]  # one from each order
Fault: TypeAlias = tuple[str, str]  # an order that misbehaved, and what it did
Order: TypeAlias = Callable[[Workload], tuple[Keys, tuple[Fault, ...]]]


Amount: TypeAlias = tuple[int, int, int, int]  # milli-GPU, milli-CPU, MiB, and MiB of GPU memory


class ClassSignature(NamedTuple):
    """What the workloads of one class have in common. The class's digest is made of it: fields keep their order."""

    needs: Needs
    is_preemptible: bool
    nominated_for: str  # the workload that holds nominations: it is a class of its own; empty: none does
    may_preempt: bool
    choices: Choices | None  # the ways in which its sub-groups may start; None: it has none


class WaitingClass:
    """Workloads of one queue that ask for exactly the same: one of them cannot start, none behind it can."""

    __slots__ = (
        "asks", "choices", "digest", "is_single", "key", "least", "line", "needs", "obstacles", "queue", "signature",
    )  # fmt: skip

    def __init__(self, queue: str, signature: ClassSignature, digest: str, asks: Amount) -> None:
        self.queue = queue
        self.signature = signature
        self.needs: Needs = signature.needs  # what each of its workloads needs, by role
        self.choices: Choices | None = signature.choices
        # One pod is missing of each workload, and no space is kept for it.
        self.is_single = (
            len(self.needs) == 1 and self.needs[0].missing == self.needs[0].needed == 1 and not signature.nominated_for
        )
        self.digest, self.asks = digest, asks
        self.key: ClassKey = (queue, digest)  # how plans name this class, the same in every process
        self.line = Line()
        self.least: tuple[int, Charge] | None = None  # see decide.desk: what its queue pays at least, by largest device
        self.obstacles: tuple[Obstacle, ...] = ()  # as of the last cycle that tried it

    def copy(self) -> "WaitingClass":
        """An independent class."""
        other = WaitingClass(self.queue, self.signature, self.digest, self.asks)
        other.line, other.obstacles, other.least = self.line.copy(), self.obstacles, self.least
        return other


class Backlog:
    """Every waiting workload is either in one class's line or at the gate."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.shapes = Shapes()
        self.by_queue: dict[str, dict[ClassSignature, WaitingClass]] = {}
        self.by_key: dict[ClassKey, WaitingClass] = {}
        self._place: dict[str, tuple[ClassKey, Place]] = {}
        self.waiting: dict[str, Amount] = {}  # by queue: what all who stand in its lines ask for
        self.awaited: Counter[str] = Counter()  # marks that give somebody more places when such a pod starts
        self.gate: dict[str, tuple[Obstacle, ...]] = {}
        self.faults: dict[str, tuple[Fault, ...]] = {}  # by workload: what the orders did wrong about it
        self._due: list[tuple[int, str]] = []  # a heap of (not before, name); stale entries are harmless
        self.open: dict[ClassKey, WaitingClass] = {}  # not known to be stuck
        self.all_open = False  # something was freed: every class deserves a try
        self.unclaimed: frozenset[ClaimKey] = frozenset()  # stuck, and these actions sought no room for them yet
        self.unjudged: dict[ClassKey, WaitingClass] = {}  # nobody looked yet whether they could ever start
        self.hopeless: dict[ClassKey, WaitingClass] = {}  # could never start as things are: see `hopeless`
        self.resumed: frozenset[ClassKey] = frozenset()  # the last cycle's budget did not reach them: they go first

    def __len__(self) -> int:
        return len(self._place) + len(self.gate)

    def join(
        self, workload: Workload, needs: Needs, choices: Choices | None = None, unkept: Needs | None = None
    ) -> None:
        """Stand in the line of one's class. Space that is kept for a workload makes it a class of its own.

        `unkept`: what it needs beside the space that is kept for it and paid for; None: none is kept.
        """
        nominated_for = workload.name if unkept is not None else ""
        signature = ClassSignature(needs, workload.preemptible, nominated_for, workload.stops_others, choices)
        classes = self.by_queue.setdefault(workload.queue, {})
        found = classes.get(signature)
        if found is None:
            asks = self._asks(needs if unkept is None else unkept)
            digest = self._digest(signature)
            found = classes[signature] = WaitingClass(workload.queue, signature, digest, asks)
            self.by_key[found.key] = self.open[found.key] = self.unjudged[found.key] = found
            for shape, _, _ in needs:
                self.shapes.use(shape)
            self._await(found, +1)
        keys, faults = self.order(workload)
        if faults:
            self.faults[workload.name] = faults
        place = (_with_growth_last(keys, not any(needed for _, _, needed in needs)), workload.name)
        found.line.join(place)
        if found.line.at(0) is place:
            self.open[found.key] = found  # what the others may not take, who is more important perhaps may
        self._ask(found, +1)
        self._place[workload.name] = (found.key, place)

    def reopen(self, name: str) -> None:
        """The class in whose line a workload stands deserves a try."""
        key, _ = self._place[name]
        self.open[key] = self.by_key[key]

    def wait_at_gate(self, workload: Workload, obstacles: tuple[Obstacle, ...]) -> None:
        """Wait without being tried."""
        self.gate[workload.name] = obstacles
        if any(obstacle.reason is Reason.NOT_BEFORE for obstacle in obstacles):
            heappush(self._due, (workload.not_before_s, workload.name))

    def leave(self, name: str) -> None:
        """Wait no more, wherever one stood."""
        self.gate.pop(name, None)
        self.faults.pop(name, None)
        stood = self._place.pop(name, None)
        if stood is None:
            return
        found, place = self.by_key[stood[0]], stood[1]
        found.line.leave(place)
        self._ask(found, -1)
        if not len(found.line):
            del self.by_queue[found.queue][found.signature]
            del self.by_key[found.key]
            for known in (self.open, self.unjudged, self.hopeless):
                known.pop(found.key, None)
            self._await(found, -1)
            for shape, _, _ in found.needs:
                self.shapes.let_go(shape)

    def judge(self, is_hopeless: Callable[[WaitingClass], bool]) -> None:
        """Look at the classes at which nobody looked yet."""
        while self.unjudged:
            key, found = self.unjudged.popitem()
            if is_hopeless(found):
                self.hopeless[key] = found

    def judge_anew(self) -> None:
        """Nodes or queues are others: what could never start perhaps can now."""
        self.unjudged, self.hopeless = dict(self.by_key), {}

    def wishes(self) -> dict[str, Amount]:
        """By queue: what all who stand in its lines ask for, save those who could never have it."""
        if not self.hopeless:
            return self.waiting
        wishes = dict(self.waiting)
        for found in self.hopeless.values():
            count = len(found.line)
            gpu, cpu, memory, gpu_mib = (
                all_of - count * each for all_of, each in zip(wishes[found.queue], found.asks, strict=True)
            )
            wishes[found.queue] = (gpu, cpu, memory, gpu_mib)
        return wishes

    def due(self, now_s: int) -> list[str]:
        """The names whose time at the gate is over."""
        names = []
        while self._due and self._due[0][0] <= now_s:
            names.append(heappop(self._due)[1])
        return names

    @property
    def next_due_s(self) -> int | None:
        """When somebody's time at the gate is over next."""
        return self._due[0][0] if self._due else None

    def candidates(self, everybody: bool = False) -> list[WaitingClass]:
        """The classes that deserve a try now, in the order of their keys."""
        chosen = self.by_key if self.all_open or everybody else self.open
        return [chosen[key] for key in sorted(chosen)]

    def stands(self, name: str) -> bool:
        """The workload stands in a line."""
        return name in self._place

    def standing(self) -> Iterable[str]:
        """The names of all who stand in lines."""
        return self._place

    def stand_of(self, name: str) -> tuple[WaitingClass, Place]:
        """The class in whose line a workload stands, and its place there."""
        key, place = self._place[name]
        return self.by_key[key], place

    def position(self, name: str) -> int:
        """Where a workload stands in its queue, from 1; 0 when it stands in no line."""
        if name not in self._place:
            return 0
        found, place = self.stand_of(name)
        return 1 + sum(other.line.position(place) for other in self.by_queue[found.queue].values())

    def ahead_in_class(self, name: str) -> int:
        """How many who ask for exactly the same are tried before a workload."""
        found, place = self.stand_of(name)
        return found.line.position(place)

    def settle(
        self, unfinished: tuple[ClassKey, ...], first: tuple[ClassKey, ...], unclaimed: tuple[ClaimKey, ...]
    ) -> None:
        """A cycle is over: what it reached and left waiting is stuck until something is freed."""
        self.all_open = False
        self.resumed, self.unclaimed = frozenset(first or unfinished), frozenset(unclaimed)
        self.open = {key: self.by_key[key] for key in unfinished if key in self.by_key}

    def unclaimed_by(self, action: str) -> dict[ClassKey, WaitingClass]:
        """The classes for which this action was to make room, and was not reached."""
        keys = sorted(key for by, *key in self.unclaimed if by == action)
        return {(queue, digest): found for queue, digest in keys if (found := self.by_key.get((queue, digest)))}

    def copy(self) -> "Backlog":
        """An independent backlog."""
        other = Backlog(self.order)
        other.shapes = self.shapes.copy()
        copies = {key: found.copy() for key, found in self.by_key.items()}
        other.by_key = copies
        for found in copies.values():
            other.by_queue.setdefault(found.queue, {})[found.signature] = found
        other._place = dict(self._place)
        other.waiting, other.awaited = dict(self.waiting), self.awaited.copy()
        other.gate, other._due, other.faults = dict(self.gate), list(self._due), dict(self.faults)
        other.open, other.all_open = {key: copies[key] for key in self.open}, self.all_open
        other.resumed, other.unclaimed = self.resumed, self.unclaimed
        other.unjudged = {key: copies[key] for key in self.unjudged}
        other.hopeless = {key: copies[key] for key in self.hopeless}
        return other

    def _await(self, found: WaitingClass, sign: int) -> None:
        for shape, _, _ in found.needs:
            neighbours = self.shapes[shape].neighbours
            for mark in neighbours.waits_for if neighbours is not None else ():
                self.awaited[mark] += sign
                if not self.awaited[mark]:
                    del self.awaited[mark]

    def _ask(self, found: WaitingClass, sign: int) -> None:
        before = self.waiting.get(found.queue, _NOTHING)
        asks = found.asks
        self.waiting[found.queue] = (
            before[0] + sign * asks[0],
            before[1] + sign * asks[1],
            before[2] + sign * asks[2],
            before[3] + sign * asks[3],
        )

    def _asks(self, needs: Needs) -> Amount:
        """What one workload asks for, all its missing pods together."""
        wants = [(self.shapes[shape], missing) for shape, missing, _ in needs]
        return (
            sum(want.charge_milli * pods for want, pods in wants),
            sum(want.cpu_milli * pods for want, pods in wants),
            sum(want.memory_mib * pods for want, pods in wants),
            sum(want.gpu_mib * want.gpus * pods for want, pods in wants if want.is_memory),
        )

    def _digest(self, signature: ClassSignature) -> str:
        """A name for the class that does not depend on the order in which shapes arrived."""
        needs, *rest = signature
        if rest[-1] is None:
            rest.pop()
        return digest_of(([(self.shapes[shape], missing, needed) for shape, missing, needed in needs], rest))


def chosen(needs: Needs, needed: Sequence[int]) -> Needs:
    """The same pods are missing, and others of them must start together."""
    return tuple(role._replace(needed=must) for role, must in zip(needs, needed, strict=True))


_NOTHING: Amount = (0, 0, 0, 0)


def _with_growth_last(keys: Keys, grows: bool) -> Keys:
    """Among equally important work, who has not started stands before who runs and would like more."""
    (most, *others), *rest = keys if keys and keys[0] else ((0,), *keys[1:])
    return ((most, int(grows), *others), *rest)


def one_more(found: WaitingClass) -> Needs:
    """What room is made for: the pods without which the workload does not start, or one more of one that runs."""
    if any(needed for _, _, needed in found.needs):
        return found.needs
    if found.choices is not None:
        return chosen(found.needs, found.choices.needed[0])
    first, *rest = found.needs
    return (first._replace(needed=1), *rest)


def must_pay(found: WaitingClass) -> Needs:
    """What a queue pays for before such work has started; of sub-groups the next that would."""
    return found.needs if found.choices is None else one_more(found)


def each_way(found: WaitingClass) -> list[Needs]:
    """All that would do for work with sub-groups, the cheapest first."""
    return [] if found.choices is None else [chosen(found.needs, needed) for needed in found.choices.needed]
