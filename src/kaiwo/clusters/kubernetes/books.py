"""Everything known of the cluster, and what the scheduler has been told of it.

In:    pods, nodes, queues, claims and owners as they come, change and go.   Out: events; the first are the whole state.
What is told follows from what is known: after each change the workloads that it touched are worked out anew and
compared with what was told before, so a decision that could not be carried out is taken back by the same comparison.
Never: speaks to the API server, or reads a clock.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kaiwo.clusters.kubernetes import objects
from kaiwo.clusters.kubernetes.gangs import Place
from kaiwo.clusters.kubernetes.grants import Grants, Shares
from kaiwo.clusters.kubernetes.names import Names, Unit
from kaiwo.clusters.kubernetes.nodes import read_node
from kaiwo.clusters.kubernetes.roll import Roll
from kaiwo.clusters.kubernetes.seen import Key, SeenPod
from kaiwo.clusters.kubernetes.spaces import Spaces
from kaiwo.clusters.kubernetes.told import Told
from kaiwo.clusters.kubernetes.underway import Underway
from kaiwo.clusters.kubernetes.units import Inquiry, View, view_unit
from kaiwo.clusters.kubernetes.volumes import Volumes
from kaiwo.clusters.kubernetes.wishes import Wishes, read_wishes
from kaiwo.clusters.lifecycle import breaks_gang
from kaiwo.model.event import Event, NodeChanged, NodeGone, QueueChanged, QueueGone
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.queue import DEFAULT_QUEUE, THE_DEFAULT, Queue
from kaiwo.model.workload import Phase, Pod, Workload

SCHEDULER = "kaiwo-scheduler"


class Books:
    """One cluster's state. Change it, then take the events with `settle`."""

    def __init__(self, scheduler: str = SCHEDULER) -> None:
        self.scheduler = scheduler
        self.pods: dict[Key, SeenPod] = {}
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {DEFAULT_QUEUE: THE_DEFAULT}
        self.told = Told()
        self.names = Names()
        self.roll = Roll()
        self.underway = Underway(self.roll, self.names, self.told)
        self.spaces = Spaces()
        self.sentences: dict[Key, str] = {}  # pods that the scheduler is not told of, and why
        self._volumes = Volumes()
        self._grants = Grants(self.told.ledger)
        self._views: dict[str, View] = {}
        self._waiting_for_claims: set[Key] = set()
        self._events: list[Event] = []
        self._fresh_sentences: dict[Key, str] = {}
        self._ask = Inquiry(self._wishes, self._volumes.rules, self.underway.starts.__contains__)

    # What comes from the API server.

    def put_pod(self, pod: SeenPod) -> None:
        """A pod is there, or different."""
        before = self.pods.get(pod.key)
        if before is not None and before.uid == pod.uid and before.version >= pod.version:
            # A pod may be read while a watch lags behind. Its older word, without the node that the pod has by now,
            # would free devices that are in use: that was a double allocation, found with a paused etcd.
            return
        if before is not None and before.uid != pod.uid:
            self.drop_pod(before)  # another pod of the same name: the old one's end was not seen
        self.pods[pod.key] = pod
        self.underway.see(pod)
        self.spaces.see(pod)
        if pod.scheduler != self.scheduler:
            self.roll.move(pod.key, pod.key if pod.node and not pod.is_over else None)
            return
        if pod.ask.claims and not pod.node:
            self._waiting_for_claims.add(pod.key)
        else:
            self._waiting_for_claims.discard(pod.key)
        self.roll.put(pod)

    def drop_pod(self, pod: SeenPod) -> None:
        """A pod is gone."""
        seen = self.pods.get(pod.key)
        if seen is None or seen.uid != pod.uid:
            return
        del self.pods[pod.key]
        self.underway.forget(pod.uid)
        self.spaces.forget(pod.uid)
        self._grants.forget(pod.uid)
        self.sentences.pop(pod.key, None)
        self._waiting_for_claims.discard(pod.key)
        self.roll.drop(pod.key)

    def put_node(self, wire: objects.Node) -> None:
        """A node is there, or different."""
        node = read_node(wire)
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = node
            self._events.append(NodeChanged(node))
            for key in self._grants.waited_for(node.name):
                self.roll.touch(key)

    def drop_node(self, name: str) -> None:
        """A node is gone. Its pods stay on the books until Kubernetes takes them away."""
        if self.nodes.pop(name, None) is not None:
            self._events.append(NodeGone(name))

    def put_queue(self, queue: Queue) -> None:
        """A queue is there, or different."""
        if self.queues.get(queue.name) != queue:
            self.queues[queue.name] = queue
            self._events.append(QueueChanged(queue))

    def drop_queue(self, name: str) -> None:
        """A queue is gone; `default` always exists."""
        if name == DEFAULT_QUEUE:
            self.put_queue(THE_DEFAULT)
        elif self.queues.pop(name, None) is not None:
            self._events.append(QueueGone(name))

    def change_volumes(self, change: Callable[[Volumes], bool]) -> None:
        """Claims or volumes changed: pods that wait for one are looked at again."""
        if change(self._volumes):
            for key in self._waiting_for_claims:
                self.roll.touch(key)

    # What is told.

    def tell(self, event: Event) -> None:
        """Say it with the next batch, whatever the comparison says."""
        self._events.append(event)

    def settle(self, now_s: int = 0) -> tuple[Event, ...]:
        """The events since the last time. `now_s`: since when a gang is broken that was whole the last time."""
        events, self._events = self._events, []
        for unit in self.roll.take_touched():
            events += self._tell(unit, now_s)
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
            *self.told.whole_state(),
        )

    def find(self, workload: str, slot: str) -> SeenPod | None:
        """The pod that has a place in a workload."""
        view = self._views.get(workload)
        return None if view is None else self.pods.get(view.by_slot.get(slot, ("", "")))

    def slots(self, workload: str) -> dict[str, SeenPod]:
        """Every place of a workload with its pod."""
        view = self._views.get(workload)
        return {} if view is None else {slot: self.pods[key] for slot, key in view.by_slot.items() if key in self.pods}

    def workload_of(self, key: Key) -> str | None:
        """The workload of a pod."""
        unit = self.roll.unit_of.get(key)
        return None if unit is None else self.names.find(unit)

    # How.

    def _tell(self, unit: Unit, now_s: int) -> list[Event]:
        keys = self.roll.keys_of.get(unit, set())
        pods = [self.pods[key] for key in keys]
        for key in keys:
            self.sentences.pop(key, None)
        living = [pod for pod in pods if not pod.is_over]
        if not living:
            return self._forget(unit, has_pods=bool(keys))
        name = self.names.name(unit)
        if living[0].scheduler != self.scheduler:  # a foreign pod is always alone
            return self.told.tell(name, None, [self._held(name, "main-0", living[0])])
        group = self.roll.group(unit) if isinstance(unit, Place) else None
        had = self._views[name].slots if name in self._views else {}
        view = self._views[name] = view_unit(name, living, group, had, self._ask)
        self.sentences |= view.sentences
        self._fresh_sentences |= view.sentences
        holding = [
            self._held(name, slot, self.pods[key])
            for slot, key in view.by_slot.items()
            if self.pods[key].node or self.pods[key].uid in self.underway.starts
        ]
        workload = self._since_broken(self._with_back_off(view.workload), holding, now_s)
        return self.told.tell(name, workload, holding) + self._tell_kept(name, view, living)

    def _forget(self, unit: Unit, has_pods: bool) -> list[Event]:
        name = self.names.find(unit)
        if not has_pods:
            self.roll.keys_of.pop(unit, None)
        if name is None:
            return []
        self._views.pop(name, None)
        self.told.kept.pop(name, None)  # the scheduler forgets it with the workload
        self.underway.calm(name)
        self.names.forget(unit)
        return self.told.tell(name, None, ())

    def _tell_kept(self, name: str, view: View, pods: Sequence[SeenPod]) -> list[Event]:
        """The space of those that wait in a place. When a Binding comes to nothing, it is kept again."""
        placed = {slot: self.pods[key] for slot, key in view.by_slot.items()}
        uids = {pod.uid for pod in placed.values()}
        self.spaces.lapse(pod for pod in pods if pod.uid not in uids)
        kept: dict[str, Nomination] = {}
        for slot, pod in placed.items():
            space = self.spaces.of(name, slot, pod)
            if space is not None and not pod.node and pod.uid not in self.underway.starts:
                kept[slot] = space
        return self.told.tell_kept(name, kept)

    def _held(self, workload: str, slot: str, pod: SeenPod) -> Pod:
        """What a pod holds that is bound, or about to be."""
        start = self.underway.starts.get(pod.uid)
        if not pod.node and start is not None:
            return self.hold(workload, slot, pod, Phase.ASSUMED, start.node, start.devices)
        is_ours = pod.scheduler == self.scheduler
        is_leaving = pod.is_going or pod.uid in self.underway.evictions
        phase = Phase.RELEASING if is_ours and is_leaving else Phase.RUNNING
        return self.hold(workload, slot, pod, phase, pod.node, self._grants.of(pod, self.nodes, is_ours))

    def hold(self, workload: str, slot: str, pod: SeenPod, phase: Phase, node: str, devices: Sequence | Shares) -> Pod:
        """A pod in its place."""
        ask = pod.ask.request
        since_s = pod.started_s or pod.created_s
        return Pod(
            workload, slot, node, phase, tuple(devices), ask.cpu_milli, ask.memory_mib, ask.extended, since_s
        )  # fmt: skip

    def _wishes(self, pod: SeenPod) -> Wishes:
        said = [(pod.notes, pod.labels), *self.roll.said_above(pod)]
        return read_wishes(f"Pod '{pod.name}'", said, pod.priority, bool(pod.priority_class))

    def _since_broken(self, workload: Workload | None, pods: Sequence[Pod], now_s: int) -> Workload | None:
        """A gang of which only a part is up, because a start broke off or pods went: it may not stay so for long."""
        up = [pod.name for pod in pods if pod.phase in (Phase.ASSUMED, Phase.RUNNING)]
        if workload is None or not up or not breaks_gang(workload, up):
            return workload
        before = self.told.workloads.get(workload.name)
        return replace(workload, broken_since_s=(before.broken_since_s if before else 0) or now_s)

    def _with_back_off(self, workload: Workload | None) -> Workload | None:
        refusal = self.underway.refusals.get(workload.name) if workload else None
        if workload is None or refusal is None:
            return workload
        return replace(workload, not_before_s=refusal.until_s, not_before_why=refusal.why)
