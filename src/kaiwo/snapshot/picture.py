"""The live picture of a cluster: every event patches it in the size of what changed.

In:    events, in any order between objects.   Out: a Snapshot for one cycle.
Never: reads a clock. The same objects give the same picture, whatever the order in which they arrived.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from kaiwo.model.event import (
    Event,
    NodeChanged,
    NodeGone,
    NominationChanged,
    NominationGone,
    PastUseTold,
    PodChanged,
    PodGone,
    PromiseChanged,
    PromiseGone,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
    StoppedForOthers,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination, Plan
from kaiwo.model.promise import Promise, known_run_s
from kaiwo.model.queue import Queue
from kaiwo.model.reason import Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.model.workload import LEAVING, Phase, Pod, Role, Workload, pod_name, role_of
from kaiwo.snapshot.backlog import Backlog, Fault, Keys, Needs, Order, chosen
from kaiwo.snapshot.marks import Marks
from kaiwo.snapshot.model_use import all_by_model, milli_by_model
from kaiwo.snapshot.moments import mind_the_time
from kaiwo.snapshot.nodes import Held, NodeTable
from kaiwo.snapshot.queues import Charge, QueueTable
from kaiwo.snapshot.reserved import ReservationBook
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.stops import path_in, remember_stop, remembered, stops_of
from kaiwo.snapshot.ways import choices_of


def by_priority_then_age(workload: Workload) -> tuple[Keys, tuple[Fault, ...]]:
    """The plainest order: used where no registry gives one."""
    return ((-workload.priority, workload.submitted_s),), ()


class Picture:
    """What the events said so far. One writer; a Snapshot is good until the next patch."""

    def __init__(self, order: Order = by_priority_then_age) -> None:
        self.version = 0
        self.node_objects: dict[str, Node] = {}
        self.queue_objects: dict[str, Queue] = {}
        self.workloads: dict[str, Workload] = {}
        self.pods: dict[str, dict[str, Pod]] = {}  # by workload, then pod
        self.held_on: dict[str, dict[tuple[str, str, str], Held]] = {}  # by node: pods and nominations
        self.nominations: dict[str, dict[str, Nomination]] = {}  # by workload, then pod
        self.promises: dict[str, Promise] = {}  # by workload: the planned starts of large ones that wait
        self.used: dict[str, Charge] = {}  # by leaf queue: pods, and the space that is kept for others to come
        self.fixed: dict[str, Charge] = {}  # the part of it that may not be preempted
        self.backlog = Backlog(order)
        self.marks = Marks()  # of the pods that rules between pods are about
        self.nodes = NodeTable()
        self.queues = QueueTable()
        self.past_use: PastUseTold | None = None
        self.stopped: dict[str, StoppedForOthers] = {}  # by workload: when it last had to go for others
        self.stopped_in: dict[str, tuple[StoppedForOthers, ...]] = {}  # by queue that counts them: in the last hour
        self.leaving: set[tuple[str, str]] = set()  # (workload, pod) whose space comes free soon
        self.broken: set[str] = set()  # workloads that run below their minimum
        self.reserved = ReservationBook()
        self.expiring: dict[str, int] = {}  # workloads whose allocation is given until a time, and that time
        self.told_expired: set[str] = set()  # of those: whom a plan ended
        self.is_due = False  # time or a reservation gives a cycle something to do, though nobody waits
        self.look_again_s = 0  # when time alone may change an answer; 0: never
        self.rules = ""  # under which the last cycle judged: see Plan.rules
        self.memo: dict[Any, dict[Any, Any]] = {}  # what decide worked out per shape; derived, never part of the state
        self._nodes_stale = self._queues_stale = False
        self._borrowed: dict[int, set[str]] = {}  # of a fork: which inner dicts still belong to the original
        self._moved: dict[str, None] = {}  # workloads whose place in the backlog must be looked at

    def patch(self, events: Iterable[Event]) -> None:
        """Apply events. A gang whose pods change together finds its new place once, not once a pod."""
        self.hear(events)
        self.seat()

    def hear(self, events: Iterable[Event]) -> None:
        """The first half of `patch`, for one who takes in a large batch piece by piece."""
        for event in events:
            self.version += 1
            _PATCHES[type(event)](self, event)

    def seat(self, most: int | None = None) -> bool:
        """The second half: let those whom the events moved stand where they belong now. True: some are left."""
        names = list(islice(self._moved, most))
        for name in names:
            del self._moved[name]
            self._stand(name)
        return bool(self._moved)

    def snapshot(self, now_s: int) -> Snapshot:
        """The frozen picture for one cycle. Patching afterwards makes it stale, and decide refuses a stale one."""
        for name in self.backlog.due(now_s):
            if name in self.backlog.gate and self.workloads[name].not_before_s <= now_s:
                self.version += 1
                self._stand(name, now_s)
        if 0 < self.look_again_s <= now_s:
            self.version += 1
            self.look_again_s = 0
            self._freed()
        if self.reserved.objects or self.reserved.live or self.expiring:
            mind_the_time(self, now_s, self._stand)
        self.tidy()
        return Snapshot(self, now_s)

    @property
    def wants_cycle(self) -> bool:
        """The time or a reservation has something to do for a cycle, whether anybody waits or not."""
        has_reserved = self.reserved.live or self.reserved.leaving
        return self.is_due or bool(has_reserved and self.backlog.all_open)

    def absorb(self, plan: Plan) -> None:
        """Keep what the cycle learned: which classes are stuck, and why, and under which rules that was found."""
        self.version += 1
        self.rules = plan.rules or self.rules
        self.is_due = False
        self.told_expired.update(plan.expired)
        self.look_again_s = min(filter(None, (self.look_again_s, plan.look_again_s)), default=0)
        for wait in plan.waits:
            found = self.backlog.by_key.get((wait.queue, wait.shape))
            if found is not None:
                found.obstacles = wait.obstacles
        self.backlog.settle(plan.unfinished, plan.first, plan.unclaimed)
        for shape in self.backlog.shapes.retire():
            for kept in self.memo.values():
                kept.pop(shape, None)

    def reorder(self, order: Order) -> None:
        """Let everybody stand where another order puts them."""
        self.version += 1
        self.backlog.order = order
        for name in list(self.backlog.standing()):
            self._stand(name)
        self._freed()

    def assume(self, plan: Plan, now_s: int) -> tuple[Event, ...]:
        """The events that say what the plan began, so that the next cycle does not decide it again."""
        events: list[Event] = []
        for start in plan.starts:
            ask = role_of(self.workloads[start.workload], start.pod).request
            pod = Pod(
                start.workload, start.pod, start.node, Phase.ASSUMED, start.devices,
                ask.cpu_milli, ask.memory_mib, ask.extended, now_s, ask.neighbours, start.until_s,
            )  # fmt: skip
            events.append(PodChanged(pod))
            if start.pod in self.nominations.get(start.workload, {}):
                events.append(NominationGone(start.workload, start.pod))
        events.extend(NominationGone(workload, pod) for workload, pod in plan.given_up)
        for eviction in plan.evictions:
            leaving = self.pods.get(eviction.workload, {}).get(eviction.pod)
            if leaving is not None:
                events.append(PodChanged(_with_phase(leaving, Phase.RELEASING)))
        events.extend(stops_of(plan, now_s, partial(path_in, self)))
        events.extend(NominationChanged(nomination) for nomination in plan.nominations)
        for picked in plan.reserved:
            kept = self.reserved.objects[picked.reservation]
            events.append(ReservationChanged(replace(kept, picked=picked.devices)))
        events.extend(PromiseGone(name) for name in plan.unpromised)
        events.extend(PromiseChanged(promise) for promise in plan.promises)
        return tuple(events)

    def events(self) -> tuple[Event, ...]:
        """The whole state as events: what a journal's base holds."""
        return (
            *(QueueChanged(self.queue_objects[name]) for name in sorted(self.queue_objects)),
            *(NodeChanged(self.node_objects[name]) for name in sorted(self.node_objects)),
            *(ReservationChanged(found) for _, found in sorted(self.reserved.objects.items())),
            *(WorkloadChanged(self.workloads[name]) for name in sorted(self.workloads)),
            *(PodChanged(pods[name]) for _, pods in sorted(self.pods.items()) for name in sorted(pods)),
            *(NominationChanged(kept[pod]) for _, kept in sorted(self.nominations.items()) for pod in sorted(kept)),
            *(PromiseChanged(promise) for _, promise in sorted(self.promises.items())),
            *([self.past_use] if self.past_use is not None else ()),
            *remembered(self),
        )

    def fork(self) -> "Picture":
        """A picture of its own, to ask what would happen if. Good while this one stands still.

        The dicts inside `pods`, `held_on` and `nominations` are borrowed until they are changed: copying 8,000 of them
        was two thirds of the cost of a question.
        """
        self.tidy()
        other = object.__new__(Picture)
        other.__dict__.update(self.__dict__)
        copied = ("node_objects", "queue_objects", "workloads", "used", "fixed", "pods", "held_on", "nominations")
        for name in (*copied, "stopped", "stopped_in"):
            setattr(other, name, dict(getattr(self, name)))
        other._borrowed = {id(inner): set(inner) for inner in (other.pods, other.held_on, other.nominations)}
        other.backlog, other.nodes, other.queues = self.backlog.copy(), self.nodes.copy(), self.queues.copy()
        other.marks = self.marks.copy()
        other._moved, other.broken, other.leaving = {}, set(self.broken), set(self.leaving)
        other.promises = dict(self.promises)
        other.reserved, other.expiring = self.reserved.copy(), dict(self.expiring)
        other.told_expired = set(self.told_expired)
        other.memo = {key: dict(value) for key, value in self.memo.items()}
        return other

    # nodes

    def _node_changed(self, event: NodeChanged) -> None:
        node = event.node
        self.node_objects[node.name] = node
        self._queues_stale = self._queues_stale or bool(self.queues.models)  # its devices may be of another model now
        self.reserved.forget_places()
        self._freed()
        if self._nodes_stale or not self.nodes.holds(node):
            self._nodes_stale = True
            return
        self.nodes.define(node, self.held_on.get(node.name, {}).values(), self.version)

    def _node_gone(self, event: NodeGone) -> None:
        if self.node_objects.pop(event.name, None) is not None:
            self._nodes_stale = True
            self._queues_stale = self._queues_stale or bool(self.queues.models)
            self._freed()  # not freed, but obstacles name nodes: let every class be tried and told anew

    def tidy(self) -> None:
        """Build the tables anew when the set of nodes or queues changed."""
        if self._nodes_stale:
            self.nodes = NodeTable(self.node_objects, self.nodes.models, self.nodes.profiles)
            for name, node in self.node_objects.items():
                self.nodes.define(node, self.held_on.get(name, {}).values(), self.version)
            self.memo.clear()
            self.reserved.forget_places()
            self._nodes_stale = False
        if self._queues_stale:
            self.queues = QueueTable(self.queue_objects, self.used, self.fixed, all_by_model(self))
            self._queues_stale = False

    # queues

    def _queue_changed(self, event: QueueChanged) -> None:
        self.queue_objects[event.queue.name] = event.queue
        self._queues_stale = True
        self.reserved.forget_lines()
        self._freed()

    def _queue_gone(self, event: QueueGone) -> None:
        if self.queue_objects.pop(event.name, None) is not None:
            self._queues_stale = True
            self.reserved.forget_lines()
            self._freed()

    def _past_use_told(self, event: PastUseTold) -> None:
        self.past_use = event
        self._freed()  # other shares: somebody may be owed now

    def _charge(self, workload: Workload, held: Held, sign: int) -> None:
        """Queues pay for what is assumed, running or kept; an evicted pod is off the books while it leaves."""
        if isinstance(held, Pod) and held.phase not in (Phase.ASSUMED, Phase.RUNNING):
            return
        charge = (sum(share.milli for share in held.devices), held.cpu_milli, held.memory_mib)
        _add(self.used, workload.queue, charge, sign)
        if not workload.preemptible:
            _add(self.fixed, workload.queue, charge, sign)
        if not self._queues_stale:
            models = milli_by_model(self.node_objects, self.queues.models, (held,))
            self.queues.add(workload.queue, (*charge, *models), sign, is_fixed=not workload.preemptible)

    # workloads

    def _workload_changed(self, event: WorkloadChanged) -> None:
        workload = event.workload
        before = self.workloads.get(workload.name)
        if before is None or (before.queue, before.preemptible) != (workload.queue, workload.preemptible):
            for held in self._held_by(workload.name):
                if before is not None:
                    self._charge(before, held, -1)
                    self._freed()
                self._charge(workload, held, +1)
        if before is not None and workload.name in self.pods and known_run_s(before) != known_run_s(workload):
            self._touch_nodes_of(workload.name)
        if before is not None and 0 <= before.may_go != workload.may_go and not 0 <= workload.may_go < before.may_go:
            self._freed()  # a disruption budget opened
        self.workloads[workload.name] = workload
        if workload.expires_s or workload.name in self.expiring:
            self._expires(workload.name, workload.expires_s)
        (self.broken.add if workload.broken_since_s else self.broken.discard)(workload.name)
        self._moved[workload.name] = None

    def _workload_gone(self, event: WorkloadGone) -> None:
        workload = self.workloads.pop(event.name, None)
        if workload is None:
            return
        self.backlog.leave(event.name)
        self.broken.discard(event.name)
        self.stopped.pop(event.name, None)
        self._expires(event.name, 0)
        self._promise_gone(PromiseGone(event.name))
        for held in self._held_by(event.name):
            self._charge(workload, held, -1)
            self._freed()
        for kept in list(self.nominations.get(event.name, {})):
            self._nomination_gone(NominationGone(event.name, kept))

    def _held_by(self, name: str) -> list[Held]:
        return [*self.pods.get(name, {}).values(), *self.nominations.get(name, {}).values()]

    def _stand(self, name: str, now_s: int = 0) -> None:
        """Put a workload where it belongs: in a line, at the gate, or nowhere when it wants nothing."""
        self.backlog.leave(name)
        workload = self.workloads.get(name)
        if workload is None:
            return
        needs = self.needs_of(workload)
        if not needs:
            return
        obstacles = self._gate(workload, now_s)
        if obstacles:
            self.backlog.wait_at_gate(workload, obstacles)
        else:
            choices = choices_of(workload, self.pods.get(name, ())) if workload.groups else None
            self.backlog.join(workload, needs, name in self.nominations, choices)
            if self.promises:  # it may fill a gap for which others of its class take too long
                self.backlog.reopen(name)

    def needs_of(self, workload: Workload) -> Needs:
        """Per role: what is missing, and how much of that is needed to start."""
        pods = self.pods.get(workload.name)
        needs = []
        number = self.backlog.shapes.number
        is_dressed = self.reserved.live or workload.reservation  # else reservations cost nothing
        for role in workload.roles:
            present = 0 if not pods else sum(1 for i in range(role.count) if pod_name(role, i) in pods)
            missing = role.count - present
            if missing:
                want = self.want_of(workload, role) if is_dressed else role.request
                needs.append((number(want), missing, max(0, role.needed - present)))
        if workload.groups:
            choices = choices_of(workload, pods or ())
            return chosen(tuple(needs), [0] * len(needs) if choices.is_whole else choices.needed[0])
        return tuple(needs)

    def want_of(self, workload: Workload, role: Role) -> Request:
        """What a pod of a role asks for, with what reservations make of it."""
        return self.reserved.dressed(workload, role.request, self.queue_objects)

    def _gate(self, workload: Workload, now_s: int) -> tuple[Obstacle, ...]:
        """What keeps a workload from being tried at all."""
        found: list[Obstacle] = []
        if workload.held:
            found.append(Obstacle(Reason.HELD, subject=workload.name))
        found.extend(Obstacle(Reason.DEPENDENCY, 1, 0, "workloads", name) for name in workload.after)
        found.extend(Obstacle(Reason.DEPENDENCY_FAILED, 1, 0, "workloads", name) for name in workload.after_failed)
        if workload.not_before_s > now_s:
            found.append(Obstacle(Reason.NOT_BEFORE, workload.not_before_s, 0, "s", detail=workload.not_before_why))
        if 0 < workload.expires_s <= now_s:
            found.append(Obstacle(Reason.EXPIRED, workload.expires_s, 0, "s", workload.name))
        leaving = sum(1 for pod in self.pods.get(workload.name, {}).values() if pod.phase in LEAVING)
        if leaving:
            found.append(Obstacle(Reason.RELEASING, leaving, 0, "pods", workload.name))
        return tuple(found)

    def _expires(self, name: str, at_s: int) -> None:
        """The allocation of a workload is given until this time; 0: for as long as it runs."""
        if at_s and self.expiring.get(name) != at_s:
            self.expiring[name] = at_s
            self.told_expired.discard(name)
            self.is_due = True
        elif not at_s and self.expiring.pop(name, None) is not None:
            self.told_expired.discard(name)

    # planned starts

    def _promise_changed(self, event: PromiseChanged) -> None:
        promise = event.promise
        before = self.promises.get(promise.workload)
        self.promises[promise.workload] = promise
        if before is not None and before.places != promise.places:
            self._freed()  # the old place is nobody's any more

    def _promise_gone(self, event: PromiseGone) -> None:
        gone = self.promises.pop(event.workload, None)
        if gone is not None and event.workload not in self.pods:  # else it started there
            self._freed()

    def _touch_nodes_of(self, name: str) -> None:
        """When its place comes free is another time now."""
        for pod in self.pods[name].values():
            row = self.nodes.row.get(pod.node)
            if row is not None and not self._nodes_stale:
                self.nodes.changed[row] = self.version

    # reservations

    def _reservation_changed(self, event: ReservationChanged) -> None:
        rows = self.reserved.put(event.reservation, self.nodes)
        self.nodes.changed[rows] = self.version

    def _reservation_gone(self, event: ReservationGone) -> None:
        self.reserved.drop(event.name)

    # pods and nominations

    def _pod_changed(self, event: PodChanged) -> None:
        pod = event.pod
        pods = self._inner(self.pods, pod.workload)
        before = pods.get(pod.name)
        if before is not None and before.until_s and not pod.until_s and before.node == pod.node:
            pod = replace(pod, until_s=before.until_s)  # a cluster that confirms a start need not know of the gap
        pods[pod.name] = pod
        is_same = before is not None and _holds_the_same(before, pod)
        if is_same and pod.phase is not Phase.DONE:
            self._inner(self.held_on, pod.node)[("pod", pod.workload, pod.name)] = pod
        else:
            self._let_go("pod", before)
            self._hold("pod", pod, pod.phase is not Phase.DONE)
        workload = self.workloads.get(pod.workload)
        if workload is not None:
            if before is not None:
                self._charge(workload, before, -1)
            self._charge(workload, pod, +1)
            if before is None or before.phase in LEAVING or pod.phase in LEAVING:
                self._moved[pod.workload] = None
        is_leaving = pod.phase is Phase.RELEASING
        (self.leaving.add if is_leaving else self.leaving.discard)((pod.workload, pod.name))
        if before is not None and not is_same:
            self._freed()

    def _pod_gone(self, event: PodGone) -> None:
        if event.name not in self.pods.get(event.workload, {}):
            return
        pods = self._inner(self.pods, event.workload)
        pod = pods.pop(event.name)
        self.leaving.discard((event.workload, event.name))
        if not pods:
            del self.pods[event.workload]
        self._let_go("pod", pod)
        self._freed()
        workload = self.workloads.get(event.workload)
        if workload is not None:
            self._charge(workload, pod, -1)
            self._moved[event.workload] = None

    def _nomination_changed(self, event: NominationChanged) -> None:
        kept = self._inner(self.nominations, event.nomination.workload)
        workload = self.workloads.get(event.nomination.workload)
        before = kept.get(event.nomination.pod)
        if before is not None:
            self._freed()  # the old place is free for others
            if workload is not None:
                self._charge(workload, before, -1)
        self._let_go("nomination", before)
        kept[event.nomination.pod] = event.nomination
        self._hold("nomination", event.nomination, True)
        if workload is not None:
            self._charge(workload, event.nomination, +1)
        self._moved[event.nomination.workload] = None

    def _nomination_gone(self, event: NominationGone) -> None:
        if event.pod not in self.nominations.get(event.workload, {}):
            return
        kept = self._inner(self.nominations, event.workload)
        nomination = kept.pop(event.pod)
        if not kept:
            del self.nominations[event.workload]
        self._let_go("nomination", nomination)
        workload = self.workloads.get(event.workload)
        if workload is not None:
            self._charge(workload, nomination, -1)
        self._moved[event.workload] = None
        self._freed()

    def _hold(self, kind: str, held: Held, holds: bool) -> None:
        if not holds:
            return
        self._inner(self.held_on, held.node)[(kind, held.workload, _place(held))] = held
        if held.neighbours is not None:
            self.marks.add(held.node, held.neighbours, +1)
            if any(mark in self.backlog.awaited for mark in held.neighbours.marks):
                self._freed()  # whoever must be near such a pod, or even with it, has more places now
        if not self._nodes_stale:
            self.nodes.add(held, -1, self.version)

    def _let_go(self, kind: str, held: Held | None) -> None:
        if held is None:
            return
        key = (kind, held.workload, _place(held))
        if key not in self.held_on.get(held.node, {}):
            return  # a finished pod held nothing
        on_node = self._inner(self.held_on, held.node)
        del on_node[key]
        if not on_node:
            del self.held_on[held.node]
        if held.neighbours is not None:
            self.marks.add(held.node, held.neighbours, -1)
        if not self._nodes_stale:
            self.nodes.add(held, +1, self.version)

    def _inner(self, outer: dict[str, dict[Any, Any]], key: str) -> dict[Any, Any]:
        """The inner dict, ours to change."""
        inner = outer.get(key)
        if inner is None:
            inner = outer[key] = {}
        elif self._borrowed and key in self._borrowed.get(id(outer), ()):
            inner = outer[key] = dict(inner)
            self._borrowed[id(outer)].discard(key)
        return inner

    def _freed(self) -> None:
        """Something became possible that was not: every class deserves a try."""
        self.backlog.all_open = True


def _add(charges: dict[str, Charge], queue: str, charge: Charge, sign: int) -> None:
    before = charges.get(queue, (0, 0, 0))
    charges[queue] = (before[0] + sign * charge[0], before[1] + sign * charge[1], before[2] + sign * charge[2])


def _place(held: Held) -> str:
    return held.name if isinstance(held, Pod) else held.pod


def _holds_the_same(before: Pod, after: Pod) -> bool:
    """Of its node and of its queue: a pod that is leaving is off the queue's books, one that is done holds nothing."""
    return _hold_of(before) == _hold_of(after)


def _hold_of(pod: Pod) -> tuple[object, ...]:
    is_charged = pod.phase in (Phase.ASSUMED, Phase.RUNNING)
    is_held = pod.phase is not Phase.DONE
    amounts = (pod.cpu_milli, pod.memory_mib, pod.extended)
    return (pod.node, pod.devices, amounts, pod.neighbours, is_charged, is_held)


def _with_phase(pod: Pod, phase: Phase) -> Pod:
    return Pod(
        pod.workload, pod.name, pod.node, phase, pod.devices,
        pod.cpu_milli, pod.memory_mib, pod.extended, pod.since_s, pod.neighbours, pod.until_s,
    )  # fmt: skip


_PATCHES: dict[type, Callable[[Picture, Any], None]] = {
    NodeChanged: Picture._node_changed,
    NodeGone: Picture._node_gone,
    QueueChanged: Picture._queue_changed,
    QueueGone: Picture._queue_gone,
    WorkloadChanged: Picture._workload_changed,
    WorkloadGone: Picture._workload_gone,
    PodChanged: Picture._pod_changed,
    PodGone: Picture._pod_gone,
    NominationChanged: Picture._nomination_changed,
    NominationGone: Picture._nomination_gone,
    PromiseChanged: Picture._promise_changed,
    PromiseGone: Picture._promise_gone,
    ReservationChanged: Picture._reservation_changed,
    ReservationGone: Picture._reservation_gone,
    PastUseTold: Picture._past_use_told,
    StoppedForOthers: remember_stop,
}
