"""Endless streams of small work against one large workload, on a virtual clock."""

from dataclasses import dataclass, field
from heapq import heappop, heappush

from kaiwo.model.policy import Policy
from kaiwo.model.queue import UNLIMITED
from tests.worlds import World

LARGE = "default/large"


@dataclass(frozen=True)
class Stream:
    """Equal workloads that arrive one after another for ever, and run for longer than the time between two."""

    name: str
    queue: str
    gpus: int
    every_s: int
    runs_s: int
    says_s: int = 0  # how long its owner says it runs; 0: nothing
    priority: int = 0
    preemptible: bool = True


@dataclass
class StarvationStory:
    """One large workload is submitted while the streams already fill the cluster."""

    streams: list[Stream]
    policy: Policy
    large_pods: int = 4
    large_queue: str = "lab-a"
    large_priority: int = 0
    quotas: dict[str, int] = field(default_factory=dict)  # GPUs by queue
    limits: dict[str, int] = field(default_factory=dict)
    nodes: int = 4
    submitted_s: int = 0
    older: int = 0  # workloads that waited already when it was submitted
    world: World = field(init=False)
    _arrivals: list[tuple[int, int, int]] = field(init=False)
    _ends: list[tuple[int, str]] = field(default_factory=list)

    def begin(self) -> None:
        """Until the streams fill the cluster, and the large workload is submitted."""
        self.world = World(nodes=self.nodes, gpus_per_node=4, policy=self.policy)
        for queue in sorted({self.large_queue, *(stream.queue for stream in self.streams)}):
            limit = self.limits[queue] * 1000 if queue in self.limits else UNLIMITED
            self.world.queue(queue, gpu_limit=limit, quota_milli=self.quotas.get(queue, 0) * 1000)
        self._arrivals = [(0, number, 0) for number in range(len(self.streams))]
        self.submitted_s = 2 * max(stream.runs_s for stream in self.streams)
        self._go_on(self.submitted_s)
        self.older = len(self.world.state.backlog)
        self.world.now_s = self.submitted_s
        rank = {"queue": self.large_queue, "priority": self.large_priority}
        self.world.submit(LARGE, pods=self.large_pods, gpus_each=4, submitted_s=self.submitted_s, **rank)

    def waits(self, until_s: int) -> int | None:
        """How long the large workload waits; None: it still waits after that much time."""
        self._go_on(self.submitted_s + until_s)
        return self.world.now_s - self.submitted_s if self.world.is_running(LARGE) else None

    def _go_on(self, until_s: int) -> None:
        world = self.world
        while not world.is_running(LARGE):
            times = [self._arrivals[0][0], *(end_s for end_s, _ in self._ends[:1])]
            times += [world.state.look_again_s] if world.state.look_again_s else []
            if min(times) > until_s:
                return
            world.now_s = max(world.now_s, min(times))
            while self._ends and self._ends[0][0] <= world.now_s:
                _, name = heappop(self._ends)
                pods = world.state.pods.get(name, {})
                if pods and all(pod.since_s + self._of(name).runs_s <= world.now_s for pod in pods.values()):
                    world.finish(name)
            while self._arrivals[0][0] <= world.now_s:
                at_s, number, count = heappop(self._arrivals)
                self._submit(number, count)
                heappush(self._arrivals, (at_s + self.streams[number].every_s, number, count + 1))
            for plan in world.settle():
                for start in plan.starts:
                    if start.workload != LARGE:
                        heappush(self._ends, (world.now_s + self._of(start.workload).runs_s, start.workload))

    def _of(self, name: str) -> Stream:
        return self.streams[int(name.rpartition("/")[2].split("-")[1])]

    def _submit(self, number: int, count: int) -> None:
        stream = self.streams[number]
        self.world.submit(
            f"default/{stream.name}-{number}-{count:05d}",
            gpus_each=stream.gpus,
            queue=stream.queue,
            priority=stream.priority,
            preemptible=stream.preemptible,
            estimate_s=stream.says_s,
            submitted_s=self.world.now_s,
        )
