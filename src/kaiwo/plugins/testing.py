"""What a plugin's own tests need: a view of a small cluster, made of plain values. A test pins these names, too.

view = view_of([Node("a", cpu_milli=8_000), Node("b", cpu_milli=4_000)])
assert MyScore().score(view, Request(1_000), all_nodes(view)).tolist() == [1000, 500]
"""

from collections.abc import Sequence

import numpy as np

from kaiwo.model.events import Event, NodeChanged, PodChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.snapshot.array_types import Rows
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy

__all__ = ["Pod", "QueueAmounts", "Role", "Share", "all_nodes", "all_queues", "view_of"]


def view_of(
    nodes: Sequence[Node],
    queues: Sequence[Queue] = (Queue("default"),),
    workloads: Sequence[Workload] = (),
    pods: Sequence[Pod] = (),
    now_s: int = 0,
) -> View:
    """The view that a cycle would show: nodes and queues are sorted by name, and running pods hold what they say.

    Raises TypeError and ValueError for pods that hold what no node has.
    """
    _check_held(nodes, pods)
    state = ClusterState()
    events: list[Event] = [*map(QueueChanged, queues), *map(NodeChanged, nodes)]
    state.patch([*events, *map(WorkloadChanged, workloads), *map(PodChanged, pods)])
    return WorkingCopy(state.snapshot(now_s)).view


def _check_held(nodes: Sequence[Node], pods: Sequence[Pod]) -> None:
    gpus = {node.name: {gpu.id for gpu in node.gpus} for node in nodes}
    for pod in pods:
        who = f"pod '{pod.name}' of '{pod.workload}'"
        if pod.node not in gpus:
            raise ValueError(f"{who} runs on '{pod.node}'; there is no such node in this view")
        for held in pod.devices:
            if not isinstance(held, Share):
                raise TypeError(f'{who} holds {held!r}; write each device as a Share, such as Share("gpu-0", 1000, 0)')
            if held.gpu not in gpus[pod.node]:
                raise ValueError(f"{who} holds '{held.gpu}'; '{pod.node}' has no GPU with this id")


def all_nodes(view: View) -> Rows:
    """The rows of all nodes, as a score or a filter gets them."""
    return np.arange(len(view.nodes.names))


def all_queues(view: View) -> Rows:
    return np.arange(len(view.queues.names))
