"""A loop without a scheduler: a real cluster state, and a cluster that only records calls, at any size."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kaiwo.clusters.protocol import Abilities, RecordChanges
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import Event, NodeChanged, QueueChanged, WorkloadChanged
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.runtime.loop.cycle_phases import CyclePhases
from kaiwo.runtime.loop.loop_metrics import Allocations, Health
from kaiwo.runtime.loop.recovery_history import RecoveryHistory
from kaiwo.snapshot.cluster_state import ClusterState
from tests.api.world import node

T = TypeVar("T")


class FakeCluster:
    """Records, and nothing else."""

    kind = name = "simulated"
    is_virtual = True
    left_out = failed_pods = 0
    lists_devices = False

    def __init__(self) -> None:
        self.lives: dict[str, WorkloadRecord] = {}
        self.touched: list[str] = []
        this: Any = self
        self.abilities = Abilities(this, this, this)

    def now_s(self) -> int:
        return 1000

    def records(self) -> Sequence[WorkloadRecord]:
        return list(self.lives.values())

    def records_since(self, after: int) -> RecordChanges:
        if after < 0:
            return RecordChanges(len(self.touched), self.records(), (), is_all=True)
        names = set(self.touched[after:])
        here = [self.lives[name] for name in names if name in self.lives]
        return RecordChanges(len(self.touched), here, [name for name in names if name not in self.lives])

    def record(self, name: str) -> WorkloadRecord:
        if name not in self.lives:
            raise NotFoundError(f"workload {name} does not exist")
        return self.lives[name]


class FakeLoop:
    """Implements `LiveLoop`; `tell` is what the real loop does after each batch."""

    def __init__(self, nodes: int = 0) -> None:
        self.run_times = None
        self.state = ClusterState()
        self.cluster: Any = FakeCluster()
        self.policy: Policy = DEFAULT_POLICY
        self.plugins = BUILTIN
        self.journal = None
        self.last_cycle = None
        self.evicted: Counter[tuple[str, str]] = Counter()
        self.allocations = Allocations()
        self.recoveries = RecoveryHistory()
        self.ready = True
        self.revision = 1
        self.busy_since: float | None = None
        self.health = Health()
        self.phases = CyclePhases()
        self.listeners: list[Any] = []
        self._news = asyncio.Event()
        self.patch([QueueChanged(Queue("default")), *(NodeChanged(node(f"n-{at:05d}")) for at in range(nodes))])

    def clock(self) -> tuple[int, int]:
        return 1000, 0

    def recent_notes(self) -> Sequence[Any]:
        return ()

    def patch(self, events: Sequence[Event]) -> None:
        self.state.patch(events)
        self.state.refresh_tables()
        self.tell()

    def put(self, *records: WorkloadRecord) -> None:
        for record in records:
            self.cluster.lives[record.workload.name] = record
            self.cluster.touched.append(record.workload.name)
        self.patch([WorkloadChanged(record.workload) for record in records if not record.state.is_over])

    def drop(self, name: str) -> None:
        del self.cluster.lives[name]
        self.cluster.touched.append(name)
        self.tell()

    def tell(self) -> None:
        self.revision += 1
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self, after: int) -> int:
        while self.revision <= after:
            await self._news.wait()
        return self.revision

    async def add_events(self, events: Sequence[Event]) -> None:
        self.state.patch(events)
        self.tell()

    async def use_policy(self, policy: Policy) -> None:
        self.policy = policy

    async def ask(self, question: Callable[[ClusterState], T]) -> T:
        return question(self.state)


def record(name: str, state: WorkloadState = WorkloadState.WAITING, **fields: Any) -> WorkloadRecord:
    """A workload of one pod."""
    request = Request(cpu_milli=1000, memory_mib=1024, gpus=fields.pop("gpus", 1))
    started_s, ended_s = fields.pop("started_s", 0), fields.pop("ended_s", 0)
    workload = Workload(f"default/{name}", (Role(request),), **fields)
    return WorkloadRecord(workload, state=state, started_s=started_s, ended_s=ended_s)
