"""A job of a simulation: when it arrives, what it asks for, and how long it runs once it has that."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kaiwo.manifests.values.names import ARRAY_LABEL
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload

GPUS_PER_POD = 8  # a larger job has pods of this size, unless its nodes are smaller


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    name: str
    submitted_s: int
    runs_s: int  # on its GPUs, without interruptions
    request: Request  # of each pod
    pods: int = 1
    queue: str = "default"
    group: str = ""  # what it has in common with similar jobs: a virtual cluster, a model
    user: str = ""
    priority: int = 0
    stem: str = ""  # what its name shares with those of similar jobs, where the name itself does not show it
    line: int = 0  # of the file that it was read from; 0: it was generated
    template: Workload | None = None  # a recorded workload, which says more than the fields above; None: there is none

    @property
    def roles(self) -> tuple[Role, ...]:
        return self.template.roles if self.template is not None else (Role(self.request, count=self.pods),)

    @property
    def gpu_milli(self) -> int:
        if self.template is not None:
            return sum(role.count * role.request.gpus * role.request.gpu_milli for role in self.template.roles)
        return self.pods * self.request.gpus * self.request.gpu_milli

    @property
    def gpus(self) -> int:
        """Whole GPUs; a share counts as one."""
        if self.template is not None:
            return sum(role.count * role.request.gpus for role in self.template.roles)
        return self.pods * self.request.gpus

    def workload(self, priority: int | None = None) -> Workload:
        if self.template is not None:
            urgency = self.priority if priority is None else priority
            return msgspec.structs.replace(
                self.template, name=self.name, submitted_s=self.submitted_s, priority=urgency
            )
        return Workload(
            name=self.name,
            roles=self.roles,
            queue=self.queue,
            user=self.user,
            kind="training",
            priority=self.priority if priority is None else priority,
            submitted_s=self.submitted_s,
            labels={ARRAY_LABEL: self.stem} if self.stem else {},
        )


def split_gpus(gpus: int, gpus_per_node: int = GPUS_PER_POD) -> tuple[int, int]:
    """The pods of a job and the GPUs of each: one pod if a node is large enough, else equal pods that give exactly
    as many as it asks for."""
    if gpus <= gpus_per_node:
        return 1, gpus
    each = next(size for size in range(gpus_per_node, 0, -1) if gpus % size == 0)
    return gpus // each, each


def seed_split(gpus: int, gpus_per_node: int = GPUS_PER_POD) -> tuple[int, int]:
    """As the first release did: ceil(total / GPUs of a node) pods of a whole node, however many GPUs are left over."""
    if gpus <= gpus_per_node:
        return 1, gpus
    return -(-gpus // gpus_per_node), gpus_per_node


def total_gpu_milli(nodes: Sequence[Node]) -> int:
    return WHOLE_MILLI * sum(len(node.gpus) for node in nodes)
