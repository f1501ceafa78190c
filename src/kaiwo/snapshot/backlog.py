"""Who waits, grouped so that a cycle looks at kinds of work and not at every workload.

In:    workloads that want pods.   Out: classes of equal work per queue, each a line in trial order.
Workloads that may not be tried at all (held, waiting for another, backing off) stand at the gate with their reason.
"""

import hashlib
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TypeAlias

import msgspec

from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.line import Line, Place

Need: TypeAlias = tuple[int, int, int]  # shape, pods missing, pods without which it does not start
Needs: TypeAlias = tuple[Need, ...]
Signature: TypeAlias = tuple[Needs, bool, str]  # what it needs, whether it may be preempted, whose kept space it has
ClassKey: TypeAlias = tuple[str, str]  # queue, digest
OrderKey: TypeAlias = Callable[[Workload], tuple[tuple[int, ...], ...]]


class WaitingClass:
    """Workloads of one queue that ask for exactly the same: one of them cannot start, none behind it can."""

    __slots__ = ("digest", "key", "line", "obstacles", "queue", "signature")

    def __init__(self, queue: str, signature: Signature, digest: str) -> None:
        self.queue = queue
        self.signature = signature
        self.digest = digest
        self.key: ClassKey = (queue, digest)  # how plans name this class, the same in every process
        self.line = Line()
        self.obstacles: tuple[Obstacle, ...] = ()  # as of the last cycle that tried it

    @property
    def needs(self) -> Needs:
        """What each of its workloads needs, by role."""
        return self.signature[0]

    def copy(self) -> "WaitingClass":
        """An independent class."""
        other = WaitingClass(self.queue, self.signature, self.digest)
        other.line, other.obstacles = self.line.copy(), self.obstacles
        return other


class Backlog:
    """Every waiting workload is either in one class's line or at the gate."""

    def __init__(self, order: OrderKey) -> None:
        self.order = order
        self.shapes: list[Request] = []
        self._shape_ids: dict[Request, int] = {}
        self._digests: dict[Signature, str] = {}
        self.by_queue: dict[str, dict[Signature, WaitingClass]] = {}
        self.by_key: dict[ClassKey, WaitingClass] = {}
        self._place: dict[str, tuple[ClassKey, Place]] = {}
        self.gate: dict[str, tuple[Obstacle, ...]] = {}
        self._due: list[tuple[int, str]] = []  # a heap of (not before, name); stale entries are harmless
        self.open: dict[ClassKey, WaitingClass] = {}  # not known to be stuck
        self.all_open = False  # something was freed: every class deserves a try

    def __len__(self) -> int:
        return len(self._place) + len(self.gate)

    def shape(self, request: Request) -> int:
        """The shape's number; equal requests have one."""
        found = self._shape_ids.get(request)
        if found is None:
            found = self._shape_ids[request] = len(self.shapes)
            self.shapes.append(request)
        return found

    def join(self, workload: Workload, needs: Needs, has_kept_space: bool) -> None:
        """Stand in the line of one's class. Space that is kept for a workload makes it a class of its own."""
        signature = (needs, workload.preemptible, workload.name if has_kept_space else "")
        classes = self.by_queue.setdefault(workload.queue, {})
        found = classes.get(signature)
        if found is None:
            found = classes[signature] = WaitingClass(workload.queue, signature, self._digest(signature))
            self.by_key[found.key] = self.open[found.key] = found
        place = (self.order(workload), workload.name)
        found.line.join(place)
        self._place[workload.name] = (found.key, place)

    def wait_at_gate(self, workload: Workload, obstacles: tuple[Obstacle, ...]) -> None:
        """Wait without being tried."""
        self.gate[workload.name] = obstacles
        if any(obstacle.reason is Reason.NOT_BEFORE for obstacle in obstacles):
            heappush(self._due, (workload.not_before_s, workload.name))

    def leave(self, name: str) -> None:
        """Wait no more, wherever one stood."""
        self.gate.pop(name, None)
        stood = self._place.pop(name, None)
        if stood is None:
            return
        found, place = self.by_key[stood[0]], stood[1]
        found.line.leave(place)
        if not len(found.line):
            del self.by_queue[found.queue][found.signature]
            del self.by_key[found.key]
            self.open.pop(found.key, None)

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

    def candidates(self) -> list[WaitingClass]:
        """The classes that deserve a try now, in the order of their keys."""
        chosen = self.by_key if self.all_open else self.open
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

    def settle(self, unfinished: tuple[ClassKey, ...]) -> None:
        """A cycle is over: what it reached and left waiting is stuck until something is freed."""
        self.all_open = False
        self.open = {key: self.by_key[key] for key in unfinished if key in self.by_key}

    def copy(self) -> "Backlog":
        """An independent backlog."""
        other = Backlog(self.order)
        other.shapes, other._shape_ids = list(self.shapes), dict(self._shape_ids)
        other._digests = dict(self._digests)
        copies = {key: found.copy() for key, found in self.by_key.items()}
        other.by_key = copies
        for found in copies.values():
            other.by_queue.setdefault(found.queue, {})[found.signature] = found
        other._place = dict(self._place)
        other.gate, other._due = dict(self.gate), list(self._due)
        other.open, other.all_open = {key: copies[key] for key in self.open}, self.all_open
        return other

    def _digest(self, signature: Signature) -> str:
        """A name for the class that does not depend on the order in which shapes arrived."""
        found = self._digests.get(signature)
        if found is None:
            needs, *rest = signature
            plain = [(self.shapes[shape], missing, needed) for shape, missing, needed in needs]
            content = msgspec.msgpack.encode((plain, rest), order="deterministic")
            found = self._digests[signature] = hashlib.blake2b(content, digest_size=8).hexdigest()
        return found
