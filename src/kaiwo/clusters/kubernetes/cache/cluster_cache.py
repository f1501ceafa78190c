"""Everything known of the cluster, and what the scheduler has been told of it.

In:    pods, nodes, queues, claims and owners as they come, change and go.   Out: events; the first are the whole state.
What is told follows from what is known: after each change the workloads that it touched are worked out anew and
compared with what was told before, so a decision that could not be carried out is taken back by the same comparison.
Never: speaks to the API server, or reads a clock.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.affinity_index import MarkBook
from kaiwo.clusters.kubernetes.cache.checkpoint_annotations import Saved
from kaiwo.clusters.kubernetes.cache.device_grants import Grants, Shares, fills_until_s
from kaiwo.clusters.kubernetes.cache.disruption_budgets import Budget, Budgets
from kaiwo.clusters.kubernetes.cache.finished_runs import Ends
from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex, Said, Strangers
from kaiwo.clusters.kubernetes.cache.in_flight import GangBackoff, InFlight
from kaiwo.clusters.kubernetes.cache.kueue_gates import KueueBook
from kaiwo.clusters.kubernetes.cache.last_readable_version import LastReadable
from kaiwo.clusters.kubernetes.cache.node_cache import NodeBook
from kaiwo.clusters.kubernetes.cache.nomination_annotations import Spaces
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import Planned
from kaiwo.clusters.kubernetes.cache.priority_classes import Priorities
from kaiwo.clusters.kubernetes.cache.published_state import PublishedState
from kaiwo.clusters.kubernetes.cache.queue_history import Memory, QueueStatusObject
from kaiwo.clusters.kubernetes.cache.workload_names import Names, Unit
from kaiwo.clusters.kubernetes.cache.workload_unit import (
    Inquiry,
    View,
    count_who_may_go,
    explain_fault_above,
    explain_kueue,
    view_unit,
)
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.decode.workload_annotations import read_sensible_wishes, read_wishes
from kaiwo.clusters.kubernetes.gangs import Place
from kaiwo.clusters.kubernetes.volumes.claim_users import ClaimUsers
from kaiwo.clusters.kubernetes.volumes.volume_cache import Volumes
from kaiwo.model.affinity import kept as kept_neighbours
from kaiwo.model.events import (
    Event,
    NodeChanged,
    PodChanged,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
)
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination, Start
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import DEFAULT_QUEUE, THE_DEFAULT, Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Phase, Pod

SCHEDULER = "kaiwo-scheduler"


class ClusterCache:
    """One cluster's state. Change it, then take the events with `settle`."""

    def __init__(self, scheduler: str = SCHEDULER) -> None:
        self.scheduler = scheduler
        self.extended = ""  # the scheduler whose pods get their devices from us when they are bound
        self.pods: dict[Key, CachedPod] = {}
        self.told = PublishedState()
        self.names = Names()
        self.roll = GangIndex()
        self.node_book = NodeBook()
        self.nodes = self.node_book.shown
        self.queue_shelf: LastReadable[Queue] = LastReadable(self.roll.touch_all)
        self.queues = self.queue_shelf.items
        self.queues[DEFAULT_QUEUE] = THE_DEFAULT
        self.queue_generations: dict[str, int] = {}  # of those that are objects of the cluster
        self.reservation_shelf: LastReadable[Reservation] = LastReadable(self.roll.touch_all)
        self.reservations = self.reservation_shelf.items
        self.underway = InFlight(self.roll, self.names, self.told)
        self.spaces = Spaces()
        self.planned = Planned()
        self._ends = Ends()
        self.relapses = GangBackoff()
        self.memory = Memory()
        self.saved = Saved()
        self.sentences: dict[Key, str] = {}  # pods that the scheduler is not told of, and why
        self.marks = MarkBook()
        self.kueue = KueueBook()
        self.budgets = Budgets()
        self.priorities = Priorities()
        self.volumes = Volumes()
        self.strangers = Strangers()
        self.claim_users = ClaimUsers(self.volumes, self.pods, self.underway.starts)
        self._grants = Grants(self.told.ledger)
        self._views: dict[str, View] = {}
        self._waiting_for_claims: set[Key] = set()
        self._events: list[Event] = []
        self._fresh_sentences: dict[Key, str] = {}
        self.report: Callable[..., None] = lambda *_, **__: None
        self.left_out = 0  # workloads that could not be told; the log names them
        self._ask = Inquiry(
            lambda pod: read_wishes(*self._said(pod)),
            lambda pod: read_sensible_wishes(*self._said(pod)),
            self.claim_users.rules,
            self.marks.neighbours,
            self.underway.starts.__contains__,
            lambda pod: explain_kueue(pod, self.kueue, isinstance(self.roll.unit_of.get(pod.key), Place)),
            lambda wishes: explain_fault_above(wishes, self.queue_shelf, self.reservation_shelf),
            self.strangers.of,
        )

    # What comes from the API server.

    def put_pod(self, pod: CachedPod) -> None:
        """A pod is there, or different."""
        before = self.pods.get(pod.key)
        if before is not None and before.uid == pod.uid and before.version >= pod.version:
            # A pod may be read while a watch lags behind. Its older word, without the node that the pod has by now,
            # would free devices that are in use: that was a double allocation, found with a paused etcd.
            return
        if before is not None and before.uid != pod.uid:
            self.drop_pod(before)  # another pod of the same name: the old one's end was not seen
        self.pods[pod.key] = pod
        if pod.is_over and (before is None or not before.is_over):
            self._note_end(pod)
        self.underway.see(pod)
        self.spaces.see(pod)
        self.planned.see(pod)
        if pod.ask.claims:
            self.touch(self.claim_users.see(pod))
        is_ours = pod.scheduler == self.scheduler
        # A foreign pod counts where it is, or where its own scheduler keeps space for it.
        is_somewhere = bool(pod.node or pod.nominated or pod.uid in self.underway.starts)
        counts = not pod.is_over and (is_ours or is_somewhere)
        if counts:
            self.marks.put(pod)
        else:
            self.marks.drop(pod.uid)
        if not is_ours:
            self._touch_gang(self.strangers.see(pod))
            self.roll.move(pod.key, pod.key if counts else None)
            return
        self.kueue.see(pod)
        if pod.ask.claims and not pod.node:
            self._waiting_for_claims.add(pod.key)
        else:
            self._waiting_for_claims.discard(pod.key)
        self.roll.put(pod)

    def drop_pod(self, pod: CachedPod) -> None:
        """A pod is gone."""
        seen = self.pods.get(pod.key)
        if seen is None or seen.uid != pod.uid:
            return
        del self.pods[pod.key]
        if not seen.is_over:
            self._note_end(seen)
        self.underway.forget(pod.uid)
        self.spaces.forget(pod.uid)
        self.planned.forget_pod(pod.uid)
        self._grants.forget(seen)
        if seen.ask.claims:
            self.touch(self.claim_users.forget(seen))
        self._touch_gang(self.strangers.forget(pod.key))
        self.marks.drop(pod.uid)
        self.kueue.forget(pod.key)
        self.sentences.pop(pod.key, None)
        self._waiting_for_claims.discard(pod.key)
        self.roll.drop(pod.key)

    def _touch_gang(self, place: Place | None) -> None:
        if place in self.roll.keys_of:
            self.roll.touch_unit(place)

    def _note_end(self, pod: CachedPod) -> None:
        unit = self.roll.unit_of.get(pod.key)
        name = self.names.find(unit) if unit is not None else None
        if name is not None:
            self._ends.note(name, pod)

    def put_node(self, wire: wire_objects.Node) -> None:
        """A node is there, or different."""
        self._tell_node(wire.metadata.name, lambda: self.node_book.put(wire))

    def lay_over(self, name: str, how: Callable[[Node], Node] | None) -> None:
        """What somebody else knows of a node's devices, until it is None."""
        self._tell_node(name, lambda: self.node_book.lay_over(name, how))

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        if (event := self.node_book.drop(name)) is not None:
            self._events.append(event)

    def put_queue(self, queue: Queue) -> None:
        """A queue is there, or different."""
        was_there = queue.name in self.queues
        if self.queue_shelf.put(queue.name, queue):
            self._events.append(QueueChanged(queue))
            if not was_there:
                self.roll.touch_all()  # a label of Kueue's may have meant it

    def drop_queue(self, name: str) -> None:
        """A queue is gone; `default` always exists."""
        self.queue_generations.pop(name, None)
        self.memory.drop(name)
        if name == DEFAULT_QUEUE:
            self.put_queue(THE_DEFAULT)
        elif self.queue_shelf.drop(name):
            self.roll.touch_all()
            self._events.append(QueueGone(name))

    def remember(self, queue: str, status: QueueStatusObject) -> None:
        """What a queue's object says of the past."""
        self._events += self.memory.see(queue, status)

    def put_budget(self, budget: Budget) -> None:
        """A disruption budget is there, or different: whom it covers may be asked to go again."""
        self._budget_changed(self.budgets.put(budget, self.pods.values()))

    def drop_budget(self, budget: Budget) -> None:
        """A disruption budget is gone."""
        self._budget_changed(self.budgets.drop(budget, self.pods.values()))

    def _budget_changed(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.underway.let_go(self.pods[key])
            self.roll.touch(key)

    def put_reservation(self, reservation: Reservation) -> None:
        """GPUs are reserved, or reserved differently."""
        if self.reservation_shelf.put(reservation.name, reservation):
            self._events.append(ReservationChanged(reservation))

    def drop_reservation(self, name: str) -> None:
        """A reservation is gone."""
        if self.reservation_shelf.drop(name):
            self._events.append(ReservationGone(name))

    def touch(self, keys: Iterable[Key]) -> None:
        """Somebody else says something new of these pods."""
        for key in keys:
            self.roll.touch(key)

    def change_volumes(self, change: Callable[[Volumes], bool]) -> None:
        """Claims or volumes changed: pods that wait for one are looked at again."""
        if change(self.volumes):
            for key in self._waiting_for_claims:
                self.roll.touch(key)

    # What is decided.

    def promise(self, name: str, promise: PlannedStart | None) -> None:
        """A workload has this planned start from now on, or none. The scheduler knows it by itself."""
        if name in self.told.workloads:
            self.planned.decide(name, promise)
            self.told.promise(name, promise)
            self.roll.touch_unit(self.names.unit_of[name])

    def follow(self) -> None:
        """Somebody else leads: what is in the objects is what counts."""
        self.spaces.follow()
        self.memory.follow()
        for name in self.planned.follow():
            if name in self.names.unit_of:
                self.roll.touch_unit(self.names.unit_of[name])

    # What is told.

    def tell(self, event: Event) -> None:
        """Say it with the next batch, whatever the comparison says."""
        self._events.append(event)

    def settle(self, now_s: int = 0) -> tuple[Event, ...]:
        """The events since the last time. `now_s`: since when a gang is broken that was whole the last time."""
        events, self._events = self._events, []
        for key in self.marks.take_touched(self.pods.values()):
            self.roll.touch(key)
        for unit in self.roll.take_touched():
            events += self._tell_if_possible(unit, now_s)
        busy = {event.pod.node for event in events if isinstance(event, PodChanged) and event.pod.devices}
        self.touch(self._grants.clashes(self.nodes, busy) if busy else ())
        for unit in self.roll.take_touched():
            events += self._tell_if_possible(unit, now_s)
        return tuple(events)

    def take_sentences(self) -> dict[Key, str]:
        """Of `sentences`, those that were found since the last time."""
        fresh, self._fresh_sentences = self._fresh_sentences, {}
        return fresh

    def whole_state(self) -> tuple[Event, ...]:
        """For a reader that knows nothing; as of the last time that the books were settled."""
        return (
            *(QueueChanged(self.queues[name]) for name in sorted(self.queues)),
            *(NodeChanged(self.nodes[name]) for name in sorted(self.nodes)),
            *(ReservationChanged(found) for _, found in sorted(self.reservations.items())),
            *self.told.whole_state(),
            *self.memory.all_stops(),
        )

    def find(self, workload: str, slot: str) -> CachedPod | None:
        """The pod that has a place in a workload."""
        view = self._views.get(workload)
        return None if view is None else self.pods.get(view.by_slot.get(slot, ("", "")))

    def slots(self, workload: str) -> dict[str, CachedPod]:
        """Every place of a workload with its pod."""
        view = self._views.get(workload)
        return {} if view is None else {slot: self.pods[key] for slot, key in view.by_slot.items() if key in self.pods}

    def waiting_pods(self, workload: str) -> list[CachedPod]:
        """Those of its pods that have no place yet, in the order of their places."""
        placed = sorted(self.slots(workload).items())
        return [pod for _, pod in placed if not pod.node and pod.uid not in self.underway.starts]

    def begin_foreign(self, pod: CachedPod, node: str, devices: Shares) -> Pod | str:
        """A Binding of a pod that another scheduler placed is under way; a sentence: it cannot be there."""
        name = self.names.find(pod.key) or "{}/{}".format(*pod.key)
        held = self.hold(name, "main-0", pod, Phase.ASSUMED, node, devices)
        if devices and (why := self.told.why_not(held, self.nodes)):
            return why
        held = replace(held, workload=self.names.name(pod.key))
        self.roll.move(pod.key, pod.key)
        self.underway.begin_start(Start(held.workload, held.name, node, devices), pod, held)
        return held

    def end_foreign(self, pod: CachedPod) -> None:
        """It came to nothing."""
        self.underway.end_start(pod)
        if not pod.node:
            self.roll.move(pod.key, pod.key if pod.nominated else None)

    def workload_of(self, key: Key) -> str | None:
        """The workload of a pod."""
        unit = self.roll.unit_of.get(key)
        return None if unit is None else self.names.find(unit)

    # How.

    def _tell_node(self, name: str, change: Callable[[], NodeChanged | None]) -> None:
        before = self.nodes.get(name)
        if (event := change()) is None:
            return
        self._events.append(event)
        if before is None or [gpu.id for gpu in before.gpus] != [gpu.id for gpu in event.node.gpus]:
            self.touch(self._grants.changed(name))

    def _tell_if_possible(self, unit: Unit, now_s: int) -> list[Event]:
        try:
            return self._tell(unit, now_s)
        except Exception as error:  # one workload must not keep the others from being told: what was told of it stays
            self.left_out += 1
            words = f"{type(error).__name__}: {error}"[:300]
            self.report("workload-left-out", level="error", workload=self.names.name(unit), error=words)
            return []

    def _tell(self, unit: Unit, now_s: int) -> list[Event]:
        keys = self.roll.keys_of.get(unit, set())
        pods = [self.pods[key] for key in keys]
        for key in keys:
            self.sentences.pop(key, None)
        living = [pod for pod in pods if not pod.is_over]
        if not living:
            return self._forget(unit, bool(keys), now_s)
        name = self.names.name(unit)
        if living[0].scheduler != self.scheduler:  # a foreign pod is always alone
            return self.told.tell(name, None, [self._held(name, "main-0", living[0])])
        group = self.roll.group(unit) if isinstance(unit, Place) else None
        had = self._views[name].slots if name in self._views else {}
        view = self._views[name] = view_unit(name, living, group, had, self._ask)
        self.sentences |= view.sentences
        self._fresh_sentences |= view.sentences
        self.told.hold(name, view.held)
        holding = [
            self._held(name, slot, self.pods[key])
            for slot, key in view.by_slot.items()
            if self.pods[key].node or self.pods[key].uid in self.underway.starts
        ]
        workload = self.told.since_broken(self.underway.back_off(view.workload), holding, now_s)
        if workload is not None:
            workload = self.relapses.hold_off(workload, group, holding)
        if workload is not None and holding:
            saved_s = self.saved.last_s(name, living, self.roll.saved_above, now_s)
            bound = [pod for pod in living if pod.node]
            may_go, why = count_who_may_go(bound, self.budgets, self.underway.staying)
            workload = replace(workload, may_go=may_go, stays_why=why, checkpoint_s=saved_s)
        is_back = workload is not None and name not in self.told.workloads
        events = self.told.tell(name, workload, holding) + self._tell_kept(name, view, living)
        if is_back and (stop := self.memory.last_stop(name)) is not None:
            events.append(replace(stop, queues=()))  # they counted it; the scheduler forgot it with the workload
        return events + self._tell_planned(name, living)

    def _forget(self, unit: Unit, has_pods: bool, now_s: int) -> list[Event]:
        name = self.names.find(unit)
        if not has_pods:
            self.roll.keys_of.pop(unit, None)
        if name is None:
            return []
        self._views.pop(name, None)
        self.told.hold(name, None)
        self.told.kept.pop(name, None)  # the scheduler forgets it with the workload
        self.told.promise(name, None)
        self.planned.forget(name)
        self.underway.calm(name)
        self.saved.forget(name)
        self.names.forget(unit)
        return self.told.tell(name, None, (), self._ends.ran_s(name, now_s))

    def _tell_kept(self, name: str, view: View, pods: Sequence[CachedPod]) -> list[Event]:
        """The space of those that wait in a place. When a Binding comes to nothing, it is kept again."""
        placed = {slot: self.pods[key] for slot, key in view.by_slot.items()}
        uids = {pod.uid for pod in placed.values()}
        self.spaces.lapse(pod for pod in pods if pod.uid not in uids)
        kept: dict[str, Nomination] = {}
        for slot, pod in placed.items():
            space = self.spaces.of(name, slot, pod)
            if space is not None and not pod.node and pod.uid not in self.underway.starts:
                kept[slot] = replace(space, neighbours=kept_neighbours(self.marks.neighbours(pod)))
        return self.told.tell_kept(name, kept)

    def _tell_planned(self, name: str, pods: Sequence[CachedPod]) -> list[Event]:
        """The planned start of a workload that has not begun."""
        if not self.planned.concerns(name, pods):
            return self.told.tell_promise(name, None)
        waiting = self.waiting_pods(name)
        self.planned.look_at(name, waiting)
        return self.told.tell_promise(name, self.planned.of(name, waiting))

    def _held(self, workload: str, slot: str, pod: CachedPod) -> Pod:
        """What a pod holds that is bound, or about to be."""
        start = self.underway.starts.get(pod.uid)
        if not pod.node and start is not None:
            assumed = self.hold(workload, slot, pod, Phase.ASSUMED, start.node, start.devices)
            return replace(assumed, until_s=start.until_s)
        if not pod.node:  # a foreign one: nobody is near it yet
            there = replace(pod, node=pod.nominated)
            held = self._held(workload, slot, there)
            return replace(held, neighbours=kept_neighbours(held.neighbours))
        is_ours = pod.scheduler == self.scheduler
        is_leaving = pod.is_going or pod.uid in self.underway.evictions
        phase = Phase.RELEASING if is_ours and is_leaving else Phase.RUNNING
        is_granted = is_ours or pod.scheduler == self.extended
        is_listed = pod.node in self.node_book.listed
        devices = self._grants.of(pod, self.nodes.get(pod.node), is_granted, is_listed)
        return self.hold(workload, slot, pod, phase, pod.node, devices)

    def hold(
        self, workload: str, slot: str, pod: CachedPod, phase: Phase, node: str, devices: Sequence | Shares
    ) -> Pod:
        """A pod in its place."""
        ask = pod.ask.request
        since_s = pod.started_s or pod.created_s
        return Pod(
            workload, slot, node, phase, tuple(devices), ask.cpu_milli, ask.memory_mib, ask.extended, since_s,
            self.marks.neighbours(pod), fills_until_s(pod) if pod.scheduler == self.scheduler else 0,
            ask.beside,
        )  # fmt: skip

    def _said(self, pod: CachedPod) -> tuple[str, list[Said], int, bool, Callable[[str], bool]]:
        """What the readers of wishes take."""
        said = [(pod.notes, pod.labels), *self.roll.said_above(pod)]
        return f"Pod '{pod.name}'", said, *self.priorities.of(pod), self.queues.__contains__
