"""A small cluster in a few words: the worlds in which the stories and laws of the pure core play.

In:    what there is and what people submit.   Out: snapshots, plans, and the state after them.
The audit works from nodes and pods alone, never from the arrays that it checks.
"""

from collections import defaultdict
from typing import Any

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.explain import obstacles_of
from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    PodChanged,
    PodGone,
    QueueChanged,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.plan import Plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import UNLIMITED, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot


class World:
    """A cluster that only changes when it is told to."""

    def __init__(
        self, nodes: int = 1, gpus_per_node: int = 8, model: str = "MI300X", policy: Policy = DEFAULT_POLICY,
        plugins: Registry = BUILTIN,
    ) -> None:  # fmt: skip
        self.state = ClusterState(plugins.ordering(policy))
        self.policy, self.plugins = policy, plugins
        self.now_s = 0
        self._going: list[tuple[str, str]] = []
        self.queue("default")
        for number in range(nodes):
            self.node(f"node-{number}", gpus=gpus_per_node, model=model)

    def node(self, name: str, gpus: int = 8, model: str = "MI300X", **changes: Any) -> "World":
        size = GPU_MODELS[model].memory_mib
        devices = tuple(Gpu(f"gpu-{number}", model, size) for number in range(gpus))
        node = Node(name, cpu_milli=192_000, memory_mib=2 * 1024 * 1024, gpus=devices)
        return self.tell(NodeChanged(replace(node, **changes)))

    def queue(
        self, name: str, parent: str = "", gpu_limit: int = UNLIMITED, quota_milli: int = 0, **changes: Any
    ) -> "World":
        return self.tell(QueueChanged(Queue(name, parent, gpu=QueueAmounts(quota_milli, gpu_limit), **changes)))

    def submit(
        self, name: str, pods: int = 1, gpus_each: int = 0, *, minimum: int = -1, fraction_milli: int = 1000,
        memory_mib: int = 0, cpu_milli: int = 0, models: tuple[str, ...] = (), request: Request | None = None,
        **changes: Any,
    ) -> "World":  # fmt: skip
        if request is None:
            shared = fraction_milli < 1000 or memory_mib
            devices = gpus_each or (1 if shared else 0)
            request = Request(cpu_milli, 0, devices, fraction_milli, memory_mib, models)
        role = Role(request, count=pods, minimum=minimum)
        workload = Workload(_full(name), (role,), submitted_s=changes.pop("submitted_s", self.now_s))
        return self.tell(WorkloadChanged(replace(workload, **changes)))

    def running(self, name: str, gpus: int, **changes: Any) -> "World":
        """Work of one-GPU pods that has its place already."""
        self.submit(name, pods=gpus, gpus_each=1, **changes)
        self.settle()
        assert len(self.state.pods[_full(name)]) == gpus, f"{name} found no place"
        return self

    def tell(self, *events: Event) -> "World":
        self.state.patch(events)
        return self

    def snapshot(self) -> Snapshot:
        return self.state.snapshot(self.now_s)

    def decide(self) -> Plan:
        """One cycle, with its plan carried out."""
        plan = decide(self.snapshot(), self.policy, self.plugins)
        self.after(plan)
        return plan

    def after(self, plan: Plan) -> "World":
        for start in plan.starts:
            assert start.pod not in self.state.pods.get(start.workload, {}), f"{start} has its place already"
        begun = [(start.workload, start.pod) for start in plan.starts]
        assert len(set(begun)) == len(begun), f"some start twice: {begun}"
        assumed = assume(self.state, plan, self.now_s)
        self.state.record_cycle(plan)
        self.tell(*assumed)
        self._going += [(each.workload, each.pod) for each in plan.evictions]
        for event in assumed:
            if isinstance(event, PodChanged) and event.pod.phase is Phase.ASSUMED:
                self.tell(PodChanged(replace(event.pod, phase=Phase.RUNNING)))
        return self

    def settle(self) -> list[Plan]:
        """Cycles until nothing more starts or stops; whoever was told to go is gone before the next one."""
        plans = [self.decide()]
        while plans[-1].starts or plans[-1].unfinished or plans[-1].evictions:
            assert len(plans) < 500, f"it never settles: {plans[-1]}"
            self.let_go()
            plans.append(self.decide())
        return plans

    def let_go(self) -> "World":
        """Those who were told to go are gone."""
        going, self._going = self._going, []
        return self.tell(*(PodGone(*each) for each in going))

    def finish(self, name: str) -> "World":
        """The work is over: its pods are gone, and it wants no more."""
        self.tell(WorkloadGone(_full(name)))
        return self.tell(*(PodGone(_full(name), pod) for pod in list(self.state.pods.get(_full(name), {}))))

    def lose_node(self, name: str) -> "World":
        """The node is gone, and so are its pods."""
        lost = [pod for pods in self.state.pods.values() for pod in pods.values() if pod.node == name]
        return self.tell(NodeGone(name), *(PodGone(pod.workload, pod.name) for pod in lost))

    def why(self, name: str) -> list[Reason]:
        return [obstacle.reason for obstacle in self.obstacles(name)]

    def obstacles(self, name: str) -> list[Obstacle]:
        return list(obstacles_of(self.state, _full(name), self.policy, self.now_s))

    def nodes_of(self, name: str) -> list[str]:
        return sorted(pod.node for pod in self.state.pods.get(_full(name), {}).values())

    def devices_of(self, name: str) -> list[str]:
        pods = self.state.pods.get(_full(name), {}).values()
        return sorted(f"{pod.node}/{share.gpu}" for pod in pods for share in pod.devices)

    def is_running(self, name: str) -> bool:
        return _full(name) in self.state.pods

    def is_within_capacity(self) -> bool:
        return not audit(self.state)


def audit(state: ClusterState) -> list[str]:
    """What is wrong with who holds what, from first principles; empty when all is well."""
    wrong = []
    held: dict[str, list[Any]] = defaultdict(list)
    for pods in state.pods.values():
        for pod in pods.values():
            if pod.phase is not Phase.DONE:
                held[pod.node].append(pod)
    for name, pods in held.items():
        node = state.node_objects.get(name)
        if node is None:
            continue
        for what, used, size in (
            ("CPU", sum(pod.cpu_milli for pod in pods), node.cpu_milli),
            ("memory", sum(pod.memory_mib for pod in pods), node.memory_mib),
            ("pods", len(pods), node.pods),
        ):
            if used > size:
                wrong.append(f"{name} gives {used} of {size} {what}")
        for gpu in node.gpus:
            shares = [share for pod in pods for share in pod.devices if share.gpu == gpu.id]
            milli, mib = sum(share.milli for share in shares), sum(share.mib for share in shares)
            if milli > 1000 or mib > gpu.memory_mib:
                wrong.append(f"{name}/{gpu.id} gives {milli} milli and {mib} of {gpu.memory_mib} MiB")
            if any(share.milli == 1000 for share in shares) and len(shares) > 1:
                wrong.append(f"{name}/{gpu.id} is whole for one and shared with others")
    return [*wrong, *_over_limits(state)]


def _over_limits(state: ClusterState) -> list[str]:
    used: dict[str, int] = defaultdict(int)
    for name, pods in state.pods.items():
        workload = state.workloads.get(name)
        held = [p for p in pods.values() if p.phase in (Phase.ASSUMED, Phase.RUNNING)]
        milli = sum(s.charge_milli for p in held for s in p.devices)
        queue = workload.queue if workload else ""
        while queue in state.queue_objects:
            used[queue] += milli
            queue = state.queue_objects[queue].parent
    limits = {name: queue.gpu.limit for name, queue in state.queue_objects.items()}
    return [f"queue {n} uses {used[n]} of {limit}" for n, limit in limits.items() if UNLIMITED < limit < used[n]]


def _full(name: str) -> str:
    return name if "/" in name else f"default/{name}"
