"""What a reader of the events knows: the simplest possible picture, to hold the clusters to their word."""

from collections.abc import Sequence

from kaiwo.clusters.ledger import NodeUsage, holds, overcommit
from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    PodChanged,
    PodGone,
    QueueChanged,
    QueueGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Pod, Workload


class ToldState:
    """Four dictionaries."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}
        self.workloads: dict[str, Workload] = {}
        self.pods: dict[tuple[str, str], Pod] = {}

    def patch(self, batch: Sequence[Event]) -> None:
        for event in batch:
            match event:
                case NodeChanged(node):
                    self.nodes[node.name] = node
                case NodeGone(name):
                    self.nodes.pop(name, None)
                case QueueChanged(queue):
                    self.queues[queue.name] = queue
                case QueueGone(name):
                    self.queues.pop(name, None)
                case WorkloadChanged(workload):
                    self.workloads[workload.name] = workload
                case WorkloadGone(name):
                    self.workloads.pop(name, None)
                case PodChanged(pod):
                    self.pods[pod.workload, pod.name] = pod
                case PodGone(workload, name):
                    self.pods.pop((workload, name), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToldState) and vars(self) == vars(other)

    def __hash__(self) -> int:
        raise TypeError

    def overcommitted(self) -> list[str]:
        """Every node of which more is held than there is."""
        uses: dict[str, NodeUsage] = {}
        for pod in self.pods.values():
            if holds(pod) and pod.node in self.nodes:
                uses.setdefault(pod.node, NodeUsage()).add(pod)
        return [why for node, use in uses.items() if (why := overcommit(self.nodes[node], use))]
