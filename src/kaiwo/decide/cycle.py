"""One scheduling cycle: `decide(snapshot, policy) -> Plan`.

In:    one Snapshot, one Policy, the plugins.   Out: one Plan.
Never: reads a clock, draws a random number, does I/O, or changes the snapshot. The budget is a count of steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kaiwo.decide.ask import PluginFaultError
from kaiwo.decide.gang import first_missing_pod, least_charge, place_workload, within_limits
from kaiwo.decide.obstacles import Inquiry
from kaiwo.decide.order import Lane, Turns
from kaiwo.decide.place import Placed, Placer
from kaiwo.decide.score import ShapeBook
from kaiwo.decide.window import LARGEST, SMALLEST, Window, is_single
from kaiwo.model.plan import Note, Plan, Start, Wait
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.request import Request
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.registry import Active, Registry
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working import Working

BUILTIN = builtin_registry()


def decide(snapshot: Snapshot, policy: Policy = DEFAULT_POLICY, plugins: Registry = BUILTIN) -> Plan:
    """What to start now, and what keeps the rest waiting. Equal snapshots give equal plans, byte for byte."""
    active = plugins.active(policy)
    notes = tuple(Note("plugin-misbehaved", name, plugins.faults[name]) for name in sorted(plugins.faults))
    while True:
        try:
            return _Cycle(snapshot, policy, active).run(notes)
        except PluginFaultError as fault:
            notes += (Note("plugin-set-aside", fault.plugin, fault.detail),)
            active = active.without(fault.plugin)


@dataclass(frozen=True, slots=True)
class Fate:
    """What a cycle would do about one workload, and all that it starts until then."""

    is_started: bool
    has_room: bool  # the nodes had room for it until its turn
    starts: tuple[Start, ...]


def fate_of(snapshot: Snapshot, name: str, policy: Policy = DEFAULT_POLICY, plugins: Registry = BUILTIN) -> Fate:
    """Decide until one workload has had its turn or has no chance left: the same steps as `decide`, cut short."""
    active = plugins.active(policy)
    while True:
        try:
            return _Cycle(snapshot, policy, active).fate_of(name)
        except PluginFaultError as fault:
            active = active.without(fault.plugin)


class _Cycle:
    """The working state of one cycle."""

    def __init__(self, snapshot: Snapshot, policy: Policy, active: Active) -> None:
        self._snapshot, self._policy, self._active = snapshot, policy, active
        self._picture = snapshot.read()
        self._starts: list[Start] = []
        self._stuck: list[WaitingClass] = []
        self._steps = 0

    def run(self, notes: tuple[Note, ...]) -> Plan:
        """The whole cycle."""
        candidates = self._picture.backlog.candidates()
        if not candidates:
            return Plan(notes=notes)
        self._begin()
        turns = self._turns(candidates)
        self._allocate(turns, lambda: self._steps >= self._policy.steps)
        unreached = [found for lane in turns.lanes.values() for found in lane.rest()]
        if unreached:
            notes += (Note("budget-spent", detail=f"{len(unreached)} classes are left for the next cycle"),)
        return Plan(
            starts=tuple(self._starts),
            waits=self._waits(),
            unfinished=tuple(sorted(found.key for found in unreached)),
            notes=notes,
            steps=self._steps,
        )

    def fate_of(self, name: str) -> Fate:
        """The cycle until one workload's turn is over."""
        self._begin()
        turns = self._turns(self._picture.backlog.candidates())
        target, _ = self._picture.backlog.stand_of(name)
        seen = 0

        def is_over() -> bool:
            nonlocal seen
            seen, before = len(self._starts), seen
            is_started = any(start.workload == name for start in self._starts[before:])
            return is_started or target in self._stuck or not self._could_fit(target)

        self._allocate(turns, is_over)
        is_started = any(start.workload == name for start in self._starts)
        return Fate(is_started, is_started or self._could_fit(target), tuple(self._starts))

    def _begin(self) -> None:
        self._working = Working(self._snapshot)
        self._book = ShapeBook(self._picture, Working(self._snapshot), self._working, self._active)
        self._placer = Placer(self._working, self._book, self._active, packs=self._policy.placement == "pack")

    def _turns(self, candidates: list[WaitingClass]) -> Turns:
        """Line up the classes that have a chance; the others are stuck from the start."""
        by_queue: dict[str, list[WaitingClass]] = {}
        for found in candidates:
            if self._may_hold_work(found.queue) and self._could_fit(found):
                by_queue.setdefault(found.queue, []).append(found)
            else:
                self._stuck.append(found)
        lanes = {queue: Lane(classes) for queue, classes in by_queue.items()}
        return Turns(lanes, self._working, self._active)

    def _allocate(self, turns: Turns, is_over: Callable[[], bool]) -> None:
        """Give every queue its turns until nothing more starts."""
        size = LARGEST
        while turns and not is_over():
            if size >= SMALLEST and self._window(turns, min(size, self._policy.steps - self._steps)):
                size = min(LARGEST, size * 2)
            else:
                size //= 2
                self._turn(turns)

    def _window(self, turns: Turns, size: int) -> bool:
        """Start the next turns together, all of them or none."""
        window = Window(turns)
        window.gather(self._working, self._picture, self._room, size)
        starts = self._start_window(window) if len(window.picked) > 1 else None
        if starts is None:
            window.put_back()
            return False
        self._starts.extend(starts)
        self._steps += len(starts)
        return True

    def _start_window(self, window: Window) -> list[Start] | None:
        """Large requests first, each group at once."""
        starts: dict[int, Start] = {}
        shapes = self._picture.backlog.shapes
        with self._working.trial() as attempt:
            for shape, group in sorted(
                window.by_shape.items(), key=lambda item: (-shapes[item[0]].charge_milli, item[1])
            ):
                placed = self._placer.place(shape, shapes[shape], len(group))
                if len(placed) < len(group):
                    return None
                for at, each in zip(group, placed, strict=True):
                    found, position = window.picked[at]
                    if not self._charge_single(found, shapes[shape], each):
                        return None
                    starts[at] = self._single_start(found, position, each)
            attempt.keep()
        return [starts[at] for at in sorted(starts)]

    def _turn(self, turns: Turns) -> None:
        """Try who is first, alone."""
        name, position, found = turns.lane.first
        started = self._start_single(found, position) if is_single(found) else self._start_one(name, found)
        self._steps += max(1, started)
        if started:
            turns.lane.advance(1)
        else:
            turns.lane.set_aside()
            self._stuck.append(found)
        turns.again()

    def _start_single(self, found: WaitingClass, position: int) -> int:
        """Start a workload of one pod."""
        shape = found.needs[0][0]
        want = self._picture.backlog.shapes[shape]
        with self._working.trial() as attempt:
            placed = self._placer.place(shape, want, 1)
            if not placed or not self._charge_single(found, want, placed[0]):
                return 0
            attempt.keep()
        self._starts.append(self._single_start(found, position, placed[0]))
        return 1

    def _charge_single(self, found: WaitingClass, want: Request, placed: Placed) -> bool:
        """Charge the queue, if its limits allow."""
        queue = self._working.queues.row[found.queue]
        charge = (placed.milli, want.cpu_milli, want.memory_mib)
        if not within_limits(self._working, queue, charge):
            return False
        self._working.charge(queue, charge)
        return True

    def _single_start(self, found: WaitingClass, position: int, placed: Placed) -> Start:
        workload = self._picture.workloads[found.line.at(position)[1]]
        return Start(workload.name, first_missing_pod(self._picture, workload), placed.node, placed.devices)

    def _room(self, shape: int) -> int:
        """How many pods of a shape the cluster has room for, if nothing else came."""
        return self._book.state(shape).room

    def _start_one(self, name: str, found: WaitingClass) -> int:
        """Start one workload of several pods, whole or not at all."""
        workload = self._picture.workloads[name]
        queue = self._working.queues.row[found.queue]
        if not within_limits(self._working, queue, least_charge(self._picture, found.needs)):
            return 0
        starts = place_workload(self._working, self._placer, self._picture, workload, found.needs)
        if starts is None:
            return 0
        self._starts.extend(starts)
        return len(starts)

    def _may_hold_work(self, queue: str) -> bool:
        row = self._working.queues.row.get(queue)
        return row is not None and self._working.queues.is_leaf[row]

    def _could_fit(self, found: WaitingClass) -> bool:
        """A necessary condition, by shape and not by class: room for what it needs, as if it were alone."""
        if found.signature[2]:
            return True  # space is kept for it
        if any(needed for _, _, needed in found.needs):
            return all(self._room(shape) >= needed for shape, _, needed in found.needs)
        return any(self._room(shape) for shape, _, _ in found.needs)

    def _waits(self) -> tuple[Wait, ...]:
        """What changed in why anything waits, told in the state at the end of the cycle."""
        inquiry = Inquiry(self._picture, self._active, self._book)
        waits = [(found, inquiry.obstacles(found.queue, found.needs)) for found in self._stuck]
        changed = [Wait(found.queue, found.digest, now) for found, now in waits if now != found.obstacles]
        return tuple(sorted(changed, key=lambda wait: (wait.queue, wait.shape)))
